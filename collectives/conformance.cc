#include "collectives/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(30);

// Element `i` of rank `r`'s buffer. Sums of the floats depend on their order; products stay finite; small integers
// also wrap when they are u8.
template <class T>
T ValueAt(int r, int64_t i) {
  uint64_t h = (static_cast<uint64_t>(r) * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
  h ^= h >> 31;
  h *= 0xbf58476d1ce4e5b9u;
  h ^= h >> 29;
  if constexpr (std::is_same_v<T, bool>) {
    return h % 3 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int64_t>(h % 201) - (std::is_signed_v<T> ? 100 : 0));
  } else {
    const float magnitude = 0.5f + static_cast<float>(h % 100003) / 100003.0f;
    return T((h >> 40) % 2 ? magnitude : -magnitude);
  }
}

template <class A>
A CombineTwo(ReduceOp op, A a, A b) {
  if constexpr (std::is_same_v<A, bool>) {
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? a || b : a && b;
  } else {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
        return a + b;
      case ReduceOp::kProd:
        if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
        return a * b;
      case ReduceOp::kMax:
        return a > b ? a : b;
      case ReduceOp::kMin:
        return a < b ? a : b;
    }
  }
  return a;
}

// What rank `rank` of n is to find in its output when every rank's input is ValueAt(rank, 0...).
template <class T>
std::vector<T> Expected(const Call& call, int rank, int n) {
  using A = ComputeType<T>;
  std::vector<T> out(OutElements(call, rank, n));
  const auto reduced = [&](int64_t i) {
    A sum = ValueAt<T>(0, i);
    for (int r = 1; r < n; ++r) sum = CombineTwo<A>(call.reduce, sum, ValueAt<T>(r, i));
    if constexpr (std::is_floating_point_v<A>) {
      if (call.reduce == ReduceOp::kMean) sum = sum / static_cast<A>(n);
    } else if constexpr (!std::is_same_v<A, bool>) {
      if (call.reduce == ReduceOp::kMean) sum = static_cast<A>(static_cast<int64_t>(sum) / n);
    }
    return T(sum);
  };
  const int64_t c = call.count;
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    switch (call.kind) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        out[i] = reduced(i);
        break;
      case Collective::kReduceScatter:
        out[i] = reduced(rank * c + i);
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        out[i] = ValueAt<T>(static_cast<int>(i / c), i % c);
        break;
      case Collective::kBroadcast:
        out[i] = ValueAt<T>(call.peer, i);
        break;
      case Collective::kScatter:
        out[i] = ValueAt<T>(call.peer, rank * c + i);
        break;
      case Collective::kAllToAll:
        out[i] = ValueAt<T>(static_cast<int>(i / c), rank * c + i % c);
        break;
      default:
        break;
    }
  }
  return out;
}

// Uninitialised elements would do; a vector<bool> would not.
template <class T>
struct Buffer {
  explicit Buffer(int64_t n) : size(n), data(new T[n + 1]) {}
  int64_t size;
  std::unique_ptr<T[]> data;
};

template <class T>
bool Same(const T* got, const std::vector<T>& want, bool exact, int64_t* where) {
  for (int64_t i = 0; i < static_cast<int64_t>(want.size()); ++i) {
    *where = i;
    const T wanted = want[i];
    if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
      if (got[i] != wanted) return false;
    } else if (exact) {
      if (std::memcmp(&got[i], &wanted, sizeof(T)) != 0) return false;
    } else {
      const double a = static_cast<double>(got[i]), b = static_cast<double>(wanted);
      // 16-bit floats may be rounded after each rank.
      const double tolerance = sizeof(T) == 2 ? 1e-1 : sizeof(T) == 4 ? 1e-5 : 1e-12;
      if (!(std::abs(a - b) <= tolerance * (1 + std::abs(b)))) return false;
    }
  }
  return true;
}

