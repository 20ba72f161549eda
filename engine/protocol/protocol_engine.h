// An engine that speaks the trace format (conformance/trace_format.md): one command in, one answer
// out.
//
// It holds the scheduler, the front end's accounting and the metrics of one engine. A command is
// read and checked as a whole before anything happens: one that is wrong is answered
// {"error":"InvalidCommand","message":"add.max_tokens: -3, wanted ..."} and changes nothing, and
// the engine goes on. Errors of another kind mean that the engine itself cannot go on as the
// reference could not ("AssertionError", "ValueError", "RuntimeError"). Not thread-safe.
#ifndef TALLY_ENGINE_PROTOCOL_PROTOCOL_ENGINE_H_
#define TALLY_ENGINE_PROTOCOL_PROTOCOL_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/accounting/engine_metrics.h"
#include "engine/accounting/front_end_stats.h"
#include "engine/core/scheduler.h"
#include "engine/protocol/json_fields.h"
#include "simdjson.h"

namespace tally {

// Longer commands are refused; memory for one of them is all that input can take.
inline constexpr std::size_t kMaxCommandBytes = std::size_t{16} << 20;

class ProtocolEngine {
 public:
  // `defaults` gives what a `configure` does not say: behaviour, hash algorithm, seed.
  explicit ProtocolEngine(const EngineConfig& defaults = {});

  // Answers one command, a JSON object. The answer is one JSON object without a line end; it lives
  // until the next call.
  std::string_view Answer(std::string_view command);

  // The answer for a command whose text could not be taken in at all.
  std::string_view Refuse(std::string_view message);

  // Called with the KV events of every update that has some, before it is answered.
  using KvEventSink = std::function<void(std::span<const KvEvent>)>;
  void SetKvEventSink(KvEventSink sink) { kv_event_sink_ = std::move(sink); }

  // Null before the first `configure`.
  const Scheduler* scheduler() const { return scheduler_.get(); }

 private:
  // Rows of a map from request ids to tokens, as they came: token_pool_[begin .. end).
  struct TokenRow {
    std::string_view id;
    std::size_t begin = 0;
    std::size_t end = 0;

    std::size_t size() const { return end - begin; }
  };

  absl::Status Execute(std::string_view command);
  absl::Status Configure(simdjson::dom::object command);
  absl::Status Add(JsonFields& fields, Seconds now);
  absl::Status Schedule(JsonFields& fields, Seconds now);
  absl::Status Update(JsonFields& fields, Seconds now);
  absl::Status Abort(JsonFields& fields, Seconds now);
  absl::Status ResetPrefixCache(JsonFields& fields, Seconds now);
  absl::Status Pause(JsonFields& fields, Seconds now);
  absl::Status GrammarReady(JsonFields& fields, Seconds now);
  absl::Status State(JsonFields& fields, Seconds now);
  absl::Status Metrics(JsonFields& fields, Seconds now);

  // Reads one map of token rows into `rows` and token_pool_.
  absl::Status ReadRows(std::string_view name, JsonFields& fields, std::vector<TokenRow>& rows);
  // Finds each row's place in the step, into row_at_.
  absl::Status PlaceRows(std::string_view name, std::span<const TokenRow> rows,
                         std::size_t step_size);
  // Checks drafts and sampled rows against the oldest step; brings the latter into its order.
  absl::Status ReadEncoderInputs(JsonFields& fields);
  // Reads a list of request ids.
  static absl::Status ReadIds(std::string_view op, std::string_view name, JsonFields& fields,
                              std::vector<std::string_view>& ids);
  // Reads a list of ids of the oldest step's requests as ascending places in it; other ids are an
  // error, or passed over when that is not `wanted`.
  absl::Status ReadPlaces(std::string_view name, bool wanted, JsonFields& fields,
                          std::vector<std::uint32_t>& places);
  // Reads what the connector's workers report.
  absl::Status ReadTransferReports(JsonFields& fields);
  absl::Status ArrangeRows(std::span<const ScheduledRequest> step);

  EngineConfig defaults_;
  KvEventSink kv_event_sink_;
  std::unique_ptr<Scheduler> scheduler_;
  FrontEndStats front_end_;
  std::unique_ptr<EngineMetrics> metrics_;
  IterationStats iteration_;
  Seconds now_ = 0;

  // Memory of the calls.
  simdjson::dom::parser parser_;
  std::string input_;
  std::string answer_;
  std::vector<TokenId> token_pool_;
  std::vector<TokenRow> sampled_rows_;
  std::vector<TokenRow> draft_rows_;
  absl::flat_hash_map<std::string_view, std::size_t> place_of_;  // of a request in the oldest step
  std::vector<const TokenRow*> row_at_;
  std::vector<MultimodalItem> encoder_inputs_;
  std::vector<std::uint32_t> pooled_;
  std::vector<std::uint32_t> refused_by_grammar_;
  std::vector<std::string_view> finished_recving_;
  std::vector<std::string_view> finished_sending_;
  std::vector<BlockId> invalid_blocks_;
  std::vector<TokenId> sampled_tokens_;
  std::vector<std::uint32_t> sampled_offsets_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_PROTOCOL_ENGINE_H_
