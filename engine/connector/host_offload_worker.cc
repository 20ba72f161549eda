#include "engine/connector/host_offload_worker.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace tally {
namespace {

const OffloadingMetadata& Read(const ConnectorMetadata& metadata) {
  const auto* read = dynamic_cast<const OffloadingMetadata*>(&metadata);
  TALLY_CHECK(read != nullptr, "metadata of another connector");
  return *read;
}

}  // namespace

absl::Status HostOffloadWorker::RegisterKvCaches(Device& device, KvArena& arena,
                                                 DeviceStream& compute) {
  gpu_ = &arena;
  compute_ = &compute;
  if (options_.num_slots > 0) {
    auto host = device.AllocateHostArena(options_.num_slots,
                                         options_.blocks_per_slot * arena.block_bytes());
    if (!host.ok()) return host.status();
    host_ = *std::move(host);
  }
  for (Queue* queue : {&loads_, &stores_}) {
    auto stream = device.CreateStream();
    if (!stream.ok()) return stream.status();
    queue->stream = *std::move(stream);
  }
  return absl::OkStatus();
}

void HostOffloadWorker::HandlePreemptions(const ConnectorMetadata& metadata) {
  SubmitQueuedStores();
  const std::vector<std::string>& flushed = Read(metadata).flush;
  if (flushed.empty()) return;
  for (const Job& job : stores_.jobs) {
    // Jobs of one stream end in order, so the wait for one covers those before it.
    if (job.event != nullptr &&
        std::find(flushed.begin(), flushed.end(), job.transfer.request_id) != flushed.end()) {
      job.event->Wait().IgnoreError();  // a failure is looked at when the job is taken
    }
  }
}

void HostOffloadWorker::StartLoadKv(const ConnectorMetadata& metadata) {
  SubmitQueuedStores();
  const std::vector<Transfer>& loads = Read(metadata).load;
  if (loads.empty()) return;
  // Slots whose store failed are known by now: a slot is loaded only after its store was taken off
  // the queue or flushed.
  TakeEnded(stores_, [](const Job&, bool) {});
  const std::shared_ptr<DeviceEvent> computed = RecordCompute();
  for (const Transfer& load : loads) Submit(loads_, true, load, computed);
}

void HostOffloadWorker::WaitForSave(const ConnectorMetadata& metadata) {
  const std::vector<Transfer>& stores = Read(metadata).store;
  if (stores.empty()) return;
  const std::shared_ptr<DeviceEvent> computed = RecordCompute();
  for (const Transfer& store : stores) {
    ++pending_stores_[store.request_id];
    queued_stores_.push_back({store, computed});
  }
}

std::shared_ptr<DeviceEvent> HostOffloadWorker::RecordCompute() {
  auto event = compute_->Record();
  return event.ok() ? *std::move(event) : nullptr;
}

void HostOffloadWorker::SubmitQueuedStores() {
  for (QueuedStore& store : std::exchange(queued_stores_, {}))
    Submit(stores_, false, std::move(store.transfer), store.computed);
}

bool HostOffloadWorker::ReadsBadSlot(const Transfer& transfer) const {
  return std::any_of(transfer.host_slots.begin(), transfer.host_slots.end(),
                     [this](std::uint32_t slot) { return bad_slots_.contains(slot); });
}

void HostOffloadWorker::Submit(Queue& queue, bool load, Transfer transfer,
                               const std::shared_ptr<DeviceEvent>& computed) {
  Job job;
  job.submitted = std::chrono::steady_clock::now();
  ++queue.counters.transfers;
  ++queue.counters.queued;
  if (!load) bad_slots_.insert(transfer.host_slots.begin(), transfer.host_slots.end());
  if ((load && ReadsBadSlot(transfer)) || !Copy(queue, load, transfer, computed, job).ok())
    job.event = nullptr;
  job.transfer = std::move(transfer);
  queue.jobs.push_back(std::move(job));
}

