// A step, or an evaluation, for batches of several shapes: one plan for each, of which the batch at hand says which
// runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/executable.h"

namespace mslua {

class ShapedExecutable : public Executable {
 public:
  // plans[s] runs on batches of shape s, which are the part shares[s] of all. The plans have the same inputs by name,
  // but for the types of data, and outputs of the same names that update the same tensors, in one order; else
  // InvalidArgument.
  static StatusOr<std::unique_ptr<ShapedExecutable>> Create(std::vector<std::unique_ptr<Executable>> plans,
                                                            std::vector<double> shares);

  int64_t shapes() const { return static_cast<int64_t>(plans_.size()); }
  const Executable& plan(int64_t shape) const { return *plans_[static_cast<size_t>(shape)]; }
  double share(int64_t shape) const { return shares_[static_cast<size_t>(shape)]; }
  // The position among plan(shape).inputs() of what has `position` among inputs(): plans may have them in other orders.
  int PositionIn(int64_t shape, int position) const {
    return positions_[static_cast<size_t>(shape)][static_cast<size_t>(position)];
  }
  // What runs, and what outputs, graph and launches are of, from now on; shape 0 before the first call.
  void Select(int64_t shape) { now_ = plans_[static_cast<size_t>(shape)].get(); }

  Status BindInput(absl::string_view name, const void* data) override;
  void BindInputAt(int position, const void* data) override;
  // Each plan has outputs of its own types.
  bool BindOutput(int i, void* data) override { return false; }
  Status SetScalar(absl::string_view name, double value) override;
  void SetScalarAt(int position, double value) override;
  Status Run() override { return now_->Run(); }
  TensorView Output(int i) const override { return now_->Output(i); }
  const Graph& graph() const override { return now_->graph(); }
  const std::vector<std::string>& inputs() const override { return plans_[0]->inputs(); }
  // Of shape 0, but for the memory, which is what the largest of the plans needs, and the time, which all took.
  const PlanReport& report() const override { return report_; }
  void SetTimeline(std::vector<int64_t>* timeline) override;
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return now_->launches(); }
  const std::vector<ArenaEntry>& arena() const override { return now_->arena(); }

 private:
  std::vector<std::unique_ptr<Executable>> plans_;
  std::vector<double> shares_;
  std::vector<std::vector<int>> positions_;  // of each plan
  Executable* now_ = nullptr;
  PlanReport report_;
};

// Of an executable; null: it is for batches of one shape.
ShapedExecutable* ShapedOf(Executable* executable);
const ShapedExecutable* ShapedOf(const Executable* executable);

}  // namespace mslua
