#include "engine/events/kv_event_encoding.h"

#include <msgpack.h>

#include <memory>
#include <optional>
#include <string_view>

namespace tally {
namespace {

class Packer {
 public:
  Packer() {
    msgpack_sbuffer_init(&buffer_);
    msgpack_packer_init(&packer_, &buffer_, msgpack_sbuffer_write);
  }
  ~Packer() { msgpack_sbuffer_destroy(&buffer_); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  void Array(std::size_t size) { msgpack_pack_array(&packer_, size); }
  void Nil() { msgpack_pack_nil(&packer_); }
  void Int(std::int64_t value) { msgpack_pack_int64(&packer_, value); }
  void Double(double value) { msgpack_pack_double(&packer_, value); }
  void Text(std::string_view text) {
    msgpack_pack_str(&packer_, text.size());
    msgpack_pack_str_body(&packer_, text.data(), text.size());
  }
  void TextOrNil(std::string_view text) { text.empty() ? Nil() : Text(text); }
  void Hash(std::string_view hash, WireHash form) {
    if (form == WireHash::kBytes) {
      msgpack_pack_bin(&packer_, hash.size());
      msgpack_pack_bin_body(&packer_, hash.data(), hash.size());
      return;
    }
    std::uint64_t value = 0;
    for (const char byte : hash.substr(hash.size() < 8 ? 0 : hash.size() - 8))
      value = value << 8 | static_cast<unsigned char>(byte);
    msgpack_pack_uint64(&packer_, value);
  }
  void Hashes(const std::vector<std::string>& hashes, WireHash form) {
    Array(hashes.size());
    for (const std::string& hash : hashes) Hash(hash, form);
  }
  std::string Take() const { return {buffer_.data, buffer_.size}; }

 private:
  msgpack_sbuffer buffer_;
  msgpack_packer packer_;
};

// Host memory has no KV cache groups.
void PackGroup(const KvEvent& event, Packer& packer) {
  if (event.medium == "GPU") {
    packer.Int(event.group);
  } else {
    packer.Nil();
  }
}

void PackExtraKeys(const KvEvent& event, Packer& packer) {
  if (event.extra_keys.empty()) return packer.Nil();
  packer.Array(event.extra_keys.size());
  for (const std::vector<KvEvent::Key>& keys : event.extra_keys) {
    if (keys.empty()) {
      packer.Nil();
      continue;
    }
    packer.Array(keys.size());
    for (const KvEvent::Key& key : keys) {
      if (key.offset) packer.Array(2);
      packer.Text(key.text);
      if (key.offset) packer.Int(*key.offset);
    }
  }
}

void Pack(const KvEvent& event, WireHash form, Packer& packer) {
  switch (event.kind) {
    case KvEvent::Kind::kCleared:
      packer.Array(1);
      packer.Text("AllBlocksCleared");
      return;
    case KvEvent::Kind::kRemoved:
      packer.Array(4);
      packer.Text("BlockRemoved");
      packer.Hashes(event.hashes, form);
      packer.Text(event.medium);
      PackGroup(event, packer);
      return;
    case KvEvent::Kind::kStored:
      packer.Array(10);
      packer.Text("BlockStored");
      packer.Hashes(event.hashes, form);
      if (event.parent) {
        packer.Hash(*event.parent, form);
      } else {
        packer.Nil();
      }
      packer.Array(event.tokens.size());
      for (const TokenId token : event.tokens) packer.Int(token);
      packer.Int(event.block_size);
      if (event.lora_id > 0) {
        packer.Int(event.lora_id);
      } else {
        packer.Nil();
      }
      packer.Text(event.medium);
      packer.TextOrNil(event.lora_name);
      PackExtraKeys(event, packer);
      PackGroup(event, packer);
      return;
  }
}

}  // namespace

std::string EncodeKvEventBatch(Seconds time, std::span<const KvEvent> events,
                               std::int32_t data_parallel_rank, WireHash hash) {
  Packer packer;
  packer.Array(3);
  packer.Double(time);
  packer.Array(events.size());
  for (const KvEvent& event : events) Pack(event, hash, packer);
  packer.Int(data_parallel_rank);
  return packer.Take();
}

}  // namespace tally
