// A step on the emulated device as a whole: what it takes of memory, steps that are begun before the one before them is
// done, a hundred orders of the streams' work, launches that are checked one by one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/device.h"
#include "core/graph/builder.h"
#include "core/op/device_text.h"
#include "core/op/registry.h"
#include "core/runtime/device_layout.h"
#include "core/runtime/device_run.h"
#include "core/runtime/executable.h"
#include "core/runtime/profile.h"
#include "core/runtime/store_snapshot.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

constexpr int64_t kRows = 16, kColumns = 80, kClasses = 10;

// A product with labels, and its update; x is large enough to be copied ahead, the labels are not.
Graph Step(const std::string& extra = "") {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {kRows, kColumns}}),
              labels = g.Input("labels", kData, {DType::kI32, {kRows}}),
              w = g.Input("w", kParameter, {DType::kF32, {kColumns, kClasses}}),
              lr = g.Input("lr", kScalar, {DType::kF32, {}});
  const Value y = g.Op("tanh", {g.Op("matmul", {x, w})});
  const Value loss = g.OpMulti("sparse_softmax_cross_entropy", {y, labels}, {})[0];
  g.Output("loss", extra.empty() ? loss : g.Op(extra, {loss}));
  g.Output("logits", y);
  const Value back = g.Op("matmul", {x, y}, {{"transpose_a", true}});
  g.Output("w", Sub(g, w, Mul(g, back, lr)), "w");
  return *g.Finish();
}

class StepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(testing::UseEmulatedDevice().ok());
    auto device = Device::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    auto emulation = testing::FindEmulation();
    ASSERT_TRUE(emulation.ok()) << emulation.status();
    emulation_ = *emulation;
    emulation_.forget();
    emulation_.order("forward", 1);
  }

  StatusOr<std::unique_ptr<Executable>> Make(Store* store, bool check = false) {
    ASSIGN_OR_RETURN(const TensorView w, store->Add("w", kParameter, {DType::kF32, {kColumns, kClasses}}));
    for (int i = 0; i < kColumns * kClasses; ++i) w.as<float>()[i] = 0.01f * static_cast<float>(i % 17);
    CompileOptions options;
    options.device = device_;
    device_->CheckLaunches(check);
    return Executable::Compile(Step(), store, options);
  }
  // Batch number `step`, in memory that is overwritten as soon as the step has been begun.
  void Bind(Executable* e, int step) {
    x_.assign(kRows * kColumns, 0);
    for (size_t i = 0; i < x_.size(); ++i)
      x_[i] = 0.001f * static_cast<float>((i * 7 + static_cast<size_t>(step) * 13) % 101);
    labels_.assign(kRows, static_cast<int32_t>(step % kClasses));
    ASSERT_TRUE(e->BindInput("x", x_.data()).ok());
    ASSERT_TRUE(e->BindInput("labels", labels_.data()).ok());
    ASSERT_TRUE(e->SetScalar("lr", 0.1 / (step + 1)).ok());
  }
  void Spoil() {
    std::fill(x_.begin(), x_.end(), -1e9f);
    std::fill(labels_.begin(), labels_.end(), 3);
  }
  static std::string Bits(const TensorView& t) {
    return std::string(static_cast<const char*>(t.data), static_cast<size_t>(t.type.bytes()));
  }
  // Losses, logits and the last parameter of some steps, `ahead` of which are on their way.
  std::string Train(unsigned seed, int ahead, bool check = false) {
    emulation_.order(seed % 3 == 0 ? "forward" : seed % 3 == 1 ? "backward" : "random", seed);
    Store store;
    auto e = Make(&store, check);
    EXPECT_TRUE(e.ok()) << e.status();
    if (!e.ok()) return "";
    std::string bits;
    const auto finish = [&] {
      const Status status = DeviceRunOf(e->get())->Finish();
      EXPECT_TRUE(status.ok()) << status;
      bits += Bits((*e)->Output(0)) + Bits((*e)->Output(1));
    };
    constexpr int kSteps = 6;
    for (int step = 0; step < kSteps; ++step) {
      Bind(e->get(), step);
      const Status status = DeviceRunOf(e->get())->Start();
      EXPECT_TRUE(status.ok()) << status;
      Spoil();
      if (step + 1 >= ahead) finish();
    }
    for (int left = 1; left < ahead; ++left) finish();
    const auto w = store.Read(*store.Find("w"));
    EXPECT_TRUE(w.ok()) << w.status();
    return w.ok() ? bits + Bits(*w) : "";
  }

  Device* device_ = nullptr;
  testing::Emulation emulation_ = {};
  std::vector<float> x_;
  std::vector<int32_t> labels_;
};

