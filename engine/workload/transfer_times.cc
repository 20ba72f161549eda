#include "engine/workload/transfer_times.h"

#include <algorithm>

namespace tally {

Seconds TransferTimes::Start(const OffloadingMetadata& metadata, Seconds begin, Seconds end) {
  const auto seconds = [this](const OffloadingMetadata::Transfer& transfer) {
    return seconds_per_block_ * static_cast<double>(transfer.gpu_blocks.size());
  };
  Seconds flushed = 0;
  for (const std::string& request : metadata.flush) {
    const auto store = store_ends_.find(request);
    if (store != store_ends_.end()) flushed = std::max(flushed, store->second);
  }
  for (const OffloadingMetadata::Transfer& load : metadata.load) {
    load_link_free_ = std::max(load_link_free_, begin) + seconds(load);
    loads_.emplace(load_link_free_, load.request_id);
    loaded_blocks_ += static_cast<std::int64_t>(load.gpu_blocks.size());
  }
  for (const OffloadingMetadata::Transfer& store : metadata.store) {
    store_link_free_ = std::max(store_link_free_, end) + seconds(store);
    store_ends_[store.request_id] = store_link_free_;
    stored_blocks_ += static_cast<std::int64_t>(store.gpu_blocks.size());
  }
  return flushed;
}

void TransferTimes::Finish(const std::string& request) {
  const auto store = store_ends_.find(request);
  if (store == store_ends_.end()) return;
  sends_.emplace(store->second, request);
  store_ends_.erase(store);
}

TransferTimes::Reports TransferTimes::TakeReports(Seconds now) {
  const auto take = [now](std::multimap<Seconds, std::string>& pending) {
    std::vector<std::string> over;
    while (!pending.empty() && pending.begin()->first <= now) {
      over.push_back(std::move(pending.begin()->second));
      pending.erase(pending.begin());
    }
    return over;
  };
  Reports reports;
  reports.finished_recving = take(loads_);
  reports.finished_sending = take(sends_);
  return reports;
}

std::optional<Seconds> TransferTimes::NextEnd() const {
  std::optional<Seconds> next;
  for (const auto* pending : {&loads_, &sends_}) {
    if (pending->empty()) continue;
    next = std::min(next.value_or(pending->begin()->first), pending->begin()->first);
  }
  return next;
}

}  // namespace tally