// In and out of `call`, filled, on the heap or in `memory`; in place puts them where the contract allows.
template <class T>
struct Buffers {
  Buffers(Call& call, int rank, int n, bool in_place, T* memory = nullptr)
      : ins(InElements(call, rank, n)),
        outs(OutElements(call, rank, n)),
        heap(memory ? 0 : ins + outs + 2),
        in(memory ? memory : heap.data.get()),
        out(in + ins) {
    const int64_t c = call.count;
    if (call.kind == Collective::kBroadcast) {
      out = in;
    } else if (in_place) {
      if (call.kind == Collective::kAllReduce || (call.kind == Collective::kReduce && outs > 0)) out = in;
      if (call.kind == Collective::kReduceScatter) out = in + rank * c;
      if (call.kind == Collective::kScatter && ins > 0) out = in + rank * c;
      if (call.kind == Collective::kAllGather || (call.kind == Collective::kGather && outs > 0)) {
        out = in;
        in = out + rank * c;
      }
    }
    for (int64_t i = 0; i < ins; ++i) in[i] = ValueAt<T>(rank, i);
    call.in = call.kind == Collective::kBroadcast ? static_cast<const void*>(out) : ins > 0 ? in : nullptr;
    call.out = outs > 0 || call.kind == Collective::kBroadcast ? out : nullptr;
  }
  int64_t ins, outs;
  Buffer<T> heap;
  T* in;
  T* out;
};

template <class T>
void CheckOne(Communicator& comm, Call call, bool in_place, bool exact) {
  Buffers<T> buffers(call, comm.rank(), comm.size(), in_place);
  const Status status = comm.Run(call.At("conformance.lua:1"));
  ASSERT_TRUE(status.ok()) << status;
  int64_t where = 0;
  const std::vector<T> want = Expected<T>(call, comm.rank(), comm.size());
  // Rounding differs only where floats are added or multiplied.
  EXPECT_TRUE(Same(buffers.out, want, exact || !Reduces(call.kind), &where))
      << "rank " << comm.rank() << "/" << comm.size() << " " << Describe(call) << (in_place ? " in place" : "")
      << " element " << where << ": got " << static_cast<double>(buffers.out[where]) << ", want "
      << static_cast<double>(T(want[where]));
}

std::vector<Call> AllCalls(DType dtype, int64_t count, int root) {
  std::vector<Call> calls = {
      Call::AllGather(dtype, nullptr, nullptr, count), Call::Broadcast(dtype, nullptr, count, root),
      Call::Gather(dtype, nullptr, nullptr, count, root), Call::Scatter(dtype, nullptr, nullptr, count, root),
      Call::AllToAll(dtype, nullptr, nullptr, count)};
  for (int op = 0; op < kNumReduceOps; ++op) {
    const ReduceOp reduce = static_cast<ReduceOp>(op);
    if (dtype == DType::kBool && reduce == ReduceOp::kMean) continue;
    calls.push_back(Call::AllReduce(reduce, dtype, nullptr, nullptr, count));
    calls.push_back(Call::ReduceScatter(reduce, dtype, nullptr, nullptr, count));
    calls.push_back(Call::Reduce(reduce, dtype, nullptr, nullptr, count, root));
  }
  return calls;
}

void CheckAll(Communicator& comm, DType dtype, int64_t count, int root, bool exact) {
  for (const Call& call : AllCalls(dtype, count, root)) {
    DispatchDType(dtype, [&](auto zero) {
      using T = decltype(zero);
      CheckOne<T>(comm, call, false, exact);
      if (call.kind != Collective::kAllToAll && call.kind != Collective::kBroadcast)
        CheckOne<T>(comm, call, true, exact);
    });
  }
}

}  // namespace

void OnThreads(int n, const MakeRank& make, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      auto comm = make(r, n);
      ASSERT_TRUE(comm.ok()) << comm.status();
      body(**comm);
    });
  }
  for (std::thread& t : threads) t.join();
}

void OnThreads(std::vector<std::unique_ptr<Communicator>> world, const std::function<void(Communicator&)>& body) {
  const int n = static_cast<int>(world.size());
  OnThreads(
      n, [&](int r, int) -> StatusOr<std::unique_ptr<Communicator>> { return std::move(world[r]); }, body);
}

