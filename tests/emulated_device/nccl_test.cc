// NCCL's groups on the emulated device and the emulated NCCL, with real processes: each test starts this binary again
// as its ranks. tests/emulated_device/nccl_train_test.sh trains with them.
#include "collectives/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/backends/native/native.h"
#include "collectives/conformance.h"
#include "core/base/clock.h"
#include "core/graph/builder.h"
#include "core/runtime/executable.h"
#include "tests/emulated_device/use_emulated_device.h"

extern char** environ;

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr char kVariable[] = "MSLUA_TEST_RANK";

// Runs test Rank.<part> in `n` processes, which print to files of their own.
class Ranks {
 public:
  Ranks(int n, const std::string& part) {
    char path[] = "/dev/shm/mslua-test-XXXXXX";
    folder_ = mkdtemp(path);
    const std::string filter = absl::StrCat("--gtest_filter=Rank.", part);
    for (int r = 0; r < n; ++r) {
      setenv(kVariable, absl::StrCat(r, " ", n, " ", folder_).c_str(), 1);
      const char* arguments[] = {"nccl_test", filter.c_str(), "--gtest_brief=1", nullptr};
      pid_t pid = 0;
      EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
      pids_.push_back(pid);
    }
    unsetenv(kVariable);
  }
  ~Ranks() { std::filesystem::remove_all(folder_); }
  void Signal(int rank, int signal) { kill(pids_[rank], signal); }
  // Until all have said that they are running, or a minute has passed.
  void AwaitRunning() {
    const MonotonicTime begin = MonotonicNow();
    for (size_t r = 0; r < pids_.size(); ++r) {
      while (!std::filesystem::exists(absl::StrCat(folder_, "/running_", r)) &&
             MonotonicNow() - begin < absl::Minutes(1))
        absl::SleepFor(absl::Milliseconds(5));
    }
  }
  // 0, an exit code, or minus a signal.
  int Wait(int rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::string folder_;
  std::vector<pid_t> pids_;
};

// What a rank's test needs: the groups of the host, a device and NCCL beside them.
struct Place {
  std::shared_ptr<Groups> groups;
  Device* device = nullptr;
  std::shared_ptr<NcclWorld> world;
  std::string staged;  // why
  std::string folder;
  // Tells Ranks::AwaitRunning.
  void SayRunning() const { std::ofstream(absl::StrCat(folder, "/running_", groups->rank())); }
  // For one call at a time.
  DeviceStream stream;
  DeviceMemory memory;
};

StatusOr<std::unique_ptr<Place>> Join(NcclUse use, int ordinal = -1) {
  NativeOptions options;
  char folder[200];
  const char* const text = getenv(kVariable);
  if (text == nullptr || sscanf(text, "%d %d %199s", &options.rank, &options.size, folder) != 3)
    return absl::NotFoundError("not a rank");
  options.folder = folder;
  // Of the emulated NCCL: gone with the test.
  setenv("EMULATED_NCCL_FOLDER", folder, 1);
  const char* const scratch = getenv("TEST_TMPDIR");
  const std::string cache = scratch != nullptr ? scratch : folder;  // of kernels, for all ranks of the test
  setenv("TEST_TMPDIR", absl::StrCat(folder, "/", options.rank).c_str(), 1);
  std::filesystem::create_directories(absl::StrCat(folder, "/", options.rank));
  RETURN_IF_ERROR(testing::UseEmulatedDevice());
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  auto place = std::make_unique<Place>();
  place->folder = folder;
  ASSIGN_OR_RETURN(auto world, MakeNativeWorld(options));
  place->groups = std::make_shared<Groups>(std::move(world));
  place->groups->set_timeout(absl::Seconds(30));
  ASSIGN_OR_RETURN(place->device, Device::Open(ordinal >= 0 ? ordinal : options.rank));
  ASSIGN_OR_RETURN(place->world, NcclWorld::Make(place->groups, place->device, use,
                                                 [p = place.get()](const std::string& why) { p->staged = why; }));
  return place;
}

// A communicator of the host whose calls go through device memory and NCCL where it does them, for the suite of all
// backends.
class OverNccl : public Communicator {
 public:
  OverNccl(Place* place, std::vector<int> members, Communicator* host, NcclGroup* group)
      : Communicator(host->rank(), std::move(members), std::make_shared<FlightRecorder>()),
        place_(place),
        host_(host),
        group_(group) {}
  static StatusOr<std::unique_ptr<Communicator>> Make(Place* place, const std::vector<int>& members) {
    const std::vector<int64_t> ranks(members.begin(), members.end());
    ASSIGN_OR_RETURN(Communicator* const host, place->groups->Get(ranks, "conformance"));
    NcclGroup* group = nullptr;
    if (members.size() > 1 || place->groups->size() == 1) {
      ASSIGN_OR_RETURN(group, place->world->Get(ranks, "conformance"));
    }
    return std::unique_ptr<Communicator>(new OverNccl(place, members, host, group));
  }

