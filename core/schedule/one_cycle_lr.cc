#include <algorithm>
#include <cmath>

#include "core/schedule/define.h"

namespace mslua {
namespace {

// From `a` to `b` along half a cosine as `t` goes from 0 to 1.
double Anneal(double a, double b, double t) { return b + (a - b) / 2 * (1 + std::cos(M_PI * t)); }

double OneCycle(const ScheduleSettings& s, int64_t step) {
  const double highest = s.Number("max_lr"), first = highest / s.Number("div_factor");
  const double last = first / s.Number("final_div_factor");
  const double up = s.Number("pct_start") * s.Number("total_step") - 1, end = s.Number("total_step") - 1;
  const double at = std::min(static_cast<double>(step), end);
  if (at <= up) return Anneal(first, highest, up > 0 ? at / up : 1);
  return Anneal(highest, last, (at - up) / (end - up));
}

}  // namespace

MSLUA_SCHEDULE(one_cycle_lr) {
  ScheduleDef def("one_cycle_lr");
  def.Doc(
      "PyTorch's OneCycleLR with cosine annealing (Smith and Topin, 2018): max_lr / div_factor up to max_lr in "
      "pct_start of the steps, then down to max_lr / (div_factor * final_div_factor).");
  def.Number("max_lr", Above(0), "the highest rate").Integer("total_step", AtLeast(2), "steps of the training");
  def.Number("pct_start", 0.3, {{}, 0, {}, 1}, "the share of the steps in which the rate rises");
  def.Number("div_factor", 25, Above(0), "the highest rate divided by the first");
  def.Number("final_div_factor", 1e4, Above(0), "the first rate divided by the last");
  def.Highest("max_lr").Rate(OneCycle);
  return def;
}

}  // namespace mslua
