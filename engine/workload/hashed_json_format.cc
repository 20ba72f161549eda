#include "engine/workload/hashed_json_format.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally {

HashedJsonFormat::HashedJsonFormat(const Keys& keys, const FormatOptions& options)
    : keys_(keys), tokens_per_hash_(options.tokens_per_hash.value_or(keys.tokens_per_hash)) {
  fields_.push_back({.name = keys_.arrival, .number = &arrival_});
  fields_.push_back({.name = keys_.prompt, .integer = &prompt_, .least = 1});
  fields_.push_back({.name = keys_.output, .integer = &output_});
  fields_.push_back({.name = keys_.ids, .ids = &ids_});
  if (!keys_.priority.empty()) {
    fields_.push_back({.name = keys_.priority,
                       .required = false,
                       .integer = &priority_,
                       .least = -1'000'000'000,
                       .most = 1'000'000'000});
  }
}

RowFormat::Outcome HashedJsonFormat::Parse(std::string_view line, WorkloadRequest& request) {
  priority_ = 0;
  if (std::optional<RowError> error = reader_.Read(line, fields_)) return Broken(*error);
  request.arrival = arrival_ / keys_.arrivals_per_second;
  request.num_prompt_tokens = static_cast<std::int32_t>(prompt_);
  // A request that was sent on without decoding still samples one token: the prefill's.
  request.num_output_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(output_, 1));
  request.priority = priority_;
  if (!SetHashedPrompt(ids_, tokens_per_hash_, request)) {
    const std::size_t place = line.find(fmt::format("\"{}\"", keys_.ids));
    const std::int64_t least = prompt_ / tokens_per_hash_;
    const std::int64_t most = (prompt_ + tokens_per_hash_ - 1) / tokens_per_hash_;
    return Broken({place == std::string_view::npos ? 1 : place + 1,
                   fmt::format("{}: {} ids, wanted {}{} for {} tokens at {} an id", keys_.ids,
                               ids_.size(), least, most == least ? "" : fmt::format(" or {}", most),
                               prompt_, tokens_per_hash_)});
  }
  return Request();
}

}  // namespace tally