void CheckCollectives(Communicator& comm, const ConformanceOptions& options) {
  const int n = comm.size();
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{n < 8 ? 1001 : 257}}) {
    for (int d = 0; d < kNumDTypes; ++d) {
      CheckAll(comm, static_cast<DType>(d), count, (d + static_cast<int>(count)) % n, options.rank_order);
    }
  }
  for (int root = 0; root < std::min(n, 4); ++root) CheckAll(comm, DType::kF32, 5, root, options.rank_order);
  const int64_t large = std::max<int64_t>(std::min<int64_t>(5000, options.large), options.large / n);
  CheckAll(comm, DType::kF32, large, n - 1, options.rank_order);
  CheckAll(comm, DType::kBF16, large - 1, 0, options.rank_order);
  EXPECT_TRUE(comm.Run(Call::Barrier()).ok());
}

void CheckGroups(Communicator& comm, const ConformanceOptions& options) {
  const int n = comm.size(), me = comm.rank();
  std::vector<int> parity, reversed;
  for (int r = me % 2; r < n; r += 2) parity.push_back(r);
  for (int r = n - 1; r >= 0; --r) reversed.push_back(r);
  for (const std::vector<int>& ranks : {parity, reversed, std::vector<int>{me}, parity}) {
    auto group = comm.Split(ranks, "conformance.lua:2", kLimit);
    ASSERT_TRUE(group.ok()) << group.status();
    EXPECT_EQ((*group)->size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks[(*group)->rank()], me);
    CheckAll(**group, DType::kF32, 33, 0, options.rank_order);
    CheckAll(**group, DType::kI64, 3001, (*group)->size() - 1, options.rank_order);
    const std::vector<int> first(1, (*group)->rank());
    auto inner = (*group)->Split(first, "conformance.lua:3", kLimit);
    ASSERT_TRUE(inner.ok()) << inner.status();
    EXPECT_EQ((*inner)->members(), std::vector<int>(1, comm.members()[me]));
    CheckAll(comm, DType::kI32, 9, 0, options.rank_order);  // the world works beside its groups
  }
}

void CheckAsynchronous(Communicator& comm) {
  const int n = comm.size(), me = comm.rank();
  constexpr int kCalls = 20;
  constexpr int64_t kCount = 3000;
  std::vector<std::vector<float>> data(kCalls);
  std::vector<Handle> handles;
  std::vector<float> from_left(kCount);
  for (int k = 0; k < kCalls; ++k) {
    data[k].assign(k % 3 == 0 ? 3 : kCount, static_cast<float>(me + k));
    auto handle = comm.Start(Call::AllReduce(ReduceOp::kSum, DType::kF32, data[k].data(), data[k].data(),
                                             static_cast<int64_t>(data[k].size())));
    ASSERT_TRUE(handle.ok()) << handle.status();
    handles.push_back(*handle);
    EXPECT_TRUE(comm.Progress().ok());
  }
  if (n > 1) {
    const std::vector<float> mine(kCount, static_cast<float>(me));
    auto send = comm.Start(Call::Send(DType::kF32, mine.data(), kCount, (me + 1) % n));
    auto recv = comm.Start(Call::Recv(DType::kF32, from_left.data(), kCount, (me + n - 1) % n));
    ASSERT_TRUE(send.ok() && recv.ok());
    EXPECT_TRUE(comm.Wait(*send).ok());
    EXPECT_TRUE(comm.Wait(*recv).ok());
    EXPECT_EQ(from_left, std::vector<float>(kCount, static_cast<float>((me + n - 1) % n)));
  }
  for (int k = kCalls - 1; k >= 0; --k) {
    EXPECT_TRUE(comm.Wait(handles[k]).ok());
    EXPECT_TRUE(comm.Wait(handles[k]).ok());  // harmless
    EXPECT_EQ(data[k], std::vector<float>(data[k].size(), static_cast<float>(n * (n - 1) / 2 + n * k)));
  }
}

