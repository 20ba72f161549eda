// KV events on the wire, as vLLM writes them (kv_cache.md EVT-4 to EVT-6): a batch is the msgpack
// array [time, [event...], data parallel rank], an event an array of its type's name and its
// fields.
#ifndef TALLY_ENGINE_EVENTS_KV_EVENT_ENCODING_H_
#define TALLY_ENGINE_EVENTS_KV_EVENT_ENCODING_H_

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/types.h"
#include "engine/kv/kv_events.h"

namespace tally {

// How a block hash is written: as the unsigned integer of its last eight bytes, vLLM's default, or
// whole.
enum class WireHash : std::uint8_t { kInteger, kBytes };

// `time` in seconds since 1970.
std::string EncodeKvEventBatch(Seconds time, std::span<const KvEvent> events,
                               std::int32_t data_parallel_rank, WireHash hash = WireHash::kInteger);

}  // namespace tally

#endif  // TALLY_ENGINE_EVENTS_KV_EVENT_ENCODING_H_
