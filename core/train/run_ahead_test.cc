// A step that begins while another runs changes nothing that anybody sees: lines, hooks, errors, what is left.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/data/dataset.h"
#include "core/data/loader.h"
#include "core/data/source.h"
#include "core/data/testing/memory_sources.h"
#include "core/graph/builder.h"
#include "core/train/trainer.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kBatch = 2;

struct Plan {
  int64_t steps_per_epoch = 4, epochs = 2, max_steps = 0;
  int64_t fails_at = -1, nan_at = -1, cannot_start_at = -1;  // steps, from 0
  int64_t stands_every = 0, stops_at = 0, asks_at = 0;       // of hooks: boundaries; 0: never
  bool stop_is_done = false;                                 // the stop ends training as done
};

// A device that has done a step's work when the step begins, and tells its loss when it ends.
class AtOnce : public Executable, public DeviceRun {
 public:
  AtOnce(const Plan& plan, int steps_ahead) : plan_(plan), steps_ahead_(steps_ahead) {
    GraphBuilder g;
    const Value w = g.Input("w", kParameter, {DType::kF32, {}});
    inputs_ = {"w", "x", "label", "lr", "step"};
    g.Input("x", kData, {DType::kF32, {kBatch}});
    g.Input("label", kData, {DType::kI32, {kBatch}});
    g.Input("lr", kScalar, {DType::kF32, {}});
    g.Input("step", kScalar, {DType::kF32, {}});
    g.Output("loss", w);
    graph_ = *g.Finish();
  }

  Status Start() override {
    if (started_ - finished_ >= steps_ahead_) return absl::InternalError("a step too many");
    if (started_ == plan_.cannot_start_at) return absl::UnavailableError("device: cuLaunchKernel failed");
    const auto* const x = static_cast<const float*>(data_[1]);
    const auto* const label = static_cast<const int32_t*>(data_[2]);
    w_ = 0.9f * w_ + static_cast<float>(scalars_[3]) * (x[0] + x[1]) + static_cast<float>(0.01 * scalars_[4]);
    Slot& slot = slots_[started_ % 2];
    slot.loss = started_ == plan_.nan_at ? std::nanf("") : w_;
    slot.label = label[1];
    order_.push_back(absl::StrCat("start ", started_++));
    return absl::OkStatus();
  }
  Status Finish() override {
    if (started_ == finished_) return absl::InternalError("no step");
    order_.push_back(absl::StrCat("finish ", finished_));
    const int64_t step = finished_++;
    if (step != plan_.fails_at) return absl::OkStatus();
    Status wrong = absl::InvalidArgumentError("a label is wrong");
    wrong.SetPayload("mslua/record", absl::Cord(absl::StrCat("1 ", kBatch, " ", slots_[step % 2].label)));
    return wrong;
  }
  int StepsAhead() const override { return steps_ahead_; }
  TensorView Output(int) const override {
    return {{DType::kF32, {}}, const_cast<float*>(&slots_[(finished_ + 1) % 2].loss)};
  }
  void BindInputAt(int position, const void* data) override { data_[position] = data; }
  bool BindOutput(int i, void* data) override { return false; }
  void SetScalarAt(int position, double value) override { scalars_[position] = value; }

  // Of the store: of the last step that has begun.
  float w() const { return w_; }
  bool runs() const { return started_ > finished_; }
  const std::vector<std::string>& order() const { return order_; }

  Status Run() override { return absl::InternalError("run whole"); }
  Status BindInput(absl::string_view, const void*) override { return absl::UnimplementedError("by name"); }
  Status SetScalar(absl::string_view, double) override { return absl::UnimplementedError("by name"); }
  const Graph& graph() const override { return graph_; }
  const std::vector<std::string>& inputs() const override { return inputs_; }
  const PlanReport& report() const override { return report_; }
  void SetTimeline(std::vector<int64_t>*) override {}
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return launches_; }
  const std::vector<ArenaEntry>& arena() const override { return arena_; }
  Device* device() const override { return nullptr; }
  int64_t device_bytes() const override { return 0; }
  KernelUse UseOf(size_t) const override { return {}; }
  absl::Span<const int32_t> NodesOf(size_t) const override { return {}; }

 private:
  struct Slot {
    float loss = 0;
    int32_t label = 0;
  };
  const Plan plan_;
  const int steps_ahead_;
  Graph graph_;
  std::vector<std::string> inputs_;
  const void* data_[5] = {};
  double scalars_[5] = {};
  float w_ = 1;
  Slot slots_[2];
  int64_t started_ = 0, finished_ = 0;
  std::vector<std::string> order_;
  PlanReport report_;
  std::vector<std::pair<int32_t, const char*>> launches_;
  std::vector<ArenaEntry> arena_;
};

std::string At(const TrainState& s) {
  return absl::StrCat(s.step, " (", s.epoch, ", ", s.step_in_epoch, ") samples ", s.samples, " loss ", s.loss);
}

// What every hook sees, in order.
struct Seen {
  AtOnce* device = nullptr;
  Trainer* trainer = nullptr;
  std::vector<std::string> events;
};