  StatusOr<Handle> Start(const Call& call) override {
    RETURN_IF_ERROR(Validate(call));
    if (group_ == nullptr || !NcclDoes(call)) {
      RETURN_IF_ERROR(host_->Run(call));
    } else {
      RETURN_IF_ERROR(OnDevice(call));
    }
    return Handle{++calls_};
  }
  Status Wait(Handle) override { return absl::OkStatus(); }
  Status Progress() override { return absl::OkStatus(); }
  bool Done(Handle) const override { return true; }
  StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view,
                                                absl::Duration) override {
    RETURN_IF_ERROR(PlaceIn(ranks).status());
    std::vector<int> of_world;
    for (const int r : ranks) of_world.push_back(members()[static_cast<size_t>(r)]);
    return Make(place_, of_world);
  }
  StatusOr<void*> AllocateShared(int64_t, absl::string_view) override { return absl::UnimplementedError("host only"); }
  void Abort(const Status& why) override { host_->Abort(why); }

 private:
  // One piece of device memory with both buffers, which may overlap.
  Status OnDevice(Call call) {
    const int64_t in_bytes = InElements(call, rank(), size()) * SizeOf(call.dtype),
                  out_bytes = OutElements(call, rank(), size()) * SizeOf(call.dtype);
    const auto in = reinterpret_cast<uintptr_t>(call.in), out = reinterpret_cast<uintptr_t>(call.out);
    const bool overlap = in_bytes > 0 && out_bytes > 0 && in < out + static_cast<uintptr_t>(out_bytes) &&
                         out < in + static_cast<uintptr_t>(in_bytes);
    const int64_t in_at = overlap ? static_cast<int64_t>(in - std::min(in, out)) : 0;
    const int64_t out_at = overlap ? static_cast<int64_t>(out - std::min(in, out)) : (in_bytes + 63) / 64 * 64;
    if (call.kind == Collective::kBroadcast) return Broadcast(call);
    RETURN_IF_ERROR(Reserve(std::max(in_at + in_bytes, out_at + out_bytes)));
    DeviceStream& stream = place_->stream;
    char* const base = static_cast<char*>(place_->memory.data());
    void* const host_out = call.out;
    if (in_bytes > 0) RETURN_IF_ERROR(stream.CopyIn(base + in_at, call.in, in_bytes));
    call.in = base + in_at;
    call.out = base + out_at;
    ASSIGN_OR_RETURN(const uint64_t number, group_->Enqueue(call, stream));
    RETURN_IF_ERROR(place_->world->After(number, stream));
    if (out_bytes > 0) RETURN_IF_ERROR(stream.CopyOut(host_out, base + out_at, out_bytes));
    return place_->world->Wait(stream);
  }
  Status Broadcast(Call call) {
    const int64_t bytes = call.count * SizeOf(call.dtype);
    RETURN_IF_ERROR(Reserve(bytes));
    DeviceStream& stream = place_->stream;
    void *const host = call.out, *const device = place_->memory.data();
    if (rank() == call.peer) RETURN_IF_ERROR(stream.CopyIn(device, call.out, bytes));
    call.in = call.out = device;
    ASSIGN_OR_RETURN(const uint64_t number, group_->Enqueue(call, stream));
    RETURN_IF_ERROR(place_->world->After(number, stream));
    RETURN_IF_ERROR(stream.CopyOut(host, device, bytes));
    return place_->world->Wait(stream);
  }
  Status Reserve(int64_t bytes) {
    if (place_->memory.data() == nullptr) {
      ASSIGN_OR_RETURN(place_->stream, place_->device->MakeStream());
    }
    if (place_->memory.bytes() >= std::max<int64_t>(bytes, 64)) return absl::OkStatus();
    ASSIGN_OR_RETURN(place_->memory, place_->device->Allocate(2 * bytes + 64));
    return absl::OkStatus();
  }

