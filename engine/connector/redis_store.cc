#include "engine/connector/redis_store.h"

#include <hiredis/hiredis.h>
#include <sys/time.h>
#include <xxhash.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/connector/block_header.h"

namespace tally {
namespace {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

timeval Time(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return {.tv_sec = static_cast<time_t>(count / 1000),
          .tv_usec = static_cast<suseconds_t>(count % 1000 * 1000)};
}

// Writing to a server that went away raises SIGPIPE, which would end the process: this thread does
// without it while it talks to Redis.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoBrokenPipe() {
    const timespec now{};
    while (sigtimedwait(&signal_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
};

void Append(redisContext* connection, std::span<const std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  redisAppendCommandArgv(connection, static_cast<int>(texts.size()), texts.data(), sizes.data());
}

// The next answer; null when the connection is of no use any more.
Reply NextReply(redisContext* connection) {
  void* reply = nullptr;
  if (redisGetReply(connection, &reply) != REDIS_OK) return nullptr;
  return Reply(static_cast<redisReply*>(reply));
}

absl::Status Lost(const redisContext* connection) {
  return absl::UnavailableError(
      absl::StrCat("redis: ", connection->err != 0 ? connection->errstr : "no answer"));
}

absl::Status Refused(const redisReply& reply) {
  return absl::UnavailableError(absl::StrCat("redis: ", reply.type == REDIS_REPLY_ERROR
                                                            ? std::string(reply.str, reply.len)
                                                            : "unexpected"));
}

}  // namespace

void RedisStore::Close::operator()(redisContext* connection) const { redisFree(connection); }

RedisStore::RedisStore(Options options)
    : options_(std::move(options)),
      prefix_(absl::StrCat(
          "kv:",
          absl::Hex(XXH3_64bits(options_.model.data(), options_.model.size()), absl::kZeroPad16),
          ":")) {}

RedisStore::~RedisStore() = default;

std::string RedisStore::NameOf(std::string_view key) const {
  return absl::StrCat(prefix_, std::string(key));
}

absl::StatusOr<RedisStore::Connection> RedisStore::Acquire() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Connection connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
    if (std::chrono::steady_clock::now() < retry_at_)
      return absl::UnavailableError("redis: the server could not be reached a moment ago");
  }
  const timeval timeout = Time(options_.connect_timeout);
  Connection connection(options_.unix_socket.empty()
                            ? redisConnectWithTimeout(options_.host.c_str(), options_.port, timeout)
                            : redisConnectUnixWithTimeout(options_.unix_socket.c_str(), timeout));
  if (connection == nullptr || connection->err != 0 ||
      redisSetTimeout(connection.get(), Time(options_.command_timeout)) != REDIS_OK) {
    Failed();
    return connection == nullptr ? absl::UnavailableError("redis: no memory")
                                 : Lost(connection.get());
  }
  return connection;
}

void RedisStore::Release(Connection connection) const {
  // After an error nobody knows which answer belongs to which command.
  if (connection->err != 0) return Failed();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));
}

void RedisStore::Failed() const {
  const std::lock_guard lock(mutex_);
  idle_.clear();  // of the same server
  retry_at_ = std::chrono::steady_clock::now() + options_.retry_after;
}

std::size_t RedisStore::HeldPrefix(std::span<const std::string> keys) const {
  const NoBrokenPipe guard;
  absl::StatusOr<Connection> connection = Acquire();
  if (!connection.ok()) return 0;
  for (const std::string& key : keys) {
    const std::string name = NameOf(key);
    const std::string_view words[] = {"EXISTS", name};
    Append(connection->get(), words);
  }
  std::size_t held = 0;
  bool all = true;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Reply reply = NextReply(connection->get());
    if (reply == nullptr) break;
    all = all && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (all) ++held;
  }
  Release(*std::move(connection));
  return held;
}

void RedisStore::Read(std::span<BlockRead> reads) const {
  const NoBrokenPipe guard;
  absl::StatusOr<Connection> connection = Acquire();
  if (!connection.ok()) {
    for (BlockRead& read : reads) read.status = connection.status();
    return;
  }
  for (const BlockRead& read : reads) {
    const std::string name = NameOf(read.key);
    const std::string_view words[] = {"GET", name};
    Append(connection->get(), words);
  }
  for (BlockRead& read : reads) {
    const Reply reply = NextReply(connection->get());
    BlockHeader header;
    if (reply == nullptr) {
      read.status = Lost(connection->get());
    } else if (reply->type == REDIS_REPLY_NIL) {
      read.status = absl::NotFoundError(absl::StrCat("redis: ", NameOf(read.key)));
    } else if (reply->type != REDIS_REPLY_STRING) {
      // A value that is no string cannot be ours.
      read.status = std::string_view(reply->str, reply->len).substr(0, 9) == "WRONGTYPE"
                        ? absl::DataLossError("redis: not a string")
                        : Refused(*reply);
    } else if (reply->len != sizeof(header) + read.block.size()) {
      read.status = absl::DataLossError(absl::StrCat("redis: ", reply->len, " bytes"));
    } else {
      std::memcpy(&header, reply->str, sizeof(header));
      std::memcpy(read.block.data(), reply->str + sizeof(header), read.block.size());
      const bool fits = header.Fits(options_.model, read.key, read.block.size()) &&
                        header.FitsPayload(read.block);
      read.status = fits ? absl::OkStatus() : absl::DataLossError("redis: checksum");
    }
  }
  Release(*std::move(connection));
}

void RedisStore::Write(std::span<BlockWrite> writes) const {
  if (options_.block_bytes + sizeof(BlockHeader) > options_.max_value_bytes) {
    for (BlockWrite& write : writes) {
      write.status = absl::ResourceExhaustedError(
          absl::StrCat("redis: a block of ", options_.block_bytes, " bytes, wanted at most ",
                       options_.max_value_bytes, " with its header"));
    }
    return;
  }
  const NoBrokenPipe guard;
  absl::StatusOr<Connection> connection = Acquire();
  if (!connection.ok()) {
    for (BlockWrite& write : writes) write.status = connection.status();
    return;
  }
  const std::string seconds = absl::StrCat(options_.time_to_live.count());
  std::string value;
  for (const BlockWrite& write : writes) {
    const BlockHeader header = BlockHeader::Of(options_.model, write.key, write.block);
    value.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    value.append(reinterpret_cast<const char*>(write.block.data()), write.block.size());
    const std::string name = NameOf(write.key);
    // What is there is the same.
    const std::string_view words[] = {"SET", name, value, "NX", "EX", seconds};
    const bool expires = options_.time_to_live.count() > 0;
    Append(connection->get(), std::span(words).first(expires ? 6 : 4));
  }
  for (BlockWrite& write : writes) {
    const Reply reply = NextReply(connection->get());
    if (reply == nullptr) {
      write.status = Lost(connection->get());
    } else if (reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_NIL) {
      write.status = absl::OkStatus();
    } else {
      write.status = Refused(*reply);
    }
  }
  Release(*std::move(connection));
}

void RedisStore::Remove(std::string_view key) const {
  const NoBrokenPipe guard;
  absl::StatusOr<Connection> connection = Acquire();
  if (!connection.ok()) return;
  const std::string name = NameOf(key);
  const std::string_view words[] = {"DEL", name};
  Append(connection->get(), words);
  NextReply(connection->get());
  Release(*std::move(connection));
}

}  // namespace tally
