#include "engine/events/kv_event_publisher.h"

#include <zmq.h>

#include <array>
#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// How long a replay request may wait while nothing is published.
constexpr std::chrono::milliseconds kReplayPoll{20};
constexpr std::chrono::seconds kDrainTime{1};
constexpr int kLingerMilliseconds = 500;
constexpr std::uint64_t kEndOfReplay = ~std::uint64_t{0};

std::array<unsigned char, 8> BigEndian(std::uint64_t value) {
  std::array<unsigned char, 8> bytes;
  for (std::size_t i = bytes.size(); i-- > 0; value >>= 8)
    bytes[i] = static_cast<unsigned char>(value);
  return bytes;
}

bool SendFrame(void* socket, const void* data, std::size_t size, bool more) {
  return zmq_send(socket, data, size, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

// The frames of one message; none when no message is there.
std::vector<std::string> ReceiveMessage(void* socket) {
  std::vector<std::string> frames;
  for (;;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&frame);
      return frames;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    const bool more = zmq_msg_more(&frame) != 0;
    zmq_msg_close(&frame);
    if (!more) return frames;
  }
}

}  // namespace

absl::StatusOr<std::string> EndpointOfRank(const std::string& endpoint, std::int32_t rank) {
  if (rank == 0 || endpoint.empty()) return endpoint;
  if (endpoint.rfind("inproc://", 0) == 0 || endpoint.rfind("ipc://", 0) == 0)
    return absl::StrCat(endpoint, "_dp", rank);
  const std::size_t colon = endpoint.rfind(':');
  int port = 0;
  const char* begin = endpoint.data() + (colon == std::string::npos ? 0 : colon + 1);
  const char* end = endpoint.data() + endpoint.size();
  const auto parsed = std::from_chars(begin, end, port);
  if (endpoint.rfind("tcp://", 0) != 0 || parsed.ec != std::errc() || parsed.ptr != end ||
      port + rank > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "endpoint: ", endpoint, ", wanted a port that rank ", rank, " can be added to"));
  }
  return absl::StrCat(endpoint.substr(0, colon + 1), port + rank);
}

absl::StatusOr<std::unique_ptr<KvEventPublisher>> KvEventPublisher::Create(Options options) {
  std::unique_ptr<KvEventPublisher> publisher(new KvEventPublisher(std::move(options)));
  if (absl::Status status = publisher->Open(); !status.ok()) return status;
  publisher->thread_ = std::thread([p = publisher.get()] { p->Run(); });
  return publisher;
}

absl::Status KvEventPublisher::Open() {
  context_ = zmq_ctx_new();
  if (absl::Status status =
          Bind(ZMQ_PUB, options_.endpoint, options_.high_water_mark, publish_socket_, endpoint_);
      !status.ok()) {
    return status;
  }
  if (options_.replay_endpoint.empty()) return absl::OkStatus();
  // A replay must not lose what it repeats.
  return Bind(ZMQ_ROUTER, options_.replay_endpoint, 0, replay_socket_, replay_endpoint_);
}

absl::Status KvEventPublisher::Bind(int type, std::string endpoint, int high_water_mark,
                                    void*& socket, std::string& bound) {
  const absl::StatusOr<std::string> of_rank = EndpointOfRank(endpoint, options_.data_parallel_rank);
  if (!of_rank.ok()) return of_rank.status();
  socket = zmq_socket(context_, type);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &high_water_mark, sizeof(high_water_mark));
  zmq_setsockopt(socket, ZMQ_LINGER, &kLingerMilliseconds, sizeof(kLingerMilliseconds));
  if (zmq_bind(socket, of_rank->c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("endpoint: ", *of_rank, ", cannot be bound: ", zmq_strerror(zmq_errno())));
  }
  char text[256];
  std::size_t size = sizeof(text);
  bound =
      zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, text, &size) == 0 ? std::string(text) : *of_rank;
  return absl::OkStatus();
}

KvEventPublisher::~KvEventPublisher() {
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  if (publish_socket_ != nullptr) zmq_close(publish_socket_);
  if (replay_socket_ != nullptr) zmq_close(replay_socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
}

void KvEventPublisher::Publish(Seconds time, std::span<const KvEvent> events) {
  if (events.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::uint64_t number = next_number_++;
    if (queue_.size() >= options_.max_queue) {
      num_dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    queue_.push_back({number, time, {events.begin(), events.end()}});
  }
  wake_.notify_one();
}

void KvEventPublisher::Run() {
  auto deadline = std::chrono::steady_clock::time_point::max();
  for (;;) {
    if (replay_socket_ != nullptr) AnswerReplays();
    Batch batch;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, kReplayPoll, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_ && deadline == std::chrono::steady_clock::time_point::max())
        deadline = std::chrono::steady_clock::now() + kDrainTime;
      if (queue_.empty() || std::chrono::steady_clock::now() >= deadline) {
        if (stopping_) return;
        continue;
      }
      batch = std::move(queue_.front());
      queue_.pop_front();
    }
    Send(std::move(batch));
  }
}

void KvEventPublisher::Send(Batch batch) {
  std::string payload =
      EncodeKvEventBatch(batch.time, batch.events, options_.data_parallel_rank, options_.hash);
  const std::array<unsigned char, 8> number = BigEndian(batch.number);
  // A PUB socket never blocks: it drops for subscribers that are behind.
  if (SendFrame(publish_socket_, options_.topic.data(), options_.topic.size(), true) &&
      SendFrame(publish_socket_, number.data(), number.size(), true) &&
      SendFrame(publish_socket_, payload.data(), payload.size(), false)) {
    num_published_.fetch_add(1, std::memory_order_relaxed);
  } else {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
  }
  if (options_.buffered_batches == 0) return;
  if (sent_.size() == options_.buffered_batches) sent_.pop_front();
  sent_.push_back({batch.number, std::move(payload)});
}

void KvEventPublisher::AnswerReplays() {
  for (;;) {
    // [client, empty, number]; anything else is no request.
    const std::vector<std::string> frames = ReceiveMessage(replay_socket_);
    if (frames.empty()) return;
    if (frames.size() != 3 || frames[2].size() > 8) continue;
    std::uint64_t first = 0;
    for (const char byte : frames[2]) first = first << 8 | static_cast<unsigned char>(byte);
    const auto answer = [&](std::uint64_t number, std::string_view payload) {
      const std::array<unsigned char, 8> bytes = BigEndian(number);
      return SendFrame(replay_socket_, frames[0].data(), frames[0].size(), true) &&
             SendFrame(replay_socket_, "", 0, true) &&
             SendFrame(replay_socket_, bytes.data(), bytes.size(), true) &&
             SendFrame(replay_socket_, payload.data(), payload.size(), false);
    };
    for (const Sent& sent : sent_) {
      if (sent.number >= first && !answer(sent.number, sent.payload)) break;
    }
    answer(kEndOfReplay, "");
  }
}

}  // namespace tally
