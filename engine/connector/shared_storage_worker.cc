#include "engine/connector/shared_storage_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tally {
namespace {

const SharedStorageMetadata& Read(const ConnectorMetadata& metadata) {
  const auto* read = dynamic_cast<const SharedStorageMetadata*>(&metadata);
  TALLY_CHECK(read != nullptr, "metadata of another connector");
  return *read;
}

}  // namespace

absl::Status SharedStorageWorker::RegisterKvCaches(Device& device, KvArena& arena,
                                                   DeviceStream& compute) {
  if (store_->block_bytes() != arena.block_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("block_bytes: ", store_->block_bytes(),
                                                   ", wanted the arena's ", arena.block_bytes()));
  }
  gpu_ = &arena;
  compute_ = &compute;
  for (Direction* direction : {&loads_, &stores_}) {
    auto staging = device.AllocateHostArena(options_.staging_blocks, arena.block_bytes());
    if (!staging.ok()) return staging.status();
    direction->staging = *std::move(staging);
    auto stream = device.CreateStream();
    if (!stream.ok()) return stream.status();
    direction->stream = *std::move(stream);
    for (std::uint32_t i = options_.staging_blocks; i-- > 0;) direction->free.push_back(i);
  }
  return absl::OkStatus();
}

void SharedStorageWorker::HandlePreemptions(const ConnectorMetadata& metadata) {
  Advance();
  const std::vector<std::string>& ids = Read(metadata).flush;
  if (ids.empty()) return;
  const absl::flat_hash_set<std::string> flushed(ids.begin(), ids.end());
  DropWaitingStores(flushed);
  for (const CopyBatch& copy : stores_.copies) {
    const bool wanted = std::any_of(copy.pieces.begin(), copy.pieces.end(), [&](const auto& piece) {
      return flushed.contains(piece->job->request_id);
    });
    if (wanted) copy.event->Wait().IgnoreError();  // a failure is looked at when it is taken
  }
}

void SharedStorageWorker::StartLoadKv(const ConnectorMetadata& metadata) {
  for (const SharedStorageMetadata::Transfer& load : Read(metadata).load) {
    auto job = std::make_shared<Job>();
    job->request_id = load.request_id;
    job->begun = Clock::now();
    job->num_left = load.keys.size();
    ++loads_.counters.transfers;
    ++loads_.counters.queued;
    for (std::size_t i = 0; i < load.keys.size(); ++i) {
      auto piece = std::make_shared<Piece>();
      piece->job = job;
      piece->block = load.gpu_blocks[i];
      piece->key = load.keys[i];
      loads_.waiting.push_back(std::move(piece));
    }
    if (load.keys.empty()) {
      finished_.finished_recving.push_back(load.request_id);
      EndJob(loads_, *job);
    }
  }
  Advance();
}

void SharedStorageWorker::WaitForSave(const ConnectorMetadata& metadata) {
  const std::vector<SharedStorageMetadata::Transfer>& stores = Read(metadata).store;
  if (stores.empty()) return;
  auto recorded = compute_->Record();
  const std::shared_ptr<DeviceEvent> computed = recorded.ok() ? *std::move(recorded) : nullptr;
  for (const SharedStorageMetadata::Transfer& store : stores) {
    auto job = std::make_shared<Job>();
    job->request_id = store.request_id;
    job->begun = Clock::now();
    job->num_left = job->num_on_gpu = store.keys.size();
    ++stores_.counters.transfers;
    ++stores_.counters.queued;
    ++pending_stores_[store.request_id];
    for (std::size_t i = 0; i < store.keys.size(); ++i) {
      auto piece = std::make_shared<Piece>();
      piece->job = job;
      piece->block = store.gpu_blocks[i];
      piece->key = store.keys[i];
      piece->computed = computed;
      stores_.waiting.push_back(std::move(piece));
    }
  }
}

FinishedTransfers SharedStorageWorker::GetFinished(std::span<const std::string> finished_requests) {
  Advance();
  for (const std::string& id : finished_requests) {
    if (pending_stores_.contains(id)) finished_with_pending_stores_.insert(id);
  }
  FinishedTransfers done = std::exchange(finished_, {});
  for (const std::string& id : finished_with_pending_stores_) {
    if (pending_stores_.at(id) == 0) done.finished_sending.push_back(id);
  }
  std::sort(done.finished_sending.begin(), done.finished_sending.end());
  for (const std::string& id : done.finished_sending) {
    finished_with_pending_stores_.erase(id);
    pending_stores_.erase(id);
  }
  return done;
}

void SharedStorageWorker::Advance() {
  AdvanceLoads();
  AdvanceStores();
}

