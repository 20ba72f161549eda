// Qwen-Bailian's anonymised traces (JSON lines): chat_id, parent_chat_id, timestamp in seconds,
// input_length, output_length, type, turn, and hash_ids, one for each 16 tokens of the prompt. What
// a turn shares with its parent is in the hash ids already.
#ifndef TALLY_ENGINE_WORKLOAD_QWEN_BAILIAN_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_QWEN_BAILIAN_FORMAT_H_

#include <memory>

#include "engine/workload/row_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeQwenBailianFormat(const FormatOptions& options);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_QWEN_BAILIAN_FORMAT_H_
