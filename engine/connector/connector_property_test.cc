// Random commands on small schedulers with every connector, whose workers report late, twice, with
// faults and about nobody; what is asserted: engine/core/random_run.h.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/connector/connector_config.h"
#include "engine/core/random_run.h"

namespace tally {
namespace {

ConnectorConfig ArbitraryConnector() {
  using Type = ConnectorConfig::Type;
  ConnectorConfig scripted;
  ConnectorConfig nixl{.type = Type::kNixl};
  ConnectorConfig offloading{.type = Type::kOffloading};
  offloading.offloading = {
      .num_cpu_blocks = *rc::gen::element(2U, 6U, 40U),
      .block_size = *rc::gen::element(4, 8, 12),
      .eviction = *rc::gen::element(EvictionPolicy::kLru, EvictionPolicy::kArc)};
  ConnectorConfig multi{.type = Type::kMulti};
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return scripted;
    case 1:
      return nixl;
    case 2:
      return offloading;
    case 3:
      multi.children = {nixl, offloading};
      return multi;
    case 4:
      multi.children = {offloading, nixl};
      return multi;
    default:
      multi.children = {scripted, scripted};
      return multi;
  }
}

std::shared_ptr<const nlohmann::json> ArbitraryParams() {
  const auto script = [] {
    return nlohmann::json{{"held", *rc::gen::inRange(0, 40)},
                          {"async", *rc::gen::arbitrary<bool>()},
                          {"once", *rc::gen::arbitrary<bool>()},
                          {"save", *rc::gen::arbitrary<bool>()},
                          {"defer", *rc::gen::weightedElement<int>({{4, 0}, {1, 1}, {1, 3}})}};
  };
  nlohmann::json params;
  params["scripted"] = script();
  params["scripted0"] = script();
  params["scripted1"] = script();
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      params["do_remote_decode"] = true;
      break;
    case 1:
      params["do_remote_prefill"] = true;
      params["remote_block_ids"] = {{70, 71, 72, 73, 74, 75, 76, 77}};
      if (*rc::gen::inRange(0, 4) == 0) break;  // without saying where
      params["remote_engine_id"] = "p";
      params["remote_request_id"] = "r";
      params["remote_host"] = "h";
      params["remote_port"] = 1;
      break;
    default:
      break;
  }
  return std::make_shared<const nlohmann::json>(std::move(params));
}

RC_GTEST_PROP(ConnectorProperty, EveryRequestEndsAndEveryBlockComesBack, ()) {
  World world;
  EngineConfig& config = world.config;
  config = SchedulerHarness::SmallConfig(*rc::gen::inRange<std::uint32_t>(8, 20));
  config.kv.enable_prefix_caching = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  config.max_num_seqs = *rc::gen::element(1, 2, 4, 8);
  config.max_num_batched_tokens = *rc::gen::element(8, 16, 64);
  config.long_prefill_token_threshold = *rc::gen::element(0, 0, 5);
  config.policy = *rc::gen::element(SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority);
  config.scheduler_reserve_full_isl = *rc::gen::arbitrary<bool>();
  config.async_scheduling = *rc::gen::arbitrary<bool>();
  config.num_speculative_tokens = *rc::gen::element(0, 0, 2);
  config.use_eagle = config.num_speculative_tokens > 0 && *rc::gen::arbitrary<bool>();
  config.max_model_len = *rc::gen::element(24, 40, 256);
  config.load_failure_policy =
      *rc::gen::element(LoadFailurePolicy::kRecompute, LoadFailurePolicy::kFail);
  world.depth = config.async_scheduling ? *rc::gen::inRange(1, 3) : 1;
  world.sessions = *rc::gen::arbitrary<bool>();
  const ConnectorConfig connector = ArbitraryConnector();
  world.connector = [connector] { return CreateConnector(connector); };
  world.draw_params = ArbitraryParams;
  RandomRun run(world);
  const int commands = *rc::gen::inRange(0, 60);
  for (int i = 0; i < commands; ++i) run.Command();
  run.Drain();
}

}  // namespace
}  // namespace tally
