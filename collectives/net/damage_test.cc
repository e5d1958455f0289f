// Bytes that a network damages between two ranks. The checksums of TCP miss about one damaged packet of 65536, and
// routers damage packets after they have checked them. MSLUA_TEST_DAMAGES: how many bytes, 150 by default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "collectives/backends/native/testing.h"
#include "core/base/clock.h"

namespace mslua {
namespace {

enum class Damage { kFlip, kRepeat, kCut };

// Carries the bytes of one connection to `to`, both ways, and damages one of them.
class Proxy {
 public:
  explicit Proxy(Endpoint to) : listener_(*ListenTcp({"127.0.0.1", 0})) {
    endpoint = *LocalEndpoint(listener_);
    thread_ = std::thread([this, to] {
      if (PollFor(listener_, POLLIN, MonotonicNow() + absl::Seconds(20)).ok()) {
        Carry(Fd(accept(listener_.get(), nullptr, nullptr)), *ConnectTcp(to, MonotonicNow() + absl::Seconds(20)));
      }
    });
  }
  ~Proxy() {
    over_ = true;
    thread_.join();
  }

  // The next byte but `skip` of those that the first (0) or the second end of the connection sends.
  void Arm(int from, int64_t skip, Damage damage, int bit) {
    damage_ = damage;
    bit_ = bit;
    from_ = from;
    left_ = skip;
  }
  bool done() const { return left_ < 0; }

  Endpoint endpoint;

 private:
  void Carry(Fd first, Fd second) {
    const Fd ends[2] = {std::move(first), std::move(second)};
    while (!over_) {
      pollfd entries[2] = {{ends[0].get(), POLLIN, 0}, {ends[1].get(), POLLIN, 0}};
      poll(entries, 2, 10);
      for (int i = 0; i < 2; ++i) {
        if (entries[i].revents == 0) continue;
        char bytes[4096];
        const ssize_t got = recv(ends[i].get(), bytes, sizeof bytes, 0);
        std::string carried(bytes, std::max<ssize_t>(got, 0));
        if (from_ == i && left_ >= 0) Hit(&carried);
        if (got <= 0 || !SendAll(ends[1 - i], carried, MonotonicNow() + absl::Seconds(20)).ok()) return;
      }
    }
  }
  void Hit(std::string* bytes) {
    const int64_t at = left_;
    left_ = at - static_cast<int64_t>(bytes->size());
    if (left_ >= 0) return;
    if (damage_ == Damage::kFlip) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ 1 << bit_);
    if (damage_ == Damage::kRepeat) bytes->insert(at, 1, (*bytes)[at]);
    if (damage_ == Damage::kCut) bytes->erase(at, 1);
  }

  const Fd listener_;
  std::atomic<bool> over_{false};
  std::atomic<int> from_{-1};
  std::atomic<int64_t> left_{0};
  Damage damage_ = Damage::kFlip;
  int bit_ = 0;
  std::thread thread_;
};

// Sums and broadcasts in turn.
constexpr int kCalls = 12, kElements = 50;

// The first call that fails; kCalls if none does. EXPECTs that those before it gave what they must.
int FailingCall(Communicator& comm) {
  for (int call = 0; call < kCalls; ++call) {
    std::vector<float> x(kElements), want(kElements);
    std::iota(x.begin(), x.end(), static_cast<float>(comm.rank() * 1000 + call));
    for (int i = 0; i < kElements; ++i) {
      want[i] = call % 2 == 0 ? static_cast<float>(1000 + 2 * (call + i)) : static_cast<float>(1000 + call + i);
    }
    Call made = call % 2 == 0 ? Call::AllReduce(ReduceOp::kSum, DType::kF32, x.data(), x.data(), kElements)
                              : Call::Broadcast(DType::kF32, x.data(), kElements, 1);
    const Status status = comm.Run(made.At("damage.lua:1").Within(absl::Milliseconds(300)));
    if (!status.ok()) return call;
    EXPECT_EQ(x, want) << "call " << call << " of rank " << comm.rank();
  }
  return kCalls;
}

// Every damaged byte is found by one of the two ranks, and no rank takes a wrong number.
TEST(NetworkDamage, EachByteIsFound) {
  const char* const asked = getenv("MSLUA_TEST_DAMAGES");
  const int damages = asked != nullptr ? atoi(asked) : 150;
  std::mt19937 random(7);
  int found = 0, met = 0;
  for (int i = 0; i < damages; ++i) {
    World world("ab");
    Proxy proxy(world.peers_[0].endpoint);
    world.peers_[0].endpoint = proxy.endpoint;
    std::unique_ptr<Communicator> comms[2];
    std::thread other([&] { comms[1] = *world.Make(1); });
    comms[0] = *world.Make(0);
    other.join();
    // Of about 2000 bytes that each end sends after its greeting, one of the first half, so that calls follow.
    const int from = static_cast<int>(random() % 2);
    const int64_t skip = random() % 1000;
    const auto damage = static_cast<Damage>(random() % 3);
    proxy.Arm(from, skip, damage, static_cast<int>(random() % 8));
    int failing[2];
    std::thread second([&] {
      failing[1] = FailingCall(*comms[1]);
      comms[1].reset();
    });
    failing[0] = FailingCall(*comms[0]);
    comms[0].reset();
    second.join();
    met += proxy.done();
    const bool one = std::min(failing[0], failing[1]) < kCalls;
    found += one;
    EXPECT_TRUE(one) << "damage " << i << ": byte " << skip << " from end " << from << ", kind "
                     << static_cast<int>(damage);
  }
  std::printf("%d bytes damaged, %d found\n", met, found);
  EXPECT_EQ(met, damages);
}

}  // namespace
}  // namespace mslua
