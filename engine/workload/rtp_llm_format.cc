#include "engine/workload/rtp_llm_format.h"

#include "engine/workload/hashed_json_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakeRtpLlmFormat(const FormatOptions& options) {
  return std::make_unique<HashedJsonFormat>(HashedJsonFormat::Keys{.format = "rtp-llm",
                                                                   .arrival = "ts",
                                                                   .arrivals_per_second = 1000,
                                                                   .prompt = "il",
                                                                   .output = "ol",
                                                                   .ids = "bh",
                                                                   .tokens_per_hash = 1024,
                                                                   .priority = "priority"},
                                            options);
}

}  // namespace tally
