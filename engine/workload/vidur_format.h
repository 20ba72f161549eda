// Vidur's processed length files (CSV): num_prefill_tokens, num_decode_tokens, num_total_tokens,
// pd_ratio. Lengths only: the replayer makes arrivals up, and prompts share nothing.
#ifndef TALLY_ENGINE_WORKLOAD_VIDUR_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_VIDUR_FORMAT_H_

#include <memory>
#include <string_view>

#include "engine/workload/row_format.h"

namespace tally {

inline constexpr std::string_view kVidurHeader =
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio";

std::unique_ptr<RowFormat> MakeVidurFormat();

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_VIDUR_FORMAT_H_