TEST_F(StepTest, StepsThatAreBegunAheadGiveTheSameBitsInAHundredOrdersOfStreams) {
  const std::string wanted = Train(1, 1);
  ASSERT_FALSE(wanted.empty());
  for (unsigned seed = 1; seed <= 100; ++seed) ASSERT_EQ(Train(seed, 2), wanted) << "seed " << seed;
  EXPECT_EQ(Train(2, 1, /*check=*/true), wanted);
}

// A rule of an optimizer with the attributes of one sample.
struct UpdateRule {
  const OpDef* op;
  const Sample* sample;
};

// Adds the rule's updates of tensors of several sizes, whose last elements fill no block or no 16 bytes; names begin
// with `prefix`. False where the rule is not one of equal shapes.
bool AddUpdates(const UpdateRule& rule, DType type, const std::string& prefix, GraphBuilder& g) {
  const std::vector<Shape> shapes = {{3, 7}, {64}, {2}, {1000, 5}, {4096}, {8193}};
  std::map<size_t, Value> scalars;  // by operand, the same for all tensors
  const std::vector<TensorType>& inputs = rule.sample->inputs;
  for (size_t s = 0; s < shapes.size(); ++s) {
    std::vector<Value> in;
    std::vector<std::string> stored;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType& t = inputs[i];
      const bool tensor = t.shape == inputs[0].shape;
      if (!tensor && !t.shape.empty()) return false;  // means of rows and columns
      if (!tensor && s == 0) scalars[i] = g.Input(absl::StrCat(prefix, "n", i), kScalar, {DType::kF32, {}});
      if (!tensor) in.push_back(scalars[i]);
      if (!tensor) continue;
      const std::string name = absl::StrCat(prefix, "t", s, ".", i);
      in.push_back(g.Input(name, i == 1 ? kData : i == 0 ? kParameter : kState, {i < 2 ? type : t.dtype, shapes[s]}));
      if (i != 1) stored.push_back(name);
    }
    const std::vector<Value> next = g.OpMulti(rule.op->name, in, rule.sample->attrs);
    for (size_t o = 0; o < next.size() && o < stored.size(); ++o) {
      // A wrapper's result is a gradient.
      if (g.graph().TypeOf(next[o]) != g.graph().nodes[g.graph().FindInput(stored[o])].outputs[0]) return false;
      g.Output(absl::StrCat("new ", stored[o]), next[o], stored[o]);
    }
  }
  return true;
}