absl::Status HostOffloadWorker::Copy(Queue& queue, bool load, const Transfer& transfer,
                                     const std::shared_ptr<DeviceEvent>& computed, Job& job) {
  if (computed == nullptr) return absl::InternalError("compute stream: no event");
  if (absl::Status status = queue.stream->WaitFor(computed); !status.ok()) return status;
  const std::vector<BlockCopy> copies = Copies(load, transfer);
  num_copies_ += static_cast<std::int64_t>(copies.size());
  const absl::Status copied =
      queue.stream->Copy(load ? CopyKind::kHostToDevice : CopyKind::kDeviceToHost, copies);
  if (!copied.ok()) return copied;
  auto event = queue.stream->Record();
  if (!event.ok()) {
    // The copy may be under way and nothing else tells its end.
    queue.stream->Synchronize().IgnoreError();
    return event.status();
  }
  job.event = *std::move(event);
  return absl::OkStatus();
}

std::vector<BlockCopy> HostOffloadWorker::Copies(bool load, const Transfer& transfer) const {
  const std::size_t bytes = gpu_->block_bytes();
  const std::size_t factor = options_.blocks_per_slot;
  const std::size_t first = transfer.first_gpu_block % factor;
  std::vector<BlockCopy> copies;
  for (std::size_t i = 0; i < transfer.gpu_blocks.size(); ++i) {
    const std::size_t place = first + i;
    TALLY_CHECK(place / factor < transfer.host_slots.size(), "block %zu, %zu slots", i,
                transfer.host_slots.size());
    std::byte* host = host_->block(transfer.host_slots[place / factor]) + place % factor * bytes;
    std::byte* gpu = gpu_->block(Index(transfer.gpu_blocks[i]));
    BlockCopy copy{gpu, host, bytes};
    if (load) copy = {host, gpu, bytes};
    if (!copies.empty() && copies.back().from + copies.back().bytes == copy.from &&
        copies.back().to + copies.back().bytes == copy.to) {
      copies.back().bytes += bytes;
    } else {
      copies.push_back(copy);
    }
  }
  return copies;
}

template <typename Ended>
void HostOffloadWorker::TakeEnded(Queue& queue, const Ended& ended) {
  while (!queue.jobs.empty()) {
    Job& front = queue.jobs.front();
    if (front.event != nullptr && !front.event->Done()) return;
    const bool ok = front.event != nullptr && front.event->Wait().ok();
    const Job job = std::move(front);
    queue.jobs.pop_front();
    --queue.counters.queued;
    queue.counters.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - job.submitted).count();
    if (ok) {
      queue.counters.bytes +=
          static_cast<std::int64_t>(job.transfer.gpu_blocks.size() * gpu_->block_bytes());
    } else {
      ++queue.counters.failures;
    }
    if (&queue == &stores_) {
      --pending_stores_[job.transfer.request_id];
      if (ok) {
        for (const std::uint32_t slot : job.transfer.host_slots) bad_slots_.erase(slot);
      }
    }
    ended(job, ok);
  }
}

FinishedTransfers HostOffloadWorker::GetFinished(std::span<const std::string> finished_requests) {
  FinishedTransfers done;
  TakeEnded(stores_, [](const Job&, bool) {});
  TakeEnded(loads_, [&](const Job& job, bool ok) {
    done.finished_recving.push_back(job.transfer.request_id);
    if (ok) return;
    done.invalid_blocks.insert(done.invalid_blocks.end(), job.transfer.gpu_blocks.begin(),
                               job.transfer.gpu_blocks.end());
  });
  for (const std::string& id : finished_requests) {
    if (pending_stores_.contains(id)) finished_with_pending_stores_.insert(id);
  }
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

TransferCounters HostOffloadWorker::counters() const {
  TransferCounters counters{{{"load", loads_.counters}, {"store", stores_.counters}}};
  counters.directions["store"].queued += static_cast<std::int64_t>(queued_stores_.size());
  return counters;
}

void HostOffloadWorker::Shutdown() {
  // Streams run what they were given before they end; the arena must outlive that.
  queued_stores_.clear();
  for (Queue* queue : {&loads_, &stores_}) {
    queue->stream.reset();
    queue->jobs.clear();
    queue->counters.queued = 0;
  }
  host_.reset();
}

}  // namespace tally
