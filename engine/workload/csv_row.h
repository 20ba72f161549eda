// Splits a line of a simple CSV file (no quotes), remembering where each field stands.
#ifndef TALLY_ENGINE_WORKLOAD_CSV_ROW_H_
#define TALLY_ENGINE_WORKLOAD_CSV_ROW_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/workload/row_format.h"

namespace tally {

struct CsvField {
  std::string_view text;
  std::size_t column = 1;  // of the line, from 1
};

class CsvRow {
 public:
  // Splits at commas. The views live as long as the line.
  void Split(std::string_view line);
  std::size_t size() const { return fields_.size(); }
  const CsvField& operator[](std::size_t index) const { return fields_[index]; }

  // An error unless there are as many fields as the header `names`.
  std::optional<RowError> CheckSize(std::string_view names) const;
  // Reads a whole number; the message of an error names the field.
  std::optional<RowError> Integer(std::size_t index, std::string_view name, std::int64_t least,
                                  std::int64_t most, std::int64_t& value) const;

 private:
  std::vector<CsvField> fields_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_CSV_ROW_H_