// Rank 0 sends to 2 and then sums with 1, which first takes a message of 3; this comes after a sum of 2 and 3, for
// which 2 needs all of rank 0's message.
void CheckMessagesBesideCollectives(Communicator& comm) {
  constexpr int64_t kCount = 1 << 20;
  const int me = comm.rank();
  const std::vector<int> row = me < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  const std::vector<int> column = me % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
  if (comm.size() < 4 || me > 3) return;
  auto in_row = comm.Split(row, "conformance.lua:6", kLimit),
       in_column = comm.Split(column, "conformance.lua:7", kLimit);
  ASSERT_TRUE(in_row.ok() && in_column.ok()) << in_row.status() << in_column.status();
  std::vector<int32_t> x(kCount, me), y(kCount), sums(8, 1);
  const auto sum = [&] {
    EXPECT_TRUE((*in_row)->Run(Call::AllReduce(ReduceOp::kSum, DType::kI32, sums.data(), sums.data(), 8)).ok());
    EXPECT_EQ(sums, std::vector<int32_t>(8, 2));
  };
  const auto receive = [&] {
    const int peer = 1 - (*in_column)->rank();
    EXPECT_TRUE((*in_column)->Run(Call::Recv(DType::kI32, y.data(), kCount, peer)).ok());
    EXPECT_EQ(y, std::vector<int32_t>(kCount, column[peer]));
  };
  if (me == 0) {
    const auto sent = (*in_column)->Start(Call::Send(DType::kI32, x.data(), kCount, 1));
    ASSERT_TRUE(sent.ok()) << sent.status();
    sum();
    EXPECT_TRUE((*in_column)->Wait(*sent).ok());
  } else if (me < 3) {
    receive();
    sum();
  } else {
    sum();
    EXPECT_TRUE((*in_column)->Run(Call::Send(DType::kI32, x.data(), kCount, 0)).ok());
  }
}

void CheckMessages(Communicator& comm, const ConformanceOptions& options) {
  const int n = comm.size(), me = comm.rank();
  if (n == 1) return;
  const auto filled = [](int r, int64_t count) {
    std::vector<int32_t> v(count + 1);
    for (int64_t i = 0; i < count; ++i) v[i] = ValueAt<int32_t>(r, i);
    v[count] = 12345;  // a guard
    return v;
  };
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{333}, options.large}) {
    // Around the ring, even ranks sending first, blocking.
    const std::vector<int32_t> mine = filled(me, count);
    std::vector<int32_t> got(count + 1, 12345);
    const int left = (me + n - 1) % n, right = (me + 1) % n;
    const auto send = [&] { return comm.Run(Call::Send(DType::kI32, mine.data(), count, right, 7).At("ring.lua:1")); };
    const auto recv = [&] { return comm.Run(Call::Recv(DType::kI32, got.data(), count, left, 7).At("ring.lua:2")); };
    Status a = me % 2 == 0 ? send() : recv();
    Status b = me % 2 == 0 ? recv() : send();
    EXPECT_TRUE(a.ok() && b.ok()) << a << b;
    EXPECT_EQ(got, filled(left, count));
  }
  // All pairs at once, two messages each, begun before any is waited for.
  constexpr int64_t kCount = 1500;
  const std::vector<int32_t> mine = filled(me, kCount);
  std::vector<std::vector<int32_t>> got(2 * n, std::vector<int32_t>(kCount + 1, 12345));
  std::vector<Handle> handles;
  for (int r = 0; r < n; ++r) {
    for (int k = 0; k < 2 && r != me; ++k) {
      auto send = comm.Start(Call::Send(DType::kI32, mine.data(), kCount - k, r, k));
      auto recv = comm.Start(Call::Recv(DType::kI32, got[2 * r + k].data(), kCount - k, r, k));
      ASSERT_TRUE(send.ok() && recv.ok()) << send.status() << recv.status();
      handles.push_back(*recv);
      handles.push_back(*send);
    }
  }
  for (const Handle& h : handles) {
    const Status status = comm.Wait(h);
    ASSERT_TRUE(status.ok()) << status;
  }
  for (int r = 0; r < n; ++r) {
    if (r != me) {
      EXPECT_EQ(got[2 * r], filled(r, kCount));
    }
  }
  EXPECT_TRUE(comm.Run(Call::Barrier()).ok());
}