  Place* const place_;
  Communicator* const host_;
  NcclGroup* const group_;
  uint64_t calls_ = 0;
};

TEST(Rank, Conformance) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  ConformanceOptions options;
  options.rank_order = false;
  options.large = 1000;
  {
    auto comm = OverNccl::Make(place, place->groups->world().members());
    ASSERT_TRUE(comm.ok()) << comm.status();
    CheckCollectives(**comm, options);
    CheckGroups(**comm, options);
    CheckRepeatable(**comm, options);
    CheckRefusals(**comm);
  }
  place->world.reset();
  place->stream = DeviceStream();
  place->memory = DeviceMemory();
  if (testing::OnRealDevice()) return;
  const auto emulation = testing::FindEmulation();
  ASSERT_TRUE(emulation.ok()) << emulation.status();
  EXPECT_EQ(emulation->held(), 0);
}

// The sum of two calls that are enqueued, one behind the other, before anybody waits; then one that never ends.
Status Sums(Place& place, int calls) {
  // They outlive the stream, which may still copy where a call has failed.
  const std::vector<float> ones(16, 1);
  std::vector<float> sums(16);
  const std::vector<int64_t> ranks(place.groups->world().members().begin(), place.groups->world().members().end());
  ASSIGN_OR_RETURN(NcclGroup* const group, place.world->Get(ranks, "train.lua:1"));
  if (group == nullptr) return absl::UnavailableError(place.staged);
  ASSIGN_OR_RETURN(DeviceStream stream, place.device->MakeStream());
  ASSIGN_OR_RETURN(DeviceMemory memory, place.device->Allocate(64));
  RETURN_IF_ERROR(stream.CopyIn(memory.data(), ones.data(), 64));
  for (int i = 0; i < calls; ++i) {
    ASSIGN_OR_RETURN(
        const uint64_t number,
        group->Enqueue(
            Call::AllReduce(ReduceOp::kSum, DType::kF32, memory.data(), memory.data(), 16).At("train.lua:88"), stream));
    RETURN_IF_ERROR(place.world->After(number, stream));
    if (i % 2 == 0) continue;
    RETURN_IF_ERROR(place.world->Wait(stream));
  }
  RETURN_IF_ERROR(stream.CopyOut(sums.data(), memory.data(), 64));
  RETURN_IF_ERROR(place.world->Wait(stream));
  double want = 1;
  for (int i = 0; i < calls; ++i) want *= group->size();
  return sums[7] == want ? absl::OkStatus() : absl::DataLossError(absl::StrCat(sums[7], " for ", want));
}