// The updates of every optimizer: in one launch where they are elementwise, and in any case with the bits of launches
// one by one.
TEST_F(StepTest, UpdatesInOneLaunchHaveTheBitsOfUpdatesAlone) {
  int updates = 0, together = 0;
  // Some in one graph, each with a line of its own: fewer programs to compile.
  constexpr size_t kTogether = 4;
  std::map<DType, std::vector<std::vector<UpdateRule>>> parts;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const OpDef& op : Operators().all()) {
      if (!absl::StartsWith(op.name, "apply_")) continue;
      for (const Sample& sample : op.samples) {
        GraphBuilder alone;
        if (!AddUpdates({&op, &sample}, type, "", alone) || !alone.Finish().ok()) continue;  // types that do not fit
        if (parts[type].empty() || parts[type].back().size() == kTogether) parts[type].emplace_back();
        parts[type].back().push_back({&op, &sample});
        ++updates;
      }
    }
  }
  const auto check = [&](DType type, const std::vector<UpdateRule>& rules) {
    GraphBuilder all;
    for (size_t r = 0; r < rules.size(); ++r) {
      auto line = std::make_shared<Location>();
      line->file = rules[r].op->name;
      line->line = static_cast<int>(r);
      all.SetLocation(line);
      AddUpdates(rules[r], type, absl::StrCat(r, " "), all);
    }
    const auto graph = all.Finish();
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto rule_of = [](const std::string& name) { return std::atoi(name.c_str()); };
    std::vector<std::string> bits[2];
    for (const bool alone : {false, true}) {
      bits[alone].resize(rules.size());
      Store store;
      std::vector<std::vector<char>> gradients;
      const auto fill = [&](const TensorType& t, void* to, int64_t from) {
        for (int64_t e = 0; e < t.elements(); ++e)
          StoreDouble(t.dtype, to, e, 0.01 * static_cast<double>(1 + (e * 7 + from * 13) % 101));
      };
      for (const int32_t i : graph->Inputs()) {
        const Node& n = graph->nodes[i];
        const std::string& kind = n.attrs.Str("kind");
        if (kind != kParameter && kind != kState) continue;
        const auto t = store.Add(n.attrs.Str("name"), kind, n.outputs[0]);
        ASSERT_TRUE(t.ok()) << t.status();
        fill(t->type, t->data, i);
      }
      CompileOptions options;
      options.device = device_;
      device_->CheckLaunches(alone);
      const auto e = Executable::Compile(*graph, &store, options);
      ASSERT_TRUE(e.ok()) << e.status();
      for (const int32_t i : graph->Inputs()) {
        const Node& n = graph->nodes[i];
        const std::string& name = n.attrs.Str("name");
        if (n.attrs.Str("kind") == kScalar && (*e)->graph().FindInput(name) >= 0) {
          const double low = rules[static_cast<size_t>(rule_of(name))].sample->low;
          ASSERT_TRUE((*e)->SetScalar(name, low > 0 ? low : 0.3).ok());
        }
        if (n.attrs.Str("kind") != kData) continue;
        gradients.emplace_back(static_cast<size_t>(n.outputs[0].bytes()));
        fill(n.outputs[0], gradients.back().data(), i);
        ASSERT_TRUE((*e)->BindInput(name, gradients.back().data()).ok());
      }
      // The second and the third run are captured.
      for (int run = 0; run < 3; ++run) {
        const Status status = (*e)->Run();
        ASSERT_TRUE(status.ok()) << status;
      }
      for (const GraphOutput& o : graph->outputs) {
        const auto value = store.Read(*store.Find(o.updates));
        ASSERT_TRUE(value.ok()) << value.status();
        bits[alone][static_cast<size_t>(rule_of(o.updates))] += Bits(*value);
      }
      if (alone) continue;
      // Launches of more than numbers, and whether there is anything but updates.
      std::vector<int> launches(rules.size(), 0);
      std::vector<bool> elementwise(rules.size(), true);
      for (const auto& [node, kernel] : (*e)->launches()) {
        const Node& n = (*e)->graph().nodes[node];
        ASSERT_NE(n.location, nullptr) << n.op->name;
        const auto rule = static_cast<size_t>(n.location->line);
        elementwise[rule] = elementwise[rule] && n.op->name == "fused";
        launches[rule] += n.outputs[0].elements() > 1;
      }
      for (size_t r = 0; r < rules.size(); ++r) {
        if (!elementwise[r]) continue;
        ++together;
        EXPECT_EQ(launches[r], 1) << rules[r].op->name << " " << Name(type);
      }
    }
    for (size_t r = 0; r < rules.size(); ++r)
      EXPECT_TRUE(bits[0][r] == bits[1][r]) << rules[r].op->name << " " << Name(type);
  };
  for (const auto& [type, all] : parts) {
    for (const std::vector<UpdateRule>& rules : all) check(type, rules);
  }
  device_->CheckLaunches(false);
  std::printf("%d updates, %d of them elementwise\n", updates, together);
  EXPECT_GE(together, 29);
}

