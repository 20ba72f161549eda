// How long the loads and stores of an offloading connector take, in virtual time: one link for each
// direction, transfers one after the other.
#ifndef TALLY_ENGINE_WORKLOAD_TRANSFER_TIMES_H_
#define TALLY_ENGINE_WORKLOAD_TRANSFER_TIMES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/types.h"
#include "engine/connector/offloading_connector.h"

namespace tally {

class TransferTimes {
 public:
  // `bytes_per_second` of the link, each way.
  TransferTimes(double bytes_per_block, double bytes_per_second)
      : seconds_per_block_(bytes_per_block / bytes_per_second) {}

  // A step that begins at `begin` and ends at `end` was planned: its loads start at once, its
  // stores when it is over. Answers when the stores that it must not overtake are over (0: none).
  Seconds Start(const OffloadingMetadata& metadata, Seconds begin, Seconds end);
  // These requests ended: their blocks are free when their stores are over.
  void Finish(const std::string& request);

  struct Reports {
    std::vector<std::string> finished_recving;
    std::vector<std::string> finished_sending;
  };
  // What is over by `now` and was not told before, in order of its end.
  Reports TakeReports(Seconds now);
  // When the next transfer ends that somebody waits for; nothing when there is none.
  std::optional<Seconds> NextEnd() const;

  std::int64_t loaded_blocks() const { return loaded_blocks_; }
  std::int64_t stored_blocks() const { return stored_blocks_; }

 private:
  const double seconds_per_block_;
  Seconds load_link_free_ = 0;
  Seconds store_link_free_ = 0;
  std::multimap<Seconds, std::string> loads_;             // by their end
  absl::flat_hash_map<std::string, Seconds> store_ends_;  // the last one of each request
  std::multimap<Seconds, std::string> sends_;             // of ended requests
  std::int64_t loaded_blocks_ = 0;
  std::int64_t stored_blocks_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_TRANSFER_TIMES_H_