TEST(Rank, UntilDeath) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  place->groups->set_timeout(absl::Seconds(1));
  Status status = Sums(*place, 6);
  EXPECT_TRUE(status.ok()) << status;
  place->SayRunning();
  MonotonicTime begin;
  while (status.ok()) {
    begin = MonotonicNow();
    status = Sums(*place, 2);
  }
  const std::string text(status.message());
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(text, HasSubstr("all_reduce sum f32[16] at train.lua:88"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
  const absl::Duration took = MonotonicNow() - begin;
  std::printf("the loss was noticed after %.2f s\n", absl::ToDoubleSeconds(took));
  EXPECT_LT(took, absl::Seconds(20));
  EXPECT_THAT(place->groups->world().recorder().Dump(), HasSubstr("all_reduce sum f32[16] at train.lua:88"));
  EXPECT_FALSE(Sums(*place, 1).ok());
}

// Every collective that a graph has, on the CPU's groups and on the device: what NCCL does, and what is staged.
TEST(Rank, Graphs) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  const int64_t n = place->groups->size(), rank = place->groups->rank();
  std::vector<int64_t> all(static_cast<size_t>(n)), odd;
  for (int64_t r = 0; r < n; ++r) all[static_cast<size_t>(r)] = n - 1 - r;
  for (int64_t r = rank % 2; r < n; r += 2) odd.push_back(r);
  const auto make = [&] {
    GraphBuilder g;
    auto line = std::make_shared<Location>();
    line->file = "train.lua";
    line->line = 8;
    g.SetLocation(line);
    const Value data = g.Input("x", kData, {DType::kF32, {4 * n, 2, 3 * n}});
    const Value x = Mul(g, data, 0.5);
    int outputs = 0;
    const auto add = [&](Value y) { g.Output(absl::StrCat("y", outputs++), Mul(g, y, 2.0)); };
    for (const auto& group : {all, odd}) {
      const Attrs plain = {{"group", group}};
      for (const char* op : {"sum", "mean", "prod", "max"})
        add(g.Op("all_reduce", {x}, {{"group", group}, {"op", std::string(op)}}));
      for (const int64_t axis : {0, 2}) {
        add(g.Op("all_gather", {x}, {{"group", group}, {"axis", axis}}));
        if (group.size() == all.size()) add(g.Op("reduce_scatter", {x}, {{"group", group}, {"axis", axis}}));
      }
      if (group.size() == all.size()) {
        add(g.Op("all_to_all", {x}, {{"group", group}, {"split_axis", int64_t{2}}, {"concat_axis", int64_t{0}}}));
        add(g.Op("all_to_all", {x}, {{"group", group}, {"split_axis", int64_t{0}}, {"concat_axis", int64_t{1}}}));
      }
      add(g.Op("broadcast", {x}, {{"group", group}, {"root", group[0]}}));
      add(g.Op("reduce", {x}, {{"group", group}, {"root", group.back()}}));
      // A bucket, with work before its end.
      const Value y = g.Op("tanh", {x});
      const std::vector<Value> started =
          g.OpMulti("all_reduce_start", {Reshape(g, y, {24 * n * n}), g.Op("tanh", {y})}, plain);
      add(g.Op("tanh", {data}));
      const std::vector<Value> done = g.OpMulti("all_reduce_wait", started, plain);
      add(done[0]);
      add(done[1]);
    }
    return *g.Finish();
  };
  std::vector<float> x(static_cast<size_t>(24 * n * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 29) / 29;
  CompileOptions options;
  options.groups = place->groups.get();
  const auto want = Executable::Compile(make(), nullptr, options);
  ASSERT_TRUE(want.ok()) << want.status();
  options.device = place->device;
  options.nccl = std::move(place->world);
  const auto got = Executable::Compile(make(), nullptr, options);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto count = [&](const char* name) {
    return std::count_if((*got)->launches().begin(), (*got)->launches().end(),
                         [&](const auto& launch) { return std::string(launch.second) == name; });
  };
  EXPECT_EQ(count("staged"), n == 2 ? 1 : 2);  // max of floats, in each group of several
  EXPECT_GE(count("nccl"), 13);
  std::vector<int64_t> timeline;
  // The second and the third run are captured.
  for (int run = 0; run < 4; ++run) {
    if (run == 3) (*got)->SetTimeline(&timeline);
    for (const auto* executable : {&*want, &*got}) {
      ASSERT_TRUE((*executable)->BindInput("x", x.data()).ok());
      const Status status = (*executable)->Run();
      ASSERT_TRUE(status.ok()) << status;
    }
    for (int o = 0; o < static_cast<int>((*want)->graph().outputs.size()); ++o) {
      const TensorView a = (*want)->Output(o), b = (*got)->Output(o);
      ASSERT_EQ(a.type, b.type);
      for (int64_t i = 0; i < a.type.elements(); ++i)
        ASSERT_NEAR(a.as<float>()[i], b.as<float>()[i], 1e-5) << "run " << run << ", output " << o << ", element " << i;
    }
    x[0] += 1;
  }
}

// Sums of tanh(x), and of twice that, as a step with nothing that is staged.
Graph SumsAsGraph(int64_t ranks) {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < ranks; ++r) all.push_back(r);
  GraphBuilder g;
  auto line = std::make_shared<Location>();
  line->file = "train.lua";
  line->line = 88;
  g.SetLocation(line);
  const Attrs sum = {{"group", all}, {"op", std::string("sum")}};
  const Value x = g.Op("tanh", {g.Input("x", kData, {DType::kF32, {16}})}), once = g.Op("all_reduce", {x}, sum);
  g.Output("once", once);
  g.Output("twice", g.Op("all_reduce", {Mul(g, once, 2.0)}, sum));
  return *g.Finish();
}
StatusOr<std::unique_ptr<Executable>> CapturedSums(Place& place) {
  CompileOptions options;
  options.groups = place.groups.get();
  options.device = place.device;
  options.nccl = place.world;
  return Executable::Compile(SumsAsGraph(place.groups->size()), nullptr, options);
}

