#include "engine/workload/qwen_bailian_format.h"

#include "engine/workload/hashed_json_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeQwenBailianFormat(const FormatOptions& options) {
  return std::make_unique<HashedJsonFormat>(HashedJsonFormat::Keys{.format = "qwen-bailian",
                                                                   .arrival = "timestamp",
                                                                   .arrivals_per_second = 1,
                                                                   .prompt = "input_length",
                                                                   .output = "output_length",
                                                                   .ids = "hash_ids",
                                                                   .tokens_per_hash = 16,
                                                                   .priority = ""},
                                            options);
}

}  // namespace tally