void SharedStorageWorker::AdvanceLoads() {
  for (const CopyBatch& copy : std::exchange(loads_.copies, {})) {
    if (!copy.event->Done()) {
      loads_.copies.push_back(copy);
      continue;
    }
    const bool ok = copy.event->Wait().ok();
    for (const auto& piece : copy.pieces) EndLoad(piece, ok);
  }
  Batch read;
  for (const auto& piece : TakeDone(loads_)) {
    if (piece->abandoned) {
      loads_.free.push_back(piece->staging);
    } else if (piece->status.ok()) {
      read.push_back(piece);
    } else {
      EndLoad(piece, false);
    }
  }
  if (!read.empty()) {
    auto recorded = compute_->Record();
    Copy(loads_, true, std::move(read), recorded.ok() ? *std::move(recorded) : nullptr);
  }
  GiveUpLateLoads();
  Batch batch;
  while (!loads_.waiting.empty() && !loads_.free.empty()) {
    auto piece = std::move(loads_.waiting.front());
    loads_.waiting.pop_front();
    piece->staging = loads_.free.back();
    loads_.free.pop_back();
    batch.push_back(std::move(piece));
    if (batch.size() == options_.blocks_per_job) SubmitReads(std::exchange(batch, {}));
  }
  if (!batch.empty()) SubmitReads(std::move(batch));
}

void SharedStorageWorker::GiveUpLateLoads() {
  const auto late = [oldest = Clock::now() - options_.load_timeout](const auto& piece) {
    return piece->job->begun < oldest;
  };
  while (!loads_.waiting.empty() && late(loads_.waiting.front())) {
    const auto piece = std::move(loads_.waiting.front());
    loads_.waiting.pop_front();
    piece->abandoned = true;
    EndLoad(piece, false);
  }
  std::erase_if(loads_.in_io, [&](const auto& piece) {
    if (!late(piece)) return false;
    // The thread may still write to the staging block: that is free when it is done.
    piece->abandoned = true;
    EndLoad(piece, false);
    return true;
  });
}

void SharedStorageWorker::AdvanceStores() {
  for (const auto& piece : TakeDone(stores_)) EndStore(piece, piece->status.ok());
  Batch copied = TakeCopied(stores_);
  if (!copied.empty()) SubmitWrites(std::move(copied));
  // Pieces of one step wait for one event; a batch waits for that of its last piece, which is the
  // newest.
  Batch batch;
  while (!stores_.waiting.empty() && !stores_.free.empty()) {
    auto piece = std::move(stores_.waiting.front());
    stores_.waiting.pop_front();
    piece->staging = stores_.free.back();
    stores_.free.pop_back();
    batch.push_back(std::move(piece));
  }
  if (!batch.empty()) {
    const std::shared_ptr<DeviceEvent> computed = batch.back()->computed;
    Copy(stores_, false, std::move(batch), computed);
  }
  const auto oldest = Clock::now() - options_.store_timeout;
  absl::flat_hash_set<std::string> late;
  for (const auto& piece : stores_.waiting) {
    if (piece->job->begun < oldest) late.insert(piece->job->request_id);
  }
  if (!late.empty()) DropWaitingStores(late);
}

void SharedStorageWorker::DropWaitingStores(const absl::flat_hash_set<std::string>& requests) {
  std::deque<std::shared_ptr<Piece>> kept;
  for (const auto& piece : std::exchange(stores_.waiting, {})) {
    if (!requests.contains(piece->job->request_id)) {
      kept.push_back(piece);
      continue;
    }
    LeaveGpu(piece);
    piece->abandoned = true;  // it has no staging block
    EndStore(piece, false);
  }
  stores_.waiting.swap(kept);
}

void SharedStorageWorker::Copy(Direction& direction, bool load, Batch pieces,
                               const std::shared_ptr<DeviceEvent>& computed) {
  std::vector<BlockCopy> copies;
  for (const auto& piece : pieces) {
    std::byte* gpu = gpu_->block(Index(piece->block));
    std::byte* staging = direction.staging->block(piece->staging);
    BlockCopy copy{gpu, staging, gpu_->block_bytes()};
    if (load) copy = {staging, gpu, gpu_->block_bytes()};
    if (!copies.empty() && copies.back().from + copies.back().bytes == copy.from &&
        copies.back().to + copies.back().bytes == copy.to) {
      copies.back().bytes += copy.bytes;
    } else {
      copies.push_back(copy);
    }
  }
  const CopyKind kind = load ? CopyKind::kHostToDevice : CopyKind::kDeviceToHost;
  if (computed != nullptr && direction.stream->WaitFor(computed).ok() &&
      direction.stream->Copy(kind, copies).ok()) {
    auto event = direction.stream->Record();
    if (event.ok()) {
      direction.copies.push_back({std::move(pieces), *std::move(event)});
      return;
    }
    direction.stream->Synchronize().IgnoreError();  // nothing else tells the copy's end
  }
  for (const auto& piece : pieces) {
    if (load) {
      EndLoad(piece, false);
    } else {
      LeaveGpu(piece);
      EndStore(piece, false);
    }
  }
}