TEST_F(StepTest, AStepTooManyIsAnError) {
  Store store;
  const auto e = Make(&store);
  ASSERT_TRUE(e.ok()) << e.status();
  ASSERT_EQ(DeviceRunOf(e->get())->StepsAhead(), 2);
  Bind(e->get(), 0);
  ASSERT_TRUE(DeviceRunOf(e->get())->Start().ok());
  ASSERT_TRUE(DeviceRunOf(e->get())->Start().ok());
  EXPECT_FALSE(DeviceRunOf(e->get())->Start().ok());
  ASSERT_TRUE(DeviceRunOf(e->get())->Finish().ok());
  ASSERT_TRUE(DeviceRunOf(e->get())->Finish().ok());
  EXPECT_FALSE(DeviceRunOf(e->get())->Finish().ok());
}

// A snapshot is of the moment at which it was taken, in any order of the streams' work: the step that follows changes
// the parameter, and has ended, before the snapshot is read.
TEST_F(StepTest, ASnapshotHasTheValuesOfItsMomentInAHundredOrdersOfStreams) {
  constexpr size_t kBytes = kColumns * kClasses * sizeof(float);
  constexpr size_t kTimes = 12;     // so often w is in the snapshot, so that a copy comes late in most orders
  std::vector<std::string> wanted;  // w after each step
  for (unsigned seed = 0; seed <= 100; ++seed) {
    emulation_.order("forward", seed);
    Store store;
    const auto e = Make(&store);
    ASSERT_TRUE(e.ok()) << e.status();
    const auto host = store.Add("host", kState, {DType::kF32, {1}});
    ASSERT_TRUE(host.ok());
    const auto before = device_->FreeBytes();
    std::vector<const Store::Entry*> entries(kTimes, store.Find("w"));
    entries.push_back(store.Find("host"));
    const auto reserved = SnapshotsOf(store)->Reserve(entries);
    ASSERT_TRUE(reserved.ok()) << reserved.status();
    EXPECT_EQ(*reserved, static_cast<int64_t>(kTimes) * SnapshotBytes((*e)->graph()));
    EXPECT_EQ(*before - *device_->FreeBytes(), *reserved);
    for (int step = 0; step < 6; ++step) {
      store.Open(*store.Find("host"));  // until the step
      *host->as<float>() = 5;
      std::unique_ptr<StoreSnapshot> snapshot;
      if (step > 0 && seed > 0) {
        auto taken = SnapshotsOf(store)->Take();
        ASSERT_TRUE(taken.ok()) << taken.status();
        snapshot = *std::move(taken);
      }
      *host->as<float>() = 6;
      Bind(e->get(), step);
      ASSERT_TRUE((*e)->Run().ok());
      if (seed == 0) wanted.push_back(Bits(*store.Read(*store.Find("w"))));
      if (snapshot == nullptr) continue;
      std::string w(kBytes, '?');
      float other = 0;
      for (size_t i = 0; i < kTimes; ++i) {
        ASSERT_TRUE(snapshot->Read(i, &w[0]).ok());
        ASSERT_EQ(w, wanted[static_cast<size_t>(step) - 1]) << "seed " << seed << ", step " << step;
      }
      ASSERT_TRUE(snapshot->Read(kTimes, &other).ok());
      ASSERT_EQ(other, 5);
    }
  }
  EXPECT_NE(wanted[0], wanted[5]);
}

TEST_F(StepTest, TakesTheMemoryThatAPlanSays) {
  const auto before = device_->FreeBytes();
  Store store;
  const auto e = Make(&store);
  ASSERT_TRUE(e.ok()) << e.status();
  const auto after = device_->FreeBytes();
  ASSERT_TRUE(before.ok() && after.ok());
  const auto plan = PlanOnDevice((*e)->graph());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device_bytes, *before - *after);
  EXPECT_EQ(plan->device_bytes, DeviceRunOf(e->get())->device_bytes());
}