// A step with calls of NCCL is one captured graph from its second run on; graphs of two plans, and calls between them.
TEST(Rank, OneGraph) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  const auto emulation = testing::FindEmulation();
  ASSERT_TRUE(emulation.ok()) << emulation.status();
  const int n = place->groups->size();
  auto first = CapturedSums(*place), second = CapturedSums(*place);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const std::vector<float> x(16, 0.5f);
  for (int run = 0; run < 4; ++run) {
    for (auto* e : {&*first, &*second}) {
      emulation->order("forward", static_cast<unsigned>(7 * run + 1));
      emulation->fail("cuGraphLaunch", run == 0 ? 1 : 2);
      ASSERT_TRUE((*e)->BindInput("x", x.data()).ok());
      const Status status = (*e)->Run();
      ASSERT_TRUE(status.ok()) << "run " << run << ": " << status;
      EXPECT_FALSE(emulation->failed()) << "more launches than one";
      const float once = static_cast<float>(n) * std::tanh(0.5f);
      EXPECT_NEAR((*e)->Output(0).as<float>()[15], once, 1e-5);
      EXPECT_NEAR((*e)->Output(1).as<float>()[0], static_cast<float>(2 * n) * once, 1e-4);
    }
    const Status apart = Sums(*place, 2);
    ASSERT_TRUE(apart.ok()) << apart;
  }
  ASSERT_TRUE(place->groups->world().Run(Call::Barrier().At("the end").Within(absl::Seconds(10))).ok());
  emulation->fail("cuGraphLaunch", 1);
  ASSERT_TRUE((*first)->BindInput("x", x.data()).ok());
  EXPECT_FALSE((*first)->Run().ok());  // the launch that the runs before had
  emulation->fail("", 0);
  // What has been captured goes before its communicators.
  place->world.reset();
  (*first).reset();
  (*second).reset();
}

// Of calls that a captured step makes: rank 1 is lost, or EMULATED_NCCL_FAULT makes its 9th call fail, in the fifth
// step.
TEST(Rank, CapturedUntilDeath) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  place->groups->set_timeout(absl::Seconds(60));
  auto executable = CapturedSums(*place);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const std::vector<float> x(16, 0.5f);
  const MonotonicTime first = MonotonicNow();
  MonotonicTime begin;
  Status status;
  int steps = 0;
  while (status.ok() && MonotonicNow() - first < absl::Seconds(30)) {
    begin = MonotonicNow();
    ASSERT_TRUE((*executable)->BindInput("x", x.data()).ok());
    status = (*executable)->Run();
    steps += status.ok() ? 1 : 0;
    if (steps == 2) {
      place->SayRunning();
      place->groups->set_timeout(absl::Seconds(1));  // soon enough for a fault, too soon for the first steps
    }
    // As a trainer does, whose ranks agree after each step: one that skips a call does not run ahead.
    if (status.ok() && getenv("EMULATED_NCCL_FAULT") != nullptr)
      status = place->groups->world().Run(Call::Barrier().At("the end of a step").Within(absl::Seconds(10)));
  }
  EXPECT_GE(steps, 2);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("all_reduce sum f32[16] at train.lua:88"));
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(15));
  std::printf("%s\n", std::string(status.message()).c_str());
  EXPECT_THAT(place->groups->world().recorder().Dump(), HasSubstr("all_reduce sum f32[16] at train.lua:88"));
}

