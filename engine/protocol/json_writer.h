// Writes compact JSON into a string that the caller keeps, so that its memory is reused.
#ifndef TALLY_ENGINE_PROTOCOL_JSON_WRITER_H_
#define TALLY_ENGINE_PROTOCOL_JSON_WRITER_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

// Commas are put where they belong; brackets and keys are the caller's to balance. Strings must be
// UTF-8: they are escaped, not checked. Doubles are written with the fewest digits that read back
// as the same value.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view value);
  JsonWriter& Double(double value);  // wants a finite value
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Raw(std::string_view json);  // one JSON value, written as it stands
  template <std::integral T>
  JsonWriter& Int(T value) {
    return Integer(static_cast<std::int64_t>(value));
  }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Integer(std::int64_t value);
  void Separate();
  void AppendQuoted(std::string_view text);

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_JSON_WRITER_H_
