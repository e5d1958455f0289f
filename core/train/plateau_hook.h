// Multiplies the learning rate by a factor when a number has not improved for some epochs (ReduceLROnPlateau).
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/train/monitor.h"

namespace mslua {

class PlateauHook : public TrainHook {
 public:
  struct Options {
    double factor = 0.1;
    int64_t patience = 10;  // epochs without an improvement
    int64_t cooldown = 0;   // epochs after a reduction that are not counted
    double min_lr = 0;      // rates are not reduced below
  };
  // `share`: gives all ranks that train together the first one's number, which each of them asks for; empty: one rank.
  using Share = std::function<StatusOr<double>(double)>;
  PlateauHook(Progress* progress, Monitor monitor, const Options& options, Share share)
      : progress_(progress), monitor_(std::move(monitor)), options_(options), share_(std::move(share)) {}

  // The beginning of its counters' names.
  static constexpr char kKey[] = "plateau";

  Status AtBegin(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  // The scale from here on, by what this rank has measured.
  StatusOr<double> Next();
  // What becomes of the rates of the last step, "0.05, was 0.1", with the scale `next`; empty: nothing, all are at
  // min_lr.
  std::string Changes(double next) const;

  Progress* const progress_;
  Monitor monitor_;
  const Options options_;
  const Share share_;
  int64_t worse_ = 0;  // epochs since the best one, or the last reduction
  int64_t rest_ = 0;   // epochs of the cooldown that are left
};

}  // namespace mslua
