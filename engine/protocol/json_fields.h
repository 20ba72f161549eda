// Reads the fields of a JSON object and checks them: kinds, ranges, unknown and repeated keys.
//
//   JsonFields fields("add", object);
//   const auto max_tokens = fields.Int("max_tokens", 1, 1 << 29);   // required
//   const auto min_tokens = fields.Int("min_tokens", 0, 1 << 29, 0);  // with a default
//   if (absl::Status status = fields.Finish(); !status.ok()) return status;
//
// The first fault sticks; readers after it answer defaults, so that a caller looks at the status
// once, before it uses anything. Every message has the form "add.max_tokens: -3, wanted an integer
// from 1 to 536870912".
#ifndef TALLY_ENGINE_PROTOCOL_JSON_FIELDS_H_
#define TALLY_ENGINE_PROTOCOL_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "simdjson.h"

namespace tally {

// At most so many bytes of a wrong value are repeated in a message.
inline constexpr std::size_t kMaxQuotedBytes = 60;

// The text, cut between two characters when it is long.
std::string Shortened(std::string_view text);

// The value as JSON, shortened.
std::string QuoteJson(simdjson::dom::element value);

class JsonFields {
 public:
  // `name` starts every message. `object` and the parser behind it outlive this.
  JsonFields(std::string_view name, simdjson::dom::object object);

  bool Has(std::string_view key);
  std::int64_t Int(std::string_view key, std::int64_t least, std::int64_t most);
  std::int64_t Int(std::string_view key, std::int64_t least, std::int64_t most,
                   std::int64_t absent);
  bool Bool(std::string_view key, bool absent);
  // Finite and from `least` on.
  double Double(std::string_view key, double least, double absent);
  std::string_view String(std::string_view key);
  std::string_view String(std::string_view key, std::string_view absent);
  std::optional<std::int64_t> OptionalInt(std::string_view key, std::int64_t least,
                                          std::int64_t most);
  std::optional<simdjson::dom::object> Object(std::string_view key);  // nothing when absent
  std::optional<simdjson::dom::array> Array(std::string_view key);    // nothing when absent
  // Appends to `tokens`; an absent array is empty unless it is required.
  void Tokens(std::string_view key, bool required, std::vector<TokenId>& tokens);

  // A key that the format knows and this engine does not; a fault when it is there, except with the
  // value null, false or 0.
  void Unsupported(std::string_view key, std::string_view supported);

  // Records a fault of a field.
  void Fail(std::string_view key, std::string_view value, std::string_view wanted);
  // Records a fault found elsewhere, in a part of this object.
  void Adopt(absl::Status status) { status_.Update(std::move(status)); }
  bool ok() const { return status_.ok(); }

  // Refuses keys that nobody asked for and keys that occur twice.
  absl::Status Finish();

 private:
  std::optional<simdjson::dom::element> Find(std::string_view key);
  void FailMissing(std::string_view key);
  void FailKind(std::string_view key, simdjson::dom::element value, std::string_view wanted);

  std::string_view name_;
  simdjson::dom::object object_;
  std::vector<std::string_view> asked_;
  absl::Status status_;
};

// Reads a JSON array of token ids, appending them; the message names the place of a wrong one.
absl::Status ReadTokens(std::string_view name, simdjson::dom::element value,
                        std::vector<TokenId>& tokens);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_JSON_FIELDS_H_
