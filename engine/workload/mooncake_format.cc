#include "engine/workload/mooncake_format.h"

#include "engine/workload/hashed_json_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeMooncakeFormat(const FormatOptions& options) {
  return std::make_unique<HashedJsonFormat>(HashedJsonFormat::Keys{.format = "mooncake",
                                                                   .arrival = "timestamp",
                                                                   .arrivals_per_second = 1000,
                                                                   .prompt = "input_length",
                                                                   .output = "output_length",
                                                                   .ids = "hash_ids",
                                                                   .tokens_per_hash = 512,
                                                                   .priority = ""},
                                            options);
}

}  // namespace tally
