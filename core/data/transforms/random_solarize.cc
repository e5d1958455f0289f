// RandomSolarize. Follows MindSpore's, whose range of values is random.
#include <algorithm>

#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_solarize) {
  VisionDef def("random_solarize", "RandomSolarize");
  def.doc = "Inverts the values in a random part [a, b] of the range `threshold`. For images of uint8.";
  def.fields = {NumbersField("threshold", "{least, greatest} value, from 0 to 255", std::vector<double>{0, 255})};
  def.draws = 2;
  def.integers = true;
  def.check = [](const Fields& fields, int64_t) {
    const std::vector<double> range = fields.Numbers("threshold");
    return range.size() == 2 && range[0] >= 0 && range[0] <= range[1] && range[1] <= 255
               ? absl::OkStatus()
               : BadField("RandomSolarize", "threshold: expected {least, greatest}, from 0 to 255");
  };
  def.paint = [](const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out) {
    const std::vector<double> range = fields.Numbers("threshold");
    const auto draw = [&] { return static_cast<float>(std::nearbyint(draws->Uniform(range[0], range[1]))); };
    const auto [low, high] = std::minmax({draw(), draw()});
    *out = in;
    for (float& v : out->values) v = v >= low && v <= high ? bound - v : v;
  };
  return def;
}

}  // namespace mslua::data
