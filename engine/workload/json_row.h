// Reads one JSON object of a line, field by field, and says where in the line something is wrong.
#ifndef TALLY_ENGINE_WORKLOAD_JSON_ROW_H_
#define TALLY_ENGINE_WORKLOAD_JSON_ROW_H_

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/workload/row_format.h"

namespace tally {

// What a format wants to know of a row. Each field is named once; a pointer that is null is not
// wanted. Fields of other names are passed over.
struct JsonField {
  std::string_view name;
  bool required = true;
  // One of these. Integers are checked against the range, times are finite and not negative.
  std::int64_t* integer = nullptr;
  std::int64_t least = 0;
  std::int64_t most = kMaxRowTokens;
  double* number = nullptr;
  std::string* text = nullptr;
  bool* flag = nullptr;
  // Hash ids: integers or strings, each turned into a number that identifies it.
  std::vector<std::uint64_t>* ids = nullptr;
  std::vector<TokenId>* tokens = nullptr;
  // An object, read by the fields of its own.
  std::vector<JsonField>* object = nullptr;

  bool found = false;  // set by the reader
};

class JsonRowReader {
 public:
  // Fills what `fields` point to. Refuses what isn't a JSON object, fields that occur twice, that
  // are missing or of another type, and text behind the object.
  std::optional<RowError> Read(std::string_view line, std::vector<JsonField>& fields);

 private:
  std::optional<RowError> ReadObject(simdjson::ondemand::object object,
                                     std::vector<JsonField>& fields, std::string_view context);
  std::optional<RowError> ReadField(simdjson::ondemand::value value, JsonField& field);
  std::optional<RowError> ReadIds(simdjson::ondemand::value value, JsonField& field);
  std::optional<RowError> ReadTokens(simdjson::ondemand::value value, JsonField& field);
  // The column of a place in the line; the line's end for one outside it.
  std::size_t Column(const char* place) const;
  RowError Wanted(const JsonField& field, std::string_view token, std::string_view what) const;
  RowError Malformed(simdjson::error_code error) const;

  simdjson::ondemand::parser parser_;
  simdjson::ondemand::document document_;
  std::string line_;  // the line with the room behind it that simdjson wants
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_JSON_ROW_H_
