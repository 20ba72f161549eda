// Finds the number that makes a JSON text unreadable: one too large for 64 bits or for a double.
#ifndef TALLY_ENGINE_PROTOCOL_JSON_NUMBER_FAULT_H_
#define TALLY_ENGINE_PROTOCOL_JSON_NUMBER_FAULT_H_

#include <optional>
#include <string>
#include <string_view>

namespace tally {

// The parser only says that some number is out of range. This names the key before it and the
// number: "max_tokens: 1e999, wanted a number in range". Nothing when every number is in range.
// O(text).
std::optional<std::string> FindNumberFault(std::string_view json);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_JSON_NUMBER_FAULT_H_
