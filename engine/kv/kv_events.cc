#include "engine/kv/kv_events.h"

#include <utility>

namespace tally {

std::string KvEventLog::HashOf(const BlockHashChain& chain, std::size_t block,
                               std::int32_t block_size) const {
  const auto hashes = static_cast<std::size_t>(block_size / hash_block_size_);
  std::string joined;
  for (std::size_t i = block * hashes; i < (block + 1) * hashes; ++i) {
    joined.append(reinterpret_cast<const char*>(chain.digests[i].data()), chain.digests[i].size());
  }
  return joined;
}

void KvEventLog::Stored(RequestHandle request, std::uint32_t group, std::int32_t block_size,
                        std::span<const BlockId> table, std::size_t first, std::size_t end) {
  const BlockHashChain& chain = contents_.Hashes(request);
  const TokenSequence tokens = contents_.Tokens(request);
  const BlockExtraKeys extra = contents_.ExtraKeys(request);
  KvEvent event;
  event.kind = KvEvent::Kind::kStored;
  event.block_size = block_size;
  event.lora_id = contents_.LoraId(request);
  event.lora_name = extra.lora_name;
  event.group = group;
  if (first > 0) event.parent = HashOf(chain, first - 1, block_size);
  const auto size = static_cast<std::size_t>(block_size);
  for (std::size_t i = first * size; i < end * size; ++i) {
    event.tokens.push_back(i < tokens.prompt.size() ? tokens.prompt[i]
                                                    : tokens.output[i - tokens.prompt.size()]);
  }
  std::size_t item = 0;
  std::vector<ExtraKey> keys;
  for (std::size_t block = first; block < end; ++block) {
    if (table[block] == kNullBlock) continue;
    event.hashes.push_back(HashOf(chain, block, block_size));
    stored_[Index(table[block])] = {event.hashes.back(), group};
    keys.clear();
    AppendExtraKeys(extra, static_cast<std::int64_t>(block * size),
                    static_cast<std::int64_t>((block + 1) * size), item, keys);
    std::vector<KvEvent::Key>& told = event.extra_keys.emplace_back();
    for (const ExtraKey& key : keys) {
      told.push_back({std::string(key.text), key.kind == ExtraKey::Kind::kItem
                                                 ? std::optional(key.offset)
                                                 : std::nullopt});
    }
  }
  events_.push_back(std::move(event));
}

void KvEventLog::Removed(BlockId block) {
  KvEvent event;
  event.kind = KvEvent::Kind::kRemoved;
  event.hashes.push_back(std::move(stored_[Index(block)].hash));
  event.group = stored_[Index(block)].group;
  events_.push_back(std::move(event));
}

void KvEventLog::Cleared() { events_.emplace_back().kind = KvEvent::Kind::kCleared; }

void KvEventLog::Take(std::vector<KvEvent>& events) {
  events.clear();
  std::swap(events, events_);
}

}  // namespace tally