void CheckNaN(Communicator& comm) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    DispatchDType(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
        // Element i is NaN on rank i alone; the last on none.
        std::vector<double> in;
        for (int i = 0; i <= comm.size(); ++i) in.push_back(i == comm.rank() ? std::nan("") : comm.rank() + 1);
        Buffer<T> from(comm.size() + 1), to(comm.size() + 1);
        for (size_t i = 0; i < in.size(); ++i) from.data[i] = T(static_cast<float>(in[i]));
        ASSERT_TRUE(comm.Run(Call::AllReduce(op, dtype, from.data.get(), to.data.get(), from.size)).ok());
        for (int i = 0; i < comm.size(); ++i) EXPECT_TRUE(std::isnan(static_cast<double>(to.data[i]))) << i;
        EXPECT_EQ(static_cast<double>(to.data[comm.size()]), op == ReduceOp::kMax ? comm.size() : 1);
      }
    });
  }
}

void CheckRepeatable(Communicator& comm, const ConformanceOptions& options) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    DispatchDType(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<char> bits[2];
      for (std::vector<char>& b : bits) {
        Call call = Call::AllReduce(ReduceOp::kSum, dtype, nullptr, nullptr, options.large / 2 + 1);
        Buffers<T> buffers(call, comm.rank(), comm.size(), true);
        ASSERT_TRUE(comm.Run(call).ok());
        b.assign(reinterpret_cast<char*>(buffers.out), reinterpret_cast<char*>(buffers.out + buffers.outs));
      }
      EXPECT_EQ(bits[0], bits[1]);
    });
  }
}

void CheckShared(Communicator& comm, const ConformanceOptions& options) {
  const int n = comm.size();
  const int64_t large = std::max<int64_t>(5000, options.large / n);
  const int64_t bytes = 4 * (2 * n + 2) * large;
  auto memory = comm.AllocateShared(bytes, "conformance.lua:4");
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0u);
  for (int64_t count : {int64_t{3}, large}) {
    for (const Call& each : AllCalls(DType::kF32, count, n - 1)) {
      for (int mixed = 0; mixed < 2; ++mixed) {
        Call call = each;
        const bool here = mixed == 0 || comm.rank() % 2 == 0;
        Buffers<float> buffers(call, comm.rank(), n, false, here ? static_cast<float*>(*memory) : nullptr);
        const Status status = comm.Run(call);
        ASSERT_TRUE(status.ok()) << status;
        int64_t where;
        EXPECT_TRUE(Same(buffers.out, Expected<float>(call, comm.rank(), n), options.rank_order, &where))
            << Describe(call) << " element " << where;
      }
    }
  }
  if (n > 1) {
    float* data = static_cast<float*>(*memory);
    std::fill(data, data + large, static_cast<float>(comm.rank()));
    const Status status = comm.rank() == 0   ? comm.Run(Call::Send(DType::kF32, data, large, 1))
                          : comm.rank() == 1 ? comm.Run(Call::Recv(DType::kF32, data, large, 0))
                                             : absl::OkStatus();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(data[large - 1], comm.rank() == 1 ? 0.0f : static_cast<float>(comm.rank()));
  }
  EXPECT_TRUE(comm.Run(Call::Barrier()).ok());
}

