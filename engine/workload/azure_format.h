// Azure's LLM inference traces of 2023 (CSV): TIMESTAMP ("2023-11-16 18:17:03.9799600"),
// ContextTokens, GeneratedTokens. Arrivals count from the first row; prompts share nothing.
#ifndef TALLY_ENGINE_WORKLOAD_AZURE_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_AZURE_FORMAT_H_

#include <memory>
#include <string_view>

#include "engine/workload/row_format.h"

namespace tally {

inline constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

std::unique_ptr<RowFormat> MakeAzureFormat();

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_AZURE_FORMAT_H_
