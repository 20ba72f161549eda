// The encoder cache of multimodal requests: which encoder outputs are kept, who needs them, what
// may be evicted.
//
// An encoder output is known by the hash of its input and takes one entry for each embedding.
#ifndef TALLY_ENGINE_CORE_ENCODER_CACHE_H_
#define TALLY_ENGINE_CORE_ENCODER_CACHE_H_

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/types.h"

namespace tally {

class EncoderCache {
 public:
  virtual ~EncoderCache() = default;

  // True, and `request` refers to it, when the output is cached (ENC-7).
  virtual bool Reference(std::string_view hash, RequestHandle request) = 0;
  // Whether an output of `embeddings` fits behind `pending` ones that are about to be allocated;
  // may evict others (ENC-5).
  virtual bool MakeRoom(std::int32_t embeddings, std::int32_t pending) = 0;
  // Allocates an output that MakeRoom found room for; `request` refers to it (ENC-8).
  virtual void Allocate(std::string_view hash, std::int32_t embeddings, RequestHandle request) = 0;
  // `request` needs the output no longer; unknown outputs are passed over (ENC-9).
  virtual void Release(std::string_view hash, std::int32_t embeddings, RequestHandle request) = 0;
  // Hashes that left the cache since the last call.
  virtual void TakeFreed(std::vector<std::string>& freed) = 0;
  // For tests: aborts unless the counts agree.
  virtual void CheckInvariants() const = 0;
};

// Outputs are shared by all requests with the same input (scheduler.md ENC-4 to 11). Invariant:
// free <= freeable <= size, and freeable - free is what the outputs take that no request refers to;
// these stay until room is needed and are then evicted, the one that lost its last reference first.
class SharedEncoderCache final : public EncoderCache {
 public:
  // `size` in embeddings.
  explicit SharedEncoderCache(std::int32_t size) : size_(size), free_(size), freeable_(size) {}

  bool Reference(std::string_view hash, RequestHandle request) override;
  bool MakeRoom(std::int32_t embeddings, std::int32_t pending) override;
  void Allocate(std::string_view hash, std::int32_t embeddings, RequestHandle request) override;
  void Release(std::string_view hash, std::int32_t embeddings, RequestHandle request) override;
  void TakeFreed(std::vector<std::string>& freed) override;
  void CheckInvariants() const override;

  std::int32_t free() const { return free_; }
  std::int32_t freeable() const { return freeable_; }

 private:
  struct Entry {
    std::int32_t embeddings = 0;
    std::vector<RequestHandle> references;
    std::list<std::string>::iterator unreferenced;  // its place, when there is no reference
  };

  std::int32_t size_;
  std::int32_t free_;
  std::int32_t freeable_;
  absl::flat_hash_map<std::string, Entry> entries_;
  std::list<std::string> unreferenced_;  // oldest first
  std::vector<std::string> evicted_;
};

// For encoder-decoder models the cache only bounds what is in use: nothing is found again, and what
// was allocated in one step is told as freed one step later (ENC-12).
class EncoderDecoderCache final : public EncoderCache {
 public:
  // `inflates`: every release gives room back, also one for an output that was released before
  // (BUG-17).
  EncoderDecoderCache(std::int32_t size, bool inflates) : free_(size), inflates_(inflates) {}

  bool Reference(std::string_view, RequestHandle) override { return false; }
  bool MakeRoom(std::int32_t embeddings, std::int32_t pending) override {
    return std::int64_t{embeddings} + pending <= free_;
  }
  void Allocate(std::string_view hash, std::int32_t embeddings, RequestHandle request) override;
  void Release(std::string_view hash, std::int32_t embeddings, RequestHandle request) override;
  void TakeFreed(std::vector<std::string>& freed) override;
  void CheckInvariants() const override {}

 private:
  std::int64_t free_;
  bool inflates_;
  std::vector<std::pair<std::string, RequestHandle>> held_;
  std::vector<std::string> allocated_;
  std::vector<std::string> to_free_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_ENCODER_CACHE_H_