void CheckRefusals(Communicator& comm) {
  float x[4] = {1, 2, 3, 4}, y[64];
  const int n = comm.size();
  const auto refused = [&](const Call& call, const char* why) {
    const Status status = comm.Run(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  refused(Call::AllReduce(ReduceOp::kSum, DType::kF32, x, x, -1), "count -1 is out of range");
  refused(Call::AllReduce(ReduceOp::kSum, DType::kF64, x, x, int64_t{1} << 60), "out of range");
  refused(Call::AllReduce(ReduceOp::kSum, DType::kF32, nullptr, x, 4), "input is null");
  refused(Call::AllReduce(ReduceOp::kSum, DType::kF32, x, nullptr, 4), "output is null");
  refused(Call::AllReduce(ReduceOp::kSum, DType::kF32, reinterpret_cast<char*>(x) + 1, y, 1), "not aligned");
  refused(Call::AllReduce(ReduceOp::kMean, DType::kBool, x, y, 1), "bool has no mean");
  refused(Call::Broadcast(DType::kF32, x, 4, n), "is not in this group");
  refused(Call::Reduce(ReduceOp::kSum, DType::kF32, x, y, 4, -1), "is not in this group");
  refused(Call::Send(DType::kF32, x, 4, comm.rank()), "to itself");
  refused(Call::AllToAll(DType::kF32, x, x, 1), "different buffers");
  const auto no_group = [&](std::vector<int> ranks, const char* why) {
    auto group = comm.Split(ranks, "conformance.lua:5", kLimit);
    EXPECT_EQ(group.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(group.status().message()), HasSubstr(why));
  };
  no_group({}, "not among them");
  no_group({comm.rank(), comm.rank()}, "named twice");
  no_group({comm.rank(), n}, "is not in 0 to");
  EXPECT_TRUE(comm.Run(Call::Barrier()).ok());
}

void CheckMismatch(Communicator& comm) {
  float x[8] = {};
  const MonotonicTime begin = MonotonicNow();
  const Status status = comm.rank() == 1
                            ? comm.Run(Call::Broadcast(DType::kF32, x, 8, 0).At("other.lua:12"))
                            : comm.Run(Call::AllReduce(ReduceOp::kSum, DType::kF32, x, x, 8).At("train.lua:9"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("all_reduce sum f32[8] at train.lua:9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 calls broadcast f32[8] root 0 at other.lua:12"));
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
  EXPECT_FALSE(comm.Run(Call::Barrier()).ok());  // the group is over
}

void CheckMessageMismatch(Communicator& comm) {
  float x[8] = {};
  if (comm.rank() > 1) return;
  const Status status = comm.rank() == 0 ? comm.Run(Call::Send(DType::kF32, x, 8, 1).At("a.lua:1"))
                                         : comm.Run(Call::Recv(DType::kF32, x, 7, 0).At("b.lua:2"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("send f32[8] to 1 tag 0 at a.lua:1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("recv f32[7] from 0 tag 0 at b.lua:2"));
}

void CheckDeadlineFor(Communicator& comm, absl::Duration stays) {
  static std::atomic<int> given_up{0};  // ranks of this process
  const int last = comm.size() - 1;
  ASSERT_TRUE(comm.Run(Call::Barrier().At("start.lua:3")).ok());
  const MonotonicTime begin = MonotonicNow();
  if (comm.rank() == last) {
    // It makes no call.
    while (given_up < last && MonotonicNow() - begin < stays) absl::SleepFor(absl::Milliseconds(5));
    given_up = 0;
    return;
  }
  int32_t x = 1;
  const Status status = comm.Run(
      Call::AllReduce(ReduceOp::kSum, DType::kI32, &x, &x, 1).At("train.lua:88").Within(absl::Milliseconds(200)));
  ++given_up;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("all_reduce sum i32[1] at train.lua:88"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", last)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer within 200ms"));
  EXPECT_GT(MonotonicNow() - begin, absl::Milliseconds(150));
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(50));
  EXPECT_THAT(comm.recorder().Dump(), HasSubstr("all_reduce sum i32[1] at train.lua:88"));
  EXPECT_THAT(comm.recorder().Dump(), HasSubstr("failed"));
}

void CheckDeadline(Communicator& comm) { CheckDeadlineFor(comm, absl::Seconds(60)); }

void CheckAbort(Communicator& comm) {
  if (comm.rank() == 0) {
    absl::SleepFor(absl::Milliseconds(100));
    comm.Abort(absl::DataLossError("the data set has no sample 7"));
    EXPECT_FALSE(comm.Run(Call::Barrier()).ok());
    return;
  }
  const Status status = comm.Run(Call::Barrier().At("train.lua:5"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0/"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the data set has no sample 7"));
}

void CheckLeaving(std::unique_ptr<Communicator> comm) {
  const int last = comm->size() - 1;
  // Who is behind may hear of the failure of the second barrier while in the first.
  Status status = comm->Run(Call::Barrier().At("train.lua:6"));
  if (comm->rank() == last) return;
  if (status.ok()) status = comm->Run(Call::Barrier().At("train.lua:6"));
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", last)));
}

}  // namespace mslua
