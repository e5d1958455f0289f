// RandomPosterize.
#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {

MSLUA_VISION(random_posterize) {
  VisionDef def("random_posterize", "RandomPosterize");
  def.doc = "Keeps a random number of the 8 bits of each value, the highest ones. For images of uint8.";
  def.fields = {
      NumbersField("bits", "{least, greatest} number of bits, from 1 to 8, or one number", std::vector<double>{8, 8})};
  def.draws = 1;
  def.integers = true;
  def.check = [](const Fields& fields, int64_t) {
    const std::vector<double> bits = fields.Numbers("bits");
    const auto whole = [](double b) { return b >= 1 && b <= 8 && b == std::floor(b); };
    return (bits.size() == 1 || bits.size() == 2) && whole(bits[0]) && whole(bits.back()) && bits[0] <= bits.back()
               ? absl::OkStatus()
               : BadField("RandomPosterize", "bits: expected an integer from 1 to 8, or {least, greatest}");
  };
  def.paint = [](const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out) {
    const std::vector<double> bits = fields.Numbers("bits");
    const auto least = static_cast<int>(bits[0]), most = static_cast<int>(bits.back());
    *out = in;
    Posterize(least + static_cast<int>(draws->Below(most - least + 1)), bound, out);
  };
  return def;
}

}  // namespace mslua::data
