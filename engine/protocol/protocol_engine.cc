#include "engine/protocol/protocol_engine.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/protocol/answer_writer.h"
#include "engine/protocol/config_parser.h"
#include "engine/protocol/json_number_fault.h"
#include "engine/protocol/json_writer.h"

namespace tally {
namespace {

constexpr std::string_view kEngineName = "tally 0.1";
constexpr std::string_view kInvalidCommand = "InvalidCommand";
constexpr std::int64_t kMostTokens = std::int64_t{1} << 29;
constexpr std::int64_t kMostTokenId = std::numeric_limits<TokenId>::max();

absl::Status Invalid(std::string_view message) {
  return absl::InvalidArgumentError(std::string(message));
}

// A refusal of the core names its field; the command is put before it.
absl::Status InCommand(std::string_view op, const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInternal) return status;
  return absl::Status(status.code(),
                      absl::StrCat(std::string(op), ".", std::string(status.message())));
}

// The core tells faults of the reference, which end a trace, as Internal with "Class: text".
void WriteStatus(const absl::Status& status, std::string& out) {
  const std::string_view message(status.message().data(), status.message().size());
  const std::size_t colon = message.find(": ");
  if (status.code() == absl::StatusCode::kInternal && colon != std::string_view::npos) {
    WriteError(message.substr(0, colon), message.substr(colon + 2), out);
  } else {
    WriteError(kInvalidCommand, message, out);
  }
}

std::optional<RepetitionDetection> ParseRepetition(JsonFields& fields) {
  const auto object = fields.Object("repetition");
  if (!object || !fields.ok()) return std::nullopt;
  JsonFields parts("repetition", *object);
  RepetitionDetection repetition;
  repetition.max_pattern_size =
      static_cast<std::int32_t>(parts.Int("max_pattern_size", -kMostTokens, kMostTokens, 0));
  repetition.min_pattern_size =
      static_cast<std::int32_t>(parts.Int("min_pattern_size", -kMostTokens, kMostTokens, 0));
  repetition.min_count =
      static_cast<std::int32_t>(parts.Int("min_count", -kMostTokens, kMostTokens, 0));
  fields.Adopt(parts.Finish());
  return repetition;
}

}  // namespace

ProtocolEngine::ProtocolEngine(const EngineConfig& defaults) : defaults_(defaults) {}

std::string_view ProtocolEngine::Refuse(std::string_view message) {
  answer_.clear();
  WriteError(kInvalidCommand, message, answer_);
  return answer_;
}

std::string_view ProtocolEngine::Answer(std::string_view command) {
  if (command.size() > kMaxCommandBytes) {
    return Refuse(
        absl::StrCat("command: ", command.size(), " bytes, wanted at most ", kMaxCommandBytes));
  }
  answer_.clear();
  if (absl::Status status = Execute(command); !status.ok()) {
    answer_.clear();
    WriteStatus(status, answer_);
  }
  return answer_;
}

absl::Status ProtocolEngine::Execute(std::string_view text) {
  input_.assign(text);
  input_.reserve(input_.size() + simdjson::SIMDJSON_PADDING);
  simdjson::dom::element root;
  if (const auto error = parser_.parse(input_.data(), input_.size(), false).get(root)) {
    if (const auto fault = FindNumberFault(text); fault && error != simdjson::UTF8_ERROR)
      return Invalid(*fault);
    return Invalid(
        absl::StrCat("command: ", simdjson::error_message(error), ": ", Shortened(text)));
  }
  simdjson::dom::object command;
  if (root.get(command) != simdjson::SUCCESS) {
    return Invalid(absl::StrCat("command: ", QuoteJson(root), ", wanted an object"));
  }
  std::string_view op;
  if (const auto error = command["op"].get(op)) {
    return Invalid(error == simdjson::NO_SUCH_FIELD ? "op: missing"
                                                    : "op: not a string, wanted a command's name");
  }
  if (op == "configure") return Configure(command);

  using Handler = absl::Status (ProtocolEngine::*)(JsonFields&, Seconds);
  static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
      {"add", &ProtocolEngine::Add},
      {"schedule", &ProtocolEngine::Schedule},
      {"update", &ProtocolEngine::Update},
      {"abort", &ProtocolEngine::Abort},
      {"reset_prefix_cache", &ProtocolEngine::ResetPrefixCache},
      {"pause", &ProtocolEngine::Pause},
      {"grammar_ready", &ProtocolEngine::GrammarReady},
      {"state", &ProtocolEngine::State},
      {"metrics", &ProtocolEngine::Metrics},
  };
  for (const auto& [name, handler] : kHandlers) {
    if (op != name) continue;
    if (scheduler_ == nullptr)
      return Invalid(absl::StrCat("op: ", std::string(op), ", wanted configure first"));
    JsonFields fields(name, command);
    fields.Has("op");
    const Seconds now = fields.Double("t", now_, now_);
    return (this->*handler)(fields, now);
  }
  return Invalid(absl::StrCat("op: ", Shortened(op),
                              ", wanted configure, add, schedule, update, abort, "
                              "reset_prefix_cache, pause, grammar_ready, state or metrics"));
}