class Reader : public TrainHook {
 public:
  Reader(Seen* seen, int64_t asks_at) : seen_(seen), asks_at_(asks_at) {}
  int64_t NextStep(const TrainState& s) override { return done_ == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override {
    done_ = s.step;
    seen_->events.push_back(absl::StrCat("read ", At(s), " output ",
                                         *seen_->trainer->executable()->Output(0).as<float>(), " rate ",
                                         seen_->trainer->ScalarNow(0)));
    if (s.step != asks_at_) return absl::OkStatus();
    seen_->trainer->RequestBoundary();
    passed_ = seen_->trainer->progress().boundary.load();
    return absl::OkStatus();
  }
  int64_t passed() const { return passed_; }

 private:
  Seen* const seen_;
  const int64_t asks_at_;
  int64_t done_ = -1, passed_ = -1;
};

// Looks at the store, and may stop the training.
class Stander : public TrainHook {
 public:
  Stander(Seen* seen, const Plan& plan) : seen_(seen), plan_(plan) {}
  int64_t NextStep(const TrainState& s) override {
    const auto next = [&](int64_t every) { return (s.step / every + (done_ == s.step ? 1 : 0)) * every; };
    int64_t step = plan_.stands_every > 0 ? std::max(next(plan_.stands_every), s.step) : INT64_MAX;
    if (plan_.stops_at > s.step || (plan_.stops_at == s.step && done_ < s.step)) step = std::min(step, plan_.stops_at);
    return step;
  }
  Status AtStep(const TrainState& s) override {
    const bool due = s.step == plan_.stops_at || (plan_.stands_every > 0 && s.step % plan_.stands_every == 0);
    if (!due) return absl::OkStatus();
    done_ = s.step;
    RETURN_IF_ERROR(See("stand", s));
    if (s.step > 0 && s.step == plan_.stops_at) seen_->trainer->RequestStop();
    return absl::OkStatus();
  }
  Status AtEpochBegin(const TrainState& s) override { return See("begin", s); }
  Status AtEpochEnd(const TrainState& s) override { return See("end", s); }
  Status AtLastStep(const TrainState& s) override { return See("last", s); }
  void AtEnd(const TrainState& s, const Status& outcome) override {
    EXPECT_FALSE(seen_->device->runs());
    seen_->events.push_back(absl::StrCat("over ", At(s), " whole ", s.whole, " ", outcome.ToString()));
    if (s.whole) See("whole", s).IgnoreError();
  }

 private:
  Status See(const char* what, const TrainState& s) {
    EXPECT_FALSE(seen_->device->runs()) << what << " at step " << s.step;
    seen_->events.push_back(absl::StrCat(what, " ", At(s), " w ", seen_->device->w()));
    return absl::OkStatus();
  }
  Seen* const seen_;
  const Plan plan_;
  int64_t done_ = -1;
};

class Listener : public BoundaryListener {
 public:
  explicit Listener(Seen* seen) : seen_(seen) {}
  Status AtBoundary(const TrainState& s) override {
    EXPECT_FALSE(seen_->device->runs());
    heard_ = s.step;
    return absl::OkStatus();
  }
  StatusOr<bool> AtLoss(const TrainState&, bool bad) override { return bad; }
  int64_t heard() const { return heard_; }

 private:
  Seen* const seen_;
  int64_t heard_ = -1;
};

struct Result {
  std::vector<std::string> events, order;
  std::string printed;
  int64_t passed = -1, heard = -1;
  TrainState state;
};

Result Train(const Plan& plan, int steps_ahead) {
  const int64_t rows = plan.steps_per_epoch * kBatch;
  auto x = std::make_shared<std::vector<float>>();
  auto label = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < rows; ++i) {
    x->push_back(std::sin(static_cast<float>(i)));
    label->push_back(static_cast<int32_t>(i));
  }
  data::Dataset set(data::NumpySlices(
      {{"x", {DType::kF32, {rows}}, {x, x->data()}}, {"label", {DType::kI32, {rows}}, {label, label->data()}}}));
  data::Loader loader(*data::Pipeline::Open(set.Batch({kBatch}), data::FeedOptions()), data::LoaderOptions());

