#include "engine/workload/prefill_trace_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/workload/json_row.h"

namespace tally {
namespace {

class PrefillTraceFormat : public RowFormat {
 public:
  PrefillTraceFormat() {
    command_ = {{.name = "op", .text = &op_},
                {.name = "t", .required = false, .number = &time_},
                {.name = "id", .required = false, .text = &id_},
                {.name = "prompt", .required = false, .tokens = &prompt_},
                {.name = "max_tokens", .required = false, .integer = &max_tokens_},
                {.name = "priority",
                 .required = false,
                 .integer = &priority_,
                 .least = -1'000'000'000,
                 .most = 1'000'000'000},
                {.name = "cache_salt", .required = false, .text = &salt_},
                {.name = "resumable", .required = false, .flag = &resumable_}};
    line_ = {{.name = "in", .required = false, .object = &command_},
             {.name = "format", .required = false, .text = &format_}};
  }

  std::string_view name() const override { return "prefill-trace"; }

  Outcome Parse(std::string_view line, WorkloadRequest& request) override {
    time_ = 0;
    prompt_.clear();
    max_tokens_ = 1;
    priority_ = 0;
    salt_.clear();
    resumable_ = false;
    if (std::optional<RowError> error = reader_.Read(line, line_)) return Broken(*error);
    if (line_[1].found) return Header();
    if (!line_[0].found) {
      return Broken({1, "neither \"format\" nor \"in\", wanted a header or a command"});
    }
    latest_ = std::max(latest_, base_ + time_);
    if (op_ != "add") return NoRequest();
    const bool in_session = sessions_.contains(id_);
    if (resumable_) {
      sessions_.insert(id_);
    } else if (in_session) {
      sessions_.erase(id_);
      return NoRequest();
    }
    if (!command_[3].found || prompt_.empty()) {
      return Broken({1, "prompt: nothing, wanted an array of at least one token id"});
    }
    request.arrival = base_ + time_;
    request.num_prompt_tokens = static_cast<std::int32_t>(prompt_.size());
    request.num_output_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(max_tokens_, 1));
    request.priority = priority_;
    request.cache_salt = salt_;
    request.tokens = prompt_;
    return Request();
  }

 private:
  Outcome Header() {
    if (format_ != "prefill-trace/1") {
      return Broken({1, fmt::format("format: {}, wanted prefill-trace/1", Excerpt(format_))});
    }
    base_ = latest_;
    sessions_.clear();
    return NoRequest();
  }

  JsonRowReader reader_;
  std::vector<JsonField> line_;
  std::vector<JsonField> command_;
  std::string format_;
  std::string op_;
  std::string id_;
  std::string salt_;
  double time_ = 0;
  std::int64_t max_tokens_ = 1;
  std::int64_t priority_ = 0;
  bool resumable_ = false;
  std::vector<TokenId> prompt_;

  Seconds base_ = 0;    // where this trace begins
  Seconds latest_ = 0;  // the end of what was read
  absl::flat_hash_set<std::string> sessions_;
};

}  // namespace

std::unique_ptr<RowFormat> MakePrefillTraceFormat() {
  return std::make_unique<PrefillTraceFormat>();
}

}  // namespace tally