SharedStorageWorker::Batch SharedStorageWorker::TakeCopied(Direction& direction) {
  Batch copied;
  while (!direction.copies.empty() && direction.copies.front().event->Done()) {
    const CopyBatch copy = std::move(direction.copies.front());
    direction.copies.pop_front();
    const bool ok = copy.event->Wait().ok();
    for (const auto& piece : copy.pieces) {
      LeaveGpu(piece);
      if (ok) {
        copied.push_back(piece);
      } else {
        EndStore(piece, false);
      }
    }
  }
  return copied;
}

void SharedStorageWorker::SubmitReads(Batch pieces) {
  loads_.in_io.insert(loads_.in_io.end(), pieces.begin(), pieces.end());
  io_.Submit([this, pieces = std::move(pieces)] {
    std::vector<BlockRead> reads;
    for (const auto& piece : pieces) {
      reads.push_back(
          {.key = piece->key,
           .block = {loads_.staging->block(piece->staging), loads_.staging->block_bytes()},
           .status = absl::OkStatus()});
    }
    store_->Read(reads);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      // Nobody can use it; whoever computes the block stores it again.
      if (absl::IsDataLoss(reads[i].status)) store_->Remove(pieces[i]->key);
      const std::lock_guard lock(loads_.mutex);
      pieces[i]->status = std::move(reads[i].status);
      loads_.done.push_back(pieces[i]);
    }
  });
}

void SharedStorageWorker::SubmitWrites(Batch pieces) {
  for (std::size_t begin = 0; begin < pieces.size(); begin += options_.blocks_per_job) {
    const std::size_t end = std::min(pieces.size(), begin + options_.blocks_per_job);
    Batch part(pieces.begin() + static_cast<std::ptrdiff_t>(begin),
               pieces.begin() + static_cast<std::ptrdiff_t>(end));
    stores_.in_io.insert(stores_.in_io.end(), part.begin(), part.end());
    io_.Submit([this, part = std::move(part)] {
      std::vector<BlockWrite> writes;
      for (const auto& piece : part) {
        writes.push_back(
            {.key = piece->key,
             .block = {stores_.staging->block(piece->staging), stores_.staging->block_bytes()},
             .status = absl::OkStatus()});
      }
      store_->Write(writes);
      for (std::size_t i = 0; i < part.size(); ++i) {
        written_since_trim_ += stores_.staging->block_bytes();
        const std::lock_guard lock(stores_.mutex);
        part[i]->status = std::move(writes[i].status);
        stores_.done.push_back(part[i]);
      }
      const std::uint64_t interval = store_->trim_interval();
      if (interval > 0 && written_since_trim_ > interval) {
        written_since_trim_ = 0;
        store_->Trim();
      }
    });
  }
}

SharedStorageWorker::Batch SharedStorageWorker::TakeDone(Direction& direction) {
  Batch done;
  {
    const std::lock_guard lock(direction.mutex);
    done.swap(direction.done);
  }
  if (done.empty()) return done;
  const absl::flat_hash_set<std::shared_ptr<Piece>> ended(done.begin(), done.end());
  std::erase_if(direction.in_io, [&](const auto& piece) { return ended.contains(piece); });
  return done;
}

void SharedStorageWorker::EndLoad(const std::shared_ptr<Piece>& piece, bool ok) {
  Job& job = *piece->job;
  if (!piece->abandoned) loads_.free.push_back(piece->staging);
  if (ok) {
    ++job.num_done;
  } else {
    job.failed = true;
    job.invalid.push_back(piece->block);
  }
  if (--job.num_left > 0) return;
  finished_.finished_recving.push_back(job.request_id);
  finished_.invalid_blocks.insert(finished_.invalid_blocks.end(), job.invalid.begin(),
                                  job.invalid.end());
  EndJob(loads_, job);
}

void SharedStorageWorker::LeaveGpu(const std::shared_ptr<Piece>& piece) {
  if (--piece->job->num_on_gpu == 0) --pending_stores_.at(piece->job->request_id);
}

void SharedStorageWorker::EndStore(const std::shared_ptr<Piece>& piece, bool ok) {
  Job& job = *piece->job;
  if (!piece->abandoned) stores_.free.push_back(piece->staging);
  if (ok) {
    ++job.num_done;
  } else {
    job.failed = true;
  }
  if (--job.num_left == 0) EndJob(stores_, job);
}

void SharedStorageWorker::EndJob(Direction& direction, const Job& job) {
  --direction.counters.queued;
  direction.counters.bytes += job.num_done * static_cast<std::int64_t>(gpu_->block_bytes());
  direction.counters.seconds += std::chrono::duration<double>(Clock::now() - job.begun).count();
  if (job.failed) ++direction.counters.failures;
}

TransferCounters SharedStorageWorker::counters() const {
  return {{{"load", loads_.counters}, {"store", stores_.counters}}};
}

void SharedStorageWorker::Shutdown() {
  io_.Shutdown();  // threads use the staging blocks
  for (Direction* direction : {&loads_, &stores_}) {
    direction->stream.reset();  // runs what it was given
    direction->waiting.clear();
    direction->in_io.clear();
    direction->copies.clear();
    direction->done.clear();
    direction->counters.queued = 0;
    direction->staging.reset();
  }
}

}  // namespace tally
