#include "engine/protocol/json_writer.h"

#include <charconv>

namespace tally {

void JsonWriter::Separate() {
  if (needs_comma_) out_.push_back(',');
  needs_comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  out_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

void JsonWriter::AppendQuoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out_.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_.push_back('\\');
      out_.push_back(c);
    } else if (byte < 0x20 || byte == 0x7F) {
      out_.append("\\u00");
      out_.push_back(kHex[byte >> 4]);
      out_.push_back(kHex[byte & 15]);
    } else {
      out_.push_back(c);
    }
  }
  out_.push_back('"');
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendQuoted(key);
  out_.push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  Separate();
  AppendQuoted(value);
  return *this;
}

JsonWriter& JsonWriter::Double(double value) {
  Separate();
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  out_.append(text, end);
  return *this;
}

JsonWriter& JsonWriter::Integer(std::int64_t value) {
  Separate();
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  out_.append(text, end);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Separate();
  out_.append(value ? "true" : "false");
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_.append(json);
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Separate();
  out_.append("null");
  return *this;
}

}  // namespace tally