// Buckets change where values lie and when they travel, not a bit of them: over NCCL, and through host memory.
TEST(Rank, Buckets) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  std::vector<int64_t> all;
  for (int r = 0; r < place->groups->size(); ++r) all.push_back(r);
  const auto make = [&](bool buckets) {
    GraphBuilder g;
    const Value w = Mul(g, g.Input("w", kData, {DType::kF32, {7, 7}}), 0.3);
    Value h = g.Input("x", kData, {DType::kF32, {5, 7}});
    std::vector<Value> sums;
    for (int i = 0; i < 9; ++i) {
      h = g.Op("tanh", {g.Op("matmul", {h, w})});
      const Value part = i % 3 == 0 ? Cast(g, h, DType::kBF16) : i % 2 == 0 ? h : Reshape(g, h, {35});
      const std::string op = i < 5 ? "sum" : "mean";
      sums.push_back(g.Op("all_reduce", {part}, {{"group", all}, {"op", op}, {"fusion", int64_t{buckets ? 1 : 0}}}));
    }
    for (size_t i = 0; i < sums.size(); ++i) g.Output(absl::StrCat("y", i), Mul(g, sums[i], 0.5));
    return *g.Finish();
  };
  std::vector<float> x(35), w(49);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((i * 7 + static_cast<size_t>(place->groups->rank()) * 13) % 29) / 29;
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 5 % 17) / 17 - 0.5f;
  for (const bool staged : {false, true}) {
    std::vector<std::string> bits[2];
    for (const bool buckets : {false, true}) {
      CompileOptions options;
      options.groups = place->groups.get();
      options.device = place->device;
      if (!staged) {
        auto world = NcclWorld::Make(place->groups, place->device, NcclUse::kAlways, [](const std::string&) {});
        ASSERT_TRUE(world.ok()) << world.status();
        options.nccl = *std::move(world);
      }
      const auto executable = Executable::Compile(make(buckets), nullptr, options);
      ASSERT_TRUE(executable.ok()) << executable.status();
      const std::vector<Node>& nodes = (*executable)->graph().nodes;
      EXPECT_EQ(
          std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.op->name == "all_reduce_start"; }),
          buckets ? 4 : 0);
      const auto& launches = (*executable)->launches();
      const auto over = [&](const char* name) {
        return std::any_of(launches.begin(), launches.end(),
                           [&](const auto& launch) { return std::string(launch.second) == name; });
      };
      EXPECT_EQ(over("nccl"), !staged);
      EXPECT_EQ(over("staged"), staged);
      // The second run is the captured one.
      for (int run = 0; run < 2; ++run) {
        ASSERT_TRUE((*executable)->BindInput("x", x.data()).ok() && (*executable)->BindInput("w", w.data()).ok());
        const Status status = (*executable)->Run();
        ASSERT_TRUE(status.ok()) << status;
        for (int o = 0; o < 9; ++o) {
          const TensorView y = (*executable)->Output(o);
          bits[buckets ? 1 : 0].emplace_back(static_cast<const char*>(y.data), static_cast<size_t>(y.type.bytes()));
        }
      }
    }
    EXPECT_EQ(bits[0].size(), 18u);
    EXPECT_TRUE(bits[0] == bits[1]) << (staged ? "through host memory" : "over NCCL");
  }
}

// EMULATED_NCCL_FAULT makes rank 1's 5th call fail.
TEST(Rank, Fault) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  place->groups->set_timeout(absl::Milliseconds(1500));
  const MonotonicTime begin = MonotonicNow();
  Status status;
  // As a trainer does, whose ranks agree after each step.
  while ((status.ok() || absl::IsDataLoss(status)) && MonotonicNow() - begin < absl::Seconds(20)) {
    status = Sums(*place, 2);
    if (!status.ok() && !absl::IsDataLoss(status)) break;
    const Status agreed = place->groups->world().Run(Call::Barrier().At("the end of a step").Within(absl::Seconds(10)));
    if (!agreed.ok()) status = agreed;
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("all_reduce sum f32[16] at train.lua:88"));
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(15));
  std::printf("%s\n", std::string(status.message()).c_str());
}