  ScheduleDef halves("halves");
  halves.Rate([](const ScheduleSettings&, int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  Schedule rate;
  rate.def = &halves;
  TrainerOptions options;
  options.epochs = plan.epochs;
  options.max_steps = plan.max_steps;
  options.done = [&plan] { return plan.stop_is_done; };
  std::FILE* const out = std::tmpfile();
  Result result;
  {
    Console console(Console::Options(), out);
    AtOnce device(plan, steps_ahead);
    std::vector<ScheduledScalar> scalars(1);
    scalars[0].input = "lr";
    scalars[0].schedule = rate;
    const auto trainer = *Trainer::Create(&device, &loader, std::move(scalars), options, &console);
    Seen seen{&device, trainer.get(), {}};
    Reader reader(&seen, plan.asks_at);
    Stander stander(&seen, plan);
    Listener listener(&seen);
    trainer->AddHook(&reader);
    trainer->AddHook(&stander);
    trainer->SetBoundaryListener(&listener);
    trainer->Run().IgnoreError();
    result.events = seen.events;
    result.order = device.order();
    result.passed = reader.passed();
    result.heard = listener.heard();
    result.state = trainer->state();
  }
  std::rewind(out);
  char text[1 << 12];
  for (size_t n; (n = std::fread(text, 1, sizeof text, out)) > 0;) result.printed.append(text, n);
  std::fclose(out);
  return result;
}

// A hook's wish ends training as its last epoch does; a signal breaks it off.
TEST(Stop, HooksHearOfTheLastStepWhereTrainingIsDone) {
  for (const int steps_ahead : {1, 2}) {
    for (const int64_t at : {3, 4, 5}) {
      Plan plan;
      plan.stops_at = at;
      const auto lasts = [&] {
        std::vector<std::string> lasts;
        for (const std::string& event : Train(plan, steps_ahead).events) {
          if (event.rfind("last ", 0) == 0) lasts.push_back(event.substr(0, 6));
        }
        return lasts;
      };
      EXPECT_EQ(lasts(), std::vector<std::string>());
      plan.stop_is_done = true;
      EXPECT_EQ(lasts(), std::vector<std::string>{absl::StrCat("last ", at)});
    }
  }
}

TEST(RunAhead, BeginsTheNextStepBeforeTheLossIsRead) {
  Plan plan;
  plan.epochs = 1;
  EXPECT_EQ(Train(plan, 1).order, (std::vector<std::string>{"start 0", "finish 0", "start 1", "finish 1", "start 2",
                                                            "finish 2", "start 3", "finish 3"}));
  EXPECT_EQ(Train(plan, 2).order, (std::vector<std::string>{"start 0", "finish 0", "start 1", "start 2", "finish 1",
                                                            "start 3", "finish 2", "finish 3"}));
}

TEST(RunAhead, NothingIsSeenOfIt) {
  int ahead = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    Plan plan;
    plan.steps_per_epoch = 1 + below(7);
    plan.epochs = 1 + below(4);
    const int64_t all = plan.steps_per_epoch * plan.epochs;
    if (below(3) == 0) plan.max_steps = 1 + below(all + 2);
    if (below(2) == 0) plan.stands_every = 1 + below(5);
    if (below(5) == 0) plan.stops_at = 1 + below(all);
    if (below(5) == 0) plan.fails_at = below(all);
    if (below(5) == 0) plan.nan_at = below(all);
    if (below(8) == 0) plan.cannot_start_at = below(all);
    const Result one = Train(plan, 1), two = Train(plan, 2);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    EXPECT_EQ(one.printed, two.printed);
    EXPECT_EQ(one.events, two.events);
    ahead += one.order != two.order ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(ahead, 250);
}

TEST(RunAhead, ARequestIsHeardAtTheNextBoundaryThatIsNotPassed) {
  for (int64_t asks_at = 1; asks_at < 12; ++asks_at) {
    for (int steps_ahead = 1; steps_ahead <= 2; ++steps_ahead) {
      Plan plan;
      plan.steps_per_epoch = 6;
      plan.asks_at = asks_at;
      const Result result = Train(plan, steps_ahead);
      ASSERT_GE(result.passed, asks_at);
      EXPECT_GE(result.heard, asks_at);
      EXPECT_LE(result.heard, result.passed + 1) << asks_at;
    }
  }
}

// The store then has more than the state says, so that nothing may be saved.
TEST(RunAhead, AHookThatFailsBesideARunningStepLeavesNoWholeState) {
  class Fails : public TrainHook {
   public:
    int64_t NextStep(const TrainState& s) override { return s.step; }
    bool only_reads() const override { return true; }
    Status AtStep(const TrainState& s) override {
      return s.step == 2 ? absl::UnavailableError("disk full") : absl::OkStatus();
    }
  };
  auto x = std::make_shared<std::vector<float>>(16);
  auto label = std::make_shared<std::vector<int32_t>>(16);
  data::Dataset set(data::NumpySlices(
      {{"x", {DType::kF32, {16}}, {x, x->data()}}, {"label", {DType::kI32, {16}}, {label, label->data()}}}));
  data::Loader loader(*data::Pipeline::Open(set.Batch({kBatch}), data::FeedOptions()), data::LoaderOptions());
  Console::Options quiet;
  quiet.enabled = false;
  Console console(quiet);
  AtOnce device(Plan(), 2);
  const auto trainer = *Trainer::Create(&device, &loader, {}, TrainerOptions(), &console);
  Fails fails;
  trainer->AddHook(&fails);
  EXPECT_EQ(trainer->Run().message(), "disk full");
  EXPECT_FALSE(device.runs());
  EXPECT_EQ(trainer->state().step, 2);
  EXPECT_FALSE(trainer->state().whole);
  EXPECT_EQ(device.order().back(), "finish 2");
}

}  // namespace
}  // namespace mslua