absl::Status ProtocolEngine::Configure(simdjson::dom::object command) {
  JsonFields fields("configure", command);
  fields.Has("op");
  const Seconds now = fields.Double("t", 0, 0);
  const auto object = fields.Object("config");
  if (!object && fields.ok()) return Invalid("configure.config: missing");
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  absl::StatusOr<TraceConfig> config = ParseConfig(*object, defaults_);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Create(
      config->engine, config->connector ? CreateConnector(*config->connector) : nullptr);
  if (!scheduler.ok()) return InCommand("config", scheduler.status());

  scheduler_ = *std::move(scheduler);
  front_end_ = FrontEndStats();
  metrics_ = std::make_unique<EngineMetrics>(
      EngineMetrics::Config{.max_model_len = config->engine.max_model_len,
                            .num_speculative_tokens = config->engine.num_speculative_tokens,
                            .max_loras = config->engine.max_loras});
  now_ = now;
  JsonWriter(answer_).BeginObject().Key("engine").String(kEngineName).EndObject();
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Add(JsonFields& fields, Seconds now) {
  RequestSpec spec;
  spec.id = fields.String("id");
  token_pool_.clear();
  fields.Tokens("prompt", true, token_pool_);
  const std::size_t prompt_size = token_pool_.size();
  fields.Tokens("stop_token_ids", false, token_pool_);
  spec.prompt = std::span(token_pool_).first(prompt_size);
  spec.stop_token_ids = std::span(token_pool_).subspan(prompt_size);
  spec.pooling = fields.Bool("pooling", false);
  spec.max_tokens =
      static_cast<std::int32_t>(spec.pooling ? fields.Int("max_tokens", 1, kMostTokens, 1)
                                             : fields.Int("max_tokens", 1, kMostTokens));
  spec.min_tokens = static_cast<std::int32_t>(fields.Int("min_tokens", 0, kMostTokens, 0));
  const auto eos = fields.OptionalInt("eos", 0, kMostTokenId);
  if (const bool ignored = fields.Bool("ignore_eos", false); eos && !ignored)
    spec.eos_token_id = static_cast<TokenId>(*eos);
  spec.priority = fields.Int("priority", std::numeric_limits<std::int64_t>::min(),
                             std::numeric_limits<std::int64_t>::max(), 0);
  spec.arrival_time = fields.Double("arrival", 0, now);
  spec.cache_salt = fields.String("cache_salt", "");
  spec.skip_reading_prefix_cache = fields.Bool("skip_reading_prefix_cache", false);
  spec.repetition = ParseRepetition(fields);
  spec.lora_id = static_cast<std::int32_t>(fields.Int("lora", 0, kMostTokenId, 0));
  const std::string lora_name = spec.lora_id > 0 ? absl::StrCat("lora", spec.lora_id) : "";
  spec.lora_name = lora_name;
  if (absl::Status status = ReadEncoderInputs(fields); !status.ok()) return status;
  spec.encoder_inputs = encoder_inputs_;
  spec.waits_for_grammar = fields.Bool("grammar", false);
  spec.resumable = fields.Bool("resumable", false);
  if (const auto kv = fields.Object("kv"); kv && fields.ok()) {
    // Without a connector nobody reads it.
    spec.kv_transfer_params =
        std::make_shared<const nlohmann::json>(nlohmann::json::parse(simdjson::minify(*kv)));
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;

  const bool known = scheduler_->Find(spec.id).has_value();
  const absl::StatusOr<RequestHandle> request = scheduler_->AddRequest(spec, now);
  if (!request.ok()) return InCommand("add", request.status());
  const auto prompt_tokens = static_cast<std::int64_t>(spec.prompt.size());
  if (!known) {
    // A pooling request has no limit to report.
    front_end_.AddRequest(*request, prompt_tokens, spec.pooling ? 0 : spec.max_tokens,
                          spec.arrival_time, spec.resumable, lora_name);
  } else if (spec.resumable) {
    front_end_.AddChunk(*request, prompt_tokens, spec.arrival_time);
  } else {
    front_end_.EndSession(*request);
  }
  now_ = now;
  answer_ = "{}";
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ReadEncoderInputs(JsonFields& fields) {
  encoder_inputs_.clear();
  const auto array = fields.Array("encoder_inputs");
  if (!array || !fields.ok()) return absl::OkStatus();
  for (const simdjson::dom::element value : *array) {
    const std::string name = absl::StrCat("add.encoder_inputs[", encoder_inputs_.size(), "]");
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      return Invalid(absl::StrCat(name, ": ", QuoteJson(value), ", wanted an object"));
    }
    JsonFields parts(name, object);
    MultimodalItem item;
    item.offset = static_cast<std::int32_t>(parts.Int("offset", 0, kMostTokens));
    item.length = static_cast<std::int32_t>(parts.Int("length", 1, kMostTokens));
    item.hash = parts.String("hash");
    if (absl::Status status = parts.Finish(); !status.ok()) return status;
    encoder_inputs_.push_back(std::move(item));
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ReadIds(std::string_view op, std::string_view name, JsonFields& fields,
                                     std::vector<std::string_view>& ids) {
  const auto array = fields.Array(name);
  if (!array || !fields.ok()) return absl::OkStatus();
  for (const simdjson::dom::element value : *array) {
    std::string_view id;
    if (value.get(id) != simdjson::SUCCESS) {
      return Invalid(absl::StrCat(std::string(op), ".", std::string(name), "[", ids.size(),
                                  "]: ", QuoteJson(value), ", wanted a string"));
    }
    ids.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ReadPlaces(std::string_view name, bool wanted, JsonFields& fields,
                                        std::vector<std::uint32_t>& places) {
  places.clear();
  std::vector<std::string_view> ids;
  if (absl::Status status = ReadIds("update", name, fields, ids); !status.ok()) return status;
  const std::span<const ScheduledRequest> step = scheduler_->oldest_outstanding();
  for (const std::string_view id : ids) {
    const auto entry = std::find_if(step.begin(), step.end(), [&](const ScheduledRequest& e) {
      return scheduler_->id(e.request) == id;
    });
    if (entry == step.end()) {
      if (!wanted) continue;
      return Invalid(absl::StrCat("update.", std::string(name), ": ", Shortened(id),
                                  ", wanted requests of the oldest step"));
    }
    places.push_back(static_cast<std::uint32_t>(entry - step.begin()));
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return absl::OkStatus();
}

absl::Status ProtocolEngine::GrammarReady(JsonFields& fields, Seconds now) {
  std::vector<std::string_view> ids;
  if (!fields.Has("ids") && fields.ok()) return Invalid("grammar_ready.ids: missing");
  if (absl::Status status = ReadIds("grammar_ready", "ids", fields, ids); !status.ok())
    return status;
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  for (const std::string_view id : ids) {
    if (const auto request = scheduler_->Find(id)) scheduler_->SetGrammarReady(*request);
  }
  answer_ = "{}";
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Schedule(JsonFields& fields, Seconds now) {
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  const absl::StatusOr<StepPlan> plan = scheduler_->Schedule(now);
  if (!plan.ok()) return InCommand("schedule", plan.status());
  now_ = now;
  WritePlan(*scheduler_, *plan, answer_);
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ReadRows(std::string_view name, JsonFields& fields,
                                      std::vector<TokenRow>& rows) {
  rows.clear();
  const auto object = fields.Object(name);
  if (!object || !fields.ok()) return absl::OkStatus();
  for (const auto& field : *object) {
    const std::string path = absl::StrCat("update.", std::string(name), ".", Shortened(field.key));
    TokenRow row{field.key, token_pool_.size(), 0};
    if (absl::Status status = ReadTokens(path, field.value, token_pool_); !status.ok())
      return status;
    row.end = token_pool_.size();
    rows.push_back(row);
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::PlaceRows(std::string_view name, std::span<const TokenRow> rows,
                                       std::size_t step_size) {
  row_at_.assign(step_size, nullptr);
  for (const TokenRow& row : rows) {
    const auto place = place_of_.find(row.id);
    std::string_view fault;
    if (place == place_of_.end()) {
      fault = ": not in the oldest step, wanted one of its requests";
    } else if (row_at_[place->second] != nullptr) {
      fault = ": given twice";
    } else {
      row_at_[place->second] = &row;
      continue;
    }
    return Invalid(
        absl::StrCat("update.", std::string(name), ".", Shortened(row.id), std::string(fault)));
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ArrangeRows(std::span<const ScheduledRequest> step) {
  place_of_.clear();
  for (std::size_t i = 0; i < step.size(); ++i)
    place_of_.emplace(scheduler_->id(step[i].request), i);

  if (absl::Status status = PlaceRows("drafts", draft_rows_, step.size()); !status.ok())
    return status;
  const auto most_drafts = static_cast<std::size_t>(scheduler_->config().num_speculative_tokens);
  for (const TokenRow& row : draft_rows_) {
    if (row.size() <= most_drafts) continue;
    return Invalid(absl::StrCat("update.drafts.", Shortened(row.id), ": ", row.size(),
                                " tokens, wanted at most num_speculative_tokens ", most_drafts));
  }

  if (absl::Status status = PlaceRows("sampled", sampled_rows_, step.size()); !status.ok())
    return status;
  sampled_tokens_.clear();
  sampled_offsets_.assign(1, 0);
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (const TokenRow* row = row_at_[i]; row != nullptr) {
      const std::size_t most =
          step[i].samples ? 1 + static_cast<std::size_t>(step[i].num_draft_tokens) : 0;
      if (row->size() > most) {
        return Invalid(absl::StrCat("update.sampled.", Shortened(row->id), ": ", row->size(),
                                    " tokens, wanted at most ", most,
                                    step[i].samples ? "" : " since its prefill is not complete"));
      }
      const std::span<const TokenId> tokens =
          std::span(token_pool_).subspan(row->begin, row->size());
      sampled_tokens_.insert(sampled_tokens_.end(), tokens.begin(), tokens.end());
    }
    sampled_offsets_.push_back(static_cast<std::uint32_t>(sampled_tokens_.size()));
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ReadTransferReports(JsonFields& fields) {
  finished_recving_.clear();
  finished_sending_.clear();
  invalid_blocks_.clear();
  if (scheduler_->connector() == nullptr) {
    for (const std::string_view key : {"finished_recving", "finished_sending", "invalid_blocks"})
      fields.Unsupported(key, "no connector is configured");
    return absl::OkStatus();
  }
  absl::Status status = ReadIds("update", "finished_recving", fields, finished_recving_);
  status.Update(ReadIds("update", "finished_sending", fields, finished_sending_));
  if (!status.ok()) return status;
  const std::size_t begin = token_pool_.size();
  fields.Tokens("invalid_blocks", false, token_pool_);
  for (std::size_t i = begin; fields.ok() && i < token_pool_.size(); ++i) {
    const auto block = static_cast<std::uint32_t>(token_pool_[i]);
    if (block >= scheduler_->config().kv.num_blocks) {
      return Invalid(absl::StrCat("update.invalid_blocks[", i - begin, "]: ", block,
                                  ", wanted a block below num_blocks ",
                                  scheduler_->config().kv.num_blocks));
    }
    invalid_blocks_.push_back(BlockId{block});
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Update(JsonFields& fields, Seconds now) {
  if (scheduler_->num_outstanding_steps() == 0)
    return Invalid("op: update, wanted a schedule before it");
  token_pool_.clear();
  if (!fields.Has("sampled") && fields.ok()) return Invalid("update.sampled: missing");
  if (absl::Status status = ReadRows("sampled", fields, sampled_rows_); !status.ok()) return status;
  if (absl::Status status = ReadRows("drafts", fields, draft_rows_); !status.ok()) return status;
  if (absl::Status status = ReadPlaces("pooled", true, fields, pooled_); !status.ok())
    return status;
  if (absl::Status status = ReadPlaces("grammar_rejects", false, fields, refused_by_grammar_);
      !status.ok())
    return status;
  if (absl::Status status = ReadTransferReports(fields); !status.ok()) return status;
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  if (absl::Status status = ArrangeRows(scheduler_->oldest_outstanding()); !status.ok())
    return status;

  const absl::StatusOr<StepResult> result =
      scheduler_->Update({.sampled_offsets = sampled_offsets_,
                          .sampled_tokens = sampled_tokens_,
                          .pooled = pooled_,
                          .refused_by_grammar = refused_by_grammar_,
                          .finished_recving = finished_recving_,
                          .finished_sending = finished_sending_,
                          .invalid_blocks = invalid_blocks_},
                         now);
  if (!result.ok()) return InCommand("update", result.status());
  now_ = now;
  if (kv_event_sink_ && !result->kv_events.empty()) kv_event_sink_(result->kv_events);
  // Before the drafts: the result's views live until the scheduler's next call.
  WriteResult(*scheduler_, *result, answer_);
  metrics_->RecordScheduler(result->stats);
  if (!result->outputs.empty()) {
    front_end_.Process(result->outputs, now, now, iteration_);
    metrics_->RecordIteration(iteration_);
  }
  metrics_->RecordLoras(front_end_.loras(), now);
  for (const TokenRow& row : draft_rows_) {
    // A request that ended has no next step: its drafts mean nothing (DRAFT-1).
    if (const auto request = scheduler_->Find(row.id)) {
      scheduler_->SetDraftTokens(*request, std::span(token_pool_).subspan(row.begin, row.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Abort(JsonFields& fields, Seconds now) {
  std::vector<std::string_view> ids;
  if (!fields.Has("ids") && fields.ok()) return Invalid("abort.ids: missing");
  if (absl::Status status = ReadIds("abort", "ids", fields, ids); !status.ok()) return status;
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  for (const std::string_view id : ids) {
    if (const auto request = scheduler_->Find(id)) front_end_.Forget(*request);
  }
  WriteAborted(*scheduler_, scheduler_->Abort(ids, now), answer_);
  return absl::OkStatus();
}

absl::Status ProtocolEngine::ResetPrefixCache(JsonFields& fields, Seconds now) {
  const bool running = fields.Bool("running", false);
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  const absl::StatusOr<bool> done = scheduler_->ResetPrefixCache(running, now);
  if (!done.ok()) {
    // The running requests are preempted by now, as in the reference (RST-2): this is no refusal.
    return absl::InternalError(absl::StrCat("RuntimeError: ", done.status().message()));
  }
  JsonWriter(answer_).BeginObject().Key("ok").Bool(*done).EndObject();
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Pause(JsonFields& fields, Seconds now) {
  const std::string_view name = fields.String("state");
  PauseState state = PauseState::kUnpaused;
  if (name == "paused_new") {
    state = PauseState::kPausedNew;
  } else if (name == "paused_all") {
    state = PauseState::kPausedAll;
  } else if (name != "unpaused") {
    fields.Fail("state", Shortened(name), "unpaused, paused_new or paused_all");
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  scheduler_->SetPauseState(state);
  answer_ = "{}";
  return absl::OkStatus();
}

absl::Status ProtocolEngine::State(JsonFields& fields, Seconds now) {
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  WriteState(*scheduler_, answer_);
  return absl::OkStatus();
}

absl::Status ProtocolEngine::Metrics(JsonFields& fields, Seconds now) {
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  now_ = now;
  WriteMetrics(*metrics_, answer_);
  return absl::OkStatus();
}

}  // namespace tally
