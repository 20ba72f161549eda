// Mooncake's traces (JSON lines): timestamp in ms, input_length, output_length, and hash_ids, one
// for each 512 tokens of the prompt, a partial last block included. Equal ids mean an equal prefix
// up to the end of that block.
#ifndef TALLY_ENGINE_WORKLOAD_MOONCAKE_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_MOONCAKE_FORMAT_H_

#include <memory>

#include "engine/workload/row_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeMooncakeFormat(const FormatOptions& options);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_MOONCAKE_FORMAT_H_
