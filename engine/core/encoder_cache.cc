#include "engine/core/encoder_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "engine/base/check.h"

namespace tally {
namespace {

// Debian's Abseil looks a string key up by its own view type.
absl::string_view Key(std::string_view hash) { return {hash.data(), hash.size()}; }

}  // namespace

bool SharedEncoderCache::Reference(std::string_view hash, RequestHandle request) {
  const auto found = entries_.find(Key(hash));
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  if (entry.references.empty()) {
    unreferenced_.erase(entry.unreferenced);
    freeable_ -= entry.embeddings;
  }
  if (std::find(entry.references.begin(), entry.references.end(), request) ==
      entry.references.end()) {
    entry.references.push_back(request);
  }
  return true;
}

bool SharedEncoderCache::MakeRoom(std::int32_t embeddings, std::int32_t pending) {
  const std::int32_t needed = embeddings + pending;
  if (needed <= free_) return true;
  if (needed > freeable_) return false;
  while (needed > free_) {
    TALLY_CHECK(!unreferenced_.empty(), "%d freeable, %d free, nothing to evict", freeable_, free_);
    const auto oldest = entries_.find(unreferenced_.front());
    free_ += oldest->second.embeddings;
    entries_.erase(oldest);
    evicted_.push_back(std::move(unreferenced_.front()));
    unreferenced_.pop_front();
  }
  return true;
}

void SharedEncoderCache::Allocate(std::string_view hash, std::int32_t embeddings,
                                  RequestHandle request) {
  TALLY_CHECK(free_ >= embeddings && freeable_ >= embeddings, "%d embeddings, %d free", embeddings,
              free_);
  Entry& entry = entries_[std::string(hash)];
  entry.embeddings = embeddings;
  entry.references.push_back(request);
  free_ -= embeddings;
  freeable_ -= embeddings;
}

void SharedEncoderCache::Release(std::string_view hash, std::int32_t, RequestHandle request) {
  const auto found = entries_.find(Key(hash));
  if (found == entries_.end() || found->second.references.empty()) return;
  Entry& entry = found->second;
  std::erase(entry.references, request);
  if (!entry.references.empty()) return;
  entry.unreferenced = unreferenced_.insert(unreferenced_.end(), std::string(hash));
  freeable_ += entry.embeddings;
}

void SharedEncoderCache::TakeFreed(std::vector<std::string>& freed) {
  freed.clear();
  std::swap(freed, evicted_);
}

void SharedEncoderCache::CheckInvariants() const {
  std::int64_t held = 0;
  std::int64_t unreferenced = 0;
  for (const auto& [hash, entry] : entries_) {
    held += entry.embeddings;
    if (entry.references.empty()) unreferenced += entry.embeddings;
  }
  TALLY_CHECK(0 <= free_ && free_ <= freeable_ && freeable_ <= size_,
              "free %d, freeable %d, size %d", free_, freeable_, size_);
  TALLY_CHECK(held == size_ - free_, "entries hold %lld of %d, %d free",
              static_cast<long long>(held), size_, free_);
  TALLY_CHECK(unreferenced == freeable_ - free_, "unreferenced %lld",
              static_cast<long long>(unreferenced));
}

void EncoderDecoderCache::Allocate(std::string_view hash, std::int32_t embeddings,
                                   RequestHandle request) {
  free_ -= embeddings;
  allocated_.emplace_back(hash);
  if (!inflates_) held_.emplace_back(std::string(hash), request);
}

void EncoderDecoderCache::Release(std::string_view hash, std::int32_t embeddings,
                                  RequestHandle request) {
  if (!inflates_) {
    const auto found = std::find(held_.begin(), held_.end(), std::pair(std::string(hash), request));
    if (found == held_.end()) return;
    held_.erase(found);
  }
  free_ += embeddings;
}

void EncoderDecoderCache::TakeFreed(std::vector<std::string>& freed) {
  freed = std::exchange(to_free_, std::exchange(allocated_, {}));
}

}  // namespace tally