TEST(Rank, OneDevice) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(getenv("MSLUA_TEST_ALWAYS") != nullptr ? NcclUse::kAlways : NcclUse::kWherePossible, 0);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  const Status status = Sums(*place, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 and rank 1 use one device"));
}

// Every function fails at each of its calls in turn: in both ranks at once.
#define NAME_OF(name, parameters) #name,
constexpr const char* kFunctions[] = {MSLUA_NCCL(NAME_OF) "cuDeviceGetUuid_v2",
                                      "cuEventCreate",
                                      "cuEventRecord",
                                      "cuEventRecordWithFlags",
                                      "cuEventQuery",
                                      "cuStreamBeginCapture_v2",
                                      "cuStreamEndCapture",
                                      "cuGraphInstantiateWithFlags",
                                      "cuGraphLaunch",
                                      "cuStreamWaitEvent",
                                      "cuStreamQuery",
                                      "cuStreamCreate"};
#undef NAME_OF

TEST(Rank, Failures) {
  if (getenv(kVariable) == nullptr) GTEST_SKIP() << "started by Nccl";
  auto joined = Join(NcclUse::kAlways);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Place* const place = joined->get();
  const auto emulation = testing::FindEmulation();
  ASSERT_TRUE(emulation.ok()) << emulation.status();
  const std::string fails = getenv("MSLUA_TEST_FAILS");
  const size_t colon = fails.find(':');
  const int before = emulation->held();
  emulation->fail(fails.substr(0, colon).c_str(), std::atoi(fails.c_str() + colon + 1));
  const auto work = [&]() -> Status {
    RETURN_IF_ERROR(Sums(*place, 3));
    const std::vector<int64_t> ranks = {0, 1};
    ASSIGN_OR_RETURN(NcclGroup* const group, place->world->Get(ranks, "train.lua:1"));
    ASSIGN_OR_RETURN(DeviceStream stream, place->device->MakeStream());
    ASSIGN_OR_RETURN(DeviceMemory memory, place->device->Allocate(256));
    char* const base = static_cast<char*>(memory.data());
    RETURN_IF_ERROR(stream.Fill(base, 0, 256));
    for (const Call& call : {Call::AllToAll(DType::kF32, base, base + 128, 4), Call::Broadcast(DType::kF32, base, 4, 1),
                             Call::AllGather(DType::kF32, base, base + 128, 4),
                             Call::Reduce(ReduceOp::kSum, DType::kF32, base, base, 4, 0),
                             Call::ReduceScatter(ReduceOp::kSum, DType::kF32, base, base + 128, 4)}) {
      RETURN_IF_ERROR(group->Enqueue(Call(call).At("train.lua:88"), stream).status());
    }
    RETURN_IF_ERROR(place->world->Wait(stream));
    ASSIGN_OR_RETURN(const auto executable, CapturedSums(*place));
    const std::vector<float> x(16, 0.5f);
    for (int run = 0; run < 3; ++run) {
      RETURN_IF_ERROR(executable->BindInput("x", x.data()));
      RETURN_IF_ERROR(executable->Run());
    }
    return absl::OkStatus();
  };
  const Status status = work();
  const bool failed = emulation->failed();
  emulation->fail("", 0);
  // What ends things has nobody to tell.
  const bool ends = absl::StartsWith(fails, "ncclCommFinalize") || absl::StartsWith(fails, "ncclCommDestroy") ||
                    absl::StartsWith(fails, "ncclCommAbort");
  const std::string text(status.message());
  EXPECT_TRUE(!failed || ends || !status.ok()) << fails;
  // Its own failure, or the other rank's.
  EXPECT_TRUE(status.ok() || absl::StrContains(text, fails.substr(0, colon))) << fails << ": " << text;
  place->world.reset();
  EXPECT_LE(emulation->held(), before) << fails;
  // 3: this call was never made.
  if (!failed && !::testing::Test::HasFailure()) _exit(3);
}