TEST_F(StepTest, AnOutputOfTheStoreIsTheValueBeforeTheStep) {
  for (const int64_t n : {int64_t{1}, int64_t{5000}}) {
    GraphBuilder g;
    const Value s = g.Input("s", kState, {DType::kF32, {n}});
    g.Output("before", s);
    g.Output("s", Mul(g, s, g.Constant(10, DType::kF32, {n})), "s");
    Store store;
    const auto value = store.Add("s", kState, {DType::kF32, {n}});
    ASSERT_TRUE(value.ok());
    std::fill_n(value->as<float>(), n, 2.0f);
    CompileOptions options;
    options.device = device_;
    const auto e = Executable::Compile(*g.Finish(), &store, options);
    ASSERT_TRUE(e.ok()) << e.status();
    for (const float want : {2.0f, 20.0f}) {
      ASSERT_TRUE((*e)->Run().ok());
      const TensorView before = (*e)->Output(0);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(before.as<float>()[i], want) << n << " elements, number " << i;
    }
    EXPECT_EQ(store.Read(*store.Find("s"))->as<float>()[n - 1], 200.0f);
  }
}

TEST_F(StepTest, AWrongLabelIsNamedInTheStepThatHasIt) {
  Store store;
  const auto e = Make(&store);
  ASSERT_TRUE(e.ok()) << e.status();
  Bind(e->get(), 0);
  labels_[5] = 77;
  ASSERT_TRUE(DeviceRunOf(e->get())->Start().ok());
  Bind(e->get(), 1);
  ASSERT_TRUE(DeviceRunOf(e->get())->Start().ok());
  const Status first = DeviceRunOf(e->get())->Finish();
  EXPECT_TRUE(absl::StrContains(first.message(), "77")) << first;
  // The fault of one step is none of the next.
  const Status second = DeviceRunOf(e->get())->Finish();
  EXPECT_TRUE(second.ok()) << second;
}

TEST_F(StepTest, AFailureOfTheDeviceNamesTheRunAndTheWayToLearnMore) {
  Store store;
  const auto e = Make(&store);
  ASSERT_TRUE(e.ok()) << e.status();
  Bind(e->get(), 0);
  ASSERT_TRUE((*e)->Run().ok());
  emulation_.fail("cuGraphLaunch", 1);
  const Status status = (*e)->Run();
  emulation_.fail("", 0);
  EXPECT_TRUE(absl::StrContains(status.message(), "run 2 of a graph of")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "device_check")) << status;
}

// An operator whose kernel writes one element too many.
TEST_F(StepTest, ACheckedLaunchThatWritesBehindItsOutputIsNamed) {
  const OpDef* const found = Operators().Find("softmax");
  ASSERT_NE(found, nullptr);
  OpDef& op = const_cast<OpDef&>(*found);
  const DeviceFn right = op.device;
  op.device = [right](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(DeviceProgram program, right(spec));
    program.steps[0].text += absl::StrCat("\n  y0[", spec.outputs[0].elements(), "] = 1;\n");
    return program;
  };
  CompileOptions options;
  options.device = device_;
  device_->CheckLaunches(true);
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {3, 5}});
  g.Output("y", g.Op("softmax", {x}));
  const auto graph = g.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto e = Executable::Compile(*graph, nullptr, options);
  op.device = right;
  device_->CheckLaunches(false);
  ASSERT_TRUE(e.ok()) << e.status();
  const std::vector<float> data(15, 0.5f);
  ASSERT_TRUE((*e)->BindInput("x", data.data()).ok());
  const Status status = (*e)->Run();
  EXPECT_TRUE(absl::StrContains(status.message(), "softmax, cuda kernel 1 of")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "writes behind the end of its memory")) << status;
}

TEST_F(StepTest, TheProfileHasCeilingsOfTheDeviceAndBothTotals) {
  Store store;
  const auto e = Make(&store);
  ASSERT_TRUE(e.ok()) << e.status();
  Bind(e->get(), 0);
  ::testing::internal::CaptureStdout();
  const Status status = ReportProfile(
      e->get(), [&] { return (*e)->Run(); }, 3, false, false, "");
  const std::string report = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status;
  for (const char* word :
       {"device: ", "TFLOP/s f32", "us a launch", "launches one by one", "captured step", "32 registers", "cublas"})
    EXPECT_TRUE(absl::StrContains(report, word)) << word << "\n" << report;
}

}  // namespace
}  // namespace mslua
