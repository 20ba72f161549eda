#include "engine/events/kv_event_publisher.h"

#include <gtest/gtest.h>
#include <zmq.h>

#include <string>
#include <vector>

namespace tally {
namespace {

// Long enough for a busy machine; only a failing test waits for it.
constexpr int kPatience = 20'000;  // milliseconds

class Socket {
 public:
  Socket(void* context, int type, const std::string& endpoint)
      : socket_(zmq_socket(context, type)) {
    const int none = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof(none));
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &kPatience, sizeof(kPatience));
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0) << endpoint;
  }
  ~Socket() { zmq_close(socket_); }

  void Send(const std::string& frame, bool more = false) {
    EXPECT_GE(zmq_send(socket_, frame.data(), frame.size(), more ? ZMQ_SNDMORE : 0), 0);
  }
  void SetPatience(int milliseconds) {
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &milliseconds, sizeof(milliseconds));
  }
  // Empty when nothing comes.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      char buffer[4096];
      const int size = zmq_recv(socket_, buffer, sizeof(buffer), 0);
      if (size < 0) return {};
      frames.emplace_back(buffer, static_cast<std::size_t>(size));
      std::size_t length = sizeof(more);
      zmq_getsockopt(socket_, ZMQ_RCVMORE, &more, &length);
    }
    return frames;
  }

 private:
  void* socket_;
};

class KvEventPublisherTest : public testing::Test {
 protected:
  KvEventPublisherTest() : context_(zmq_ctx_new()) {}
  ~KvEventPublisherTest() override { zmq_ctx_term(context_); }

  static std::vector<KvEvent> Events() { return std::vector<KvEvent>(1); }  // cleared
  static std::string Number(std::uint64_t number) {
    std::string bytes(8, '\0');
    for (std::size_t i = 8; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number);
    return bytes;
  }
  static std::unique_ptr<KvEventPublisher> Create(KvEventPublisher::Options options) {
    auto created = KvEventPublisher::Create(std::move(options));
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }
  // Publishes until the subscriber, which may have joined late, gets something; answers that.
  static std::vector<std::string> Join(KvEventPublisher& publisher, Socket& subscriber) {
    subscriber.SetPatience(50);
    for (int i = 0; i < kPatience / 50; ++i) {
      publisher.Publish(1, Events());
      if (std::vector<std::string> frames = subscriber.Receive(); !frames.empty()) {
        subscriber.SetPatience(kPatience);
        return frames;
      }
    }
    return {};
  }

  void* context_;
};

TEST_F(KvEventPublisherTest, FramesAreTopicNumberAndPayload) {
  const auto publisher = Create({.endpoint = "tcp://127.0.0.1:*", .topic = "kv@engine"});
  Socket subscriber(context_, ZMQ_SUB, publisher->endpoint());
  std::vector<std::string> frames = Join(*publisher, subscriber);
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(frames[0], "kv@engine");
  EXPECT_EQ(frames[2], EncodeKvEventBatch(1, Events(), 0));
  std::string number = frames[1];
  ASSERT_EQ(number.size(), 8U);
  // Every further one follows the one before.
  for (int i = 0; i < 100; ++i) publisher->Publish(2, Events());
  std::uint64_t last =
      static_cast<unsigned char>(number[7]) + 256U * static_cast<unsigned char>(number[6]);
  for (std::uint64_t seen = 0; seen < 100;) {
    frames = subscriber.Receive();
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[1], Number(++last));
    if (frames[2] == EncodeKvEventBatch(2, Events(), 0)) ++seen;
  }
}

TEST_F(KvEventPublisherTest, ReplayRepeatsFromANumberOnAndEnds) {
  const auto publisher = Create({.endpoint = "tcp://127.0.0.1:*",
                                 .replay_endpoint = "tcp://127.0.0.1:*",
                                 .buffered_batches = 4});
  for (int i = 0; i < 6; ++i) publisher->Publish(i, Events());
  while (publisher->num_published() < 6) std::this_thread::yield();
  Socket client(context_, ZMQ_DEALER, publisher->replay_endpoint());
  client.Send("no request");  // without the empty frame: passed over
  client.Send("", true);
  client.Send(Number(3));
  for (std::uint64_t number = 3; number < 6; ++number) {
    const std::vector<std::string> wanted = {
        "", Number(number), EncodeKvEventBatch(static_cast<double>(number), Events(), 0)};
    EXPECT_EQ(client.Receive(), wanted);
  }
  const std::vector<std::string> end = {"", std::string(8, '\xFF'), ""};
  EXPECT_EQ(client.Receive(), end);
  // Of what came before the buffer's begin nothing is left.
  client.Send("", true);
  client.Send(Number(0));
  EXPECT_EQ(client.Receive()[1], Number(2));
}

TEST_F(KvEventPublisherTest, AFullQueueDropsAndCounts) {
  const auto publisher = Create({.endpoint = "tcp://127.0.0.1:*", .max_queue = 0});
  for (int i = 0; i < 10; ++i) publisher->Publish(1, Events());
  publisher->Publish(1, {});  // no batch
  EXPECT_EQ(publisher->num_dropped(), 10U);
  EXPECT_EQ(publisher->num_published(), 0U);
}

TEST_F(KvEventPublisherTest, ASubscriberThatDoesNotReadHoldsNobodyUp) {
  const auto publisher = Create({.endpoint = "tcp://127.0.0.1:*", .high_water_mark = 10});
  Socket subscriber(context_, ZMQ_SUB, publisher->endpoint());
  ASSERT_FALSE(Join(*publisher, subscriber).empty());
  std::vector<KvEvent> large(1);
  large[0].kind = KvEvent::Kind::kStored;
  large[0].hashes = {std::string(32, 'h')};
  large[0].tokens.assign(256, 7);
  for (int i = 0; i < 100'000; ++i) publisher->Publish(1, large);
  // All were taken over; the thread gets through them although nobody reads.
  for (int i = 0; i < kPatience && publisher->num_published() + publisher->num_dropped() < 100'000;
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(publisher->num_published() + publisher->num_dropped(), 100'000U);
}

TEST_F(KvEventPublisherTest, AnEndpointInUseIsNamed) {
  const auto publisher = Create({.endpoint = "tcp://127.0.0.1:*"});
  const auto second = KvEventPublisher::Create({.endpoint = publisher->endpoint()});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(publisher->endpoint()), absl::string_view::npos)
      << second.status();
  EXPECT_FALSE(KvEventPublisher::Create({.endpoint = "nonsense"}).ok());
}

TEST(EndpointOfRankTest, RanksHaveEndpointsOfTheirOwn) {
  EXPECT_EQ(*EndpointOfRank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(*EndpointOfRank("tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(*EndpointOfRank("inproc://cache", 2), "inproc://cache_dp2");
  EXPECT_FALSE(EndpointOfRank("tcp://*:*", 1).ok());
  EXPECT_FALSE(EndpointOfRank("tcp://*:65535", 1).ok());
  EXPECT_FALSE(EndpointOfRank("tcp", 1).ok());
}

}  // namespace
}  // namespace tally