// tools/gpu_check runs this one on a real device too.
TEST(Nccl, OneRankConforms) {
  Ranks ranks(1, "Conformance");
  EXPECT_EQ(ranks.Wait(0), 0);
}

TEST(Nccl, Conformance) {
  for (int n = 2; n <= 8; ++n) {
    Ranks ranks(n, "Conformance");
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r << " of " << n;
  }
}

TEST(Nccl, GraphsGiveWhatTheyGiveOnTheCpu) {
  for (int n : {2, 4}) {
    Ranks ranks(n, "Graphs");
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r << " of " << n;
  }
}

TEST(Nccl, AStepIsOneCapturedGraph) {
  for (int n : {2, 3}) {
    Ranks ranks(n, "OneGraph");
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r << " of " << n;
  }
}

TEST(Nccl, BucketsGiveTheBitsOfReductionsAlone) {
  for (int n : {2, 4}) {
    Ranks ranks(n, "Buckets");
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r << " of " << n;
  }
}

TEST(Nccl, LostAndStoppedRanksAreNamed) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Ranks ranks(3, "UntilDeath");
    ranks.AwaitRunning();
    ranks.Signal(1, signal);
    EXPECT_EQ(ranks.Wait(0), 0);
    EXPECT_EQ(ranks.Wait(2), 0);
    ranks.Signal(1, SIGKILL);
    EXPECT_EQ(ranks.Wait(1), -SIGKILL);
  }
}

// Two ranks for each fault of rank 1, side by side: they wait most of the time.
void ExpectFaultsAreNoticed(const std::string& part, int call) {
  constexpr const char* kFaults[] = {"hang", "skip", "error"};
  std::vector<std::unique_ptr<Ranks>> pairs;
  for (const char* fault : kFaults) {
    setenv("EMULATED_NCCL_FAULT", absl::StrCat(fault, ":1:", call).c_str(), 1);
    pairs.push_back(std::make_unique<Ranks>(2, part));
  }
  unsetenv("EMULATED_NCCL_FAULT");
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (int r = 0; r < 2; ++r) EXPECT_EQ(pairs[i]->Wait(r), 0) << kFaults[i] << ", rank " << r;
  }
}

TEST(Nccl, FaultsEndAllRanks) { ExpectFaultsAreNoticed("Fault", 5); }

TEST(Nccl, CallsOfACapturedStepAreWatched) {
  ExpectFaultsAreNoticed("CapturedUntilDeath", 9);
  Ranks ranks(2, "CapturedUntilDeath");
  ranks.AwaitRunning();
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), -SIGKILL);
}

TEST(Nccl, NeedsADeviceForEachRank) {
  for (const bool always : {false, true}) {
    if (always) setenv("MSLUA_TEST_ALWAYS", "1", 1);
    Ranks ranks(2, "OneDevice");
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r;
  }
  unsetenv("MSLUA_TEST_ALWAYS");
}

TEST(Nccl, EveryFailureIsOneError) {
  int pairs = 0, functions = 0;
  for (const char* name : kFunctions) {
    // The first calls; what comes later is more of the same.
    for (int call = 1; call <= 3; ++call) {
      setenv("MSLUA_TEST_FAILS", absl::StrCat(name, ":", call).c_str(), 1);
      Ranks ranks(2, "Failures");
      const int first = ranks.Wait(0), second = ranks.Wait(1);
      EXPECT_TRUE(first == 0 || first == 3) << name << ", call " << call;
      EXPECT_TRUE(second == 0 || second == 3) << name << ", call " << call;
      if (first == 3 && second == 3) break;
      ++pairs;
      functions += call == 1 ? 1 : 0;
    }
  }
  unsetenv("MSLUA_TEST_FAILS");
  std::printf("%d pairs of function and call, of %d functions\n", pairs, functions);
  EXPECT_GT(pairs, 30);
}

}  // namespace
}  // namespace mslua
