// RandomErasing: a rectangle of one value. Follows torchvision.transforms.RandomErasing.
#include <cmath>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

constexpr int kAttempts = 10;

void Paint(const Fields& fields, float, SampleDraws* draws, const Planes& in, Planes* out) {
  *out = in;
  if (draws->Uniform(0, 1) >= fields.Number("prob")) return;
  const std::vector<double> scale = fields.Numbers("scale"), ratio = fields.Numbers("ratio"),
                            value = fields.Numbers("value");
  const double area = static_cast<double>(in.height) * static_cast<double>(in.width);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * draws->Uniform(scale[0], scale[1]);
    const double aspect = std::exp(draws->Uniform(std::log(ratio[0]), std::log(ratio[1])));
    const int64_t h = std::llrint(std::sqrt(target * aspect)), w = std::llrint(std::sqrt(target / aspect));
    if (h >= in.height || w >= in.width) continue;
    const int64_t top = draws->Below(in.height - h + 1), left = draws->Below(in.width - w + 1);
    for (int64_t c = 0; c < in.channels; ++c) {
      const float fill = static_cast<float>(value[value.size() == 1 ? 0 : static_cast<size_t>(c)]);
      for (int64_t y = top; y < top + h; ++y) std::fill_n(out->plane(c) + y * in.width + left, w, fill);
    }
    return;
  }
}

Status Check(const Fields& fields, int64_t channels) {
  const size_t values = fields.Numbers("value").size();
  if (values != 1 && values != static_cast<size_t>(channels))
    return BadField("RandomErasing", absl::StrCat("value: expected 1 or ", channels, " numbers, got ", values));
  for (const char* name : {"scale", "ratio"}) {
    const std::vector<double> range = fields.Numbers(name);
    if (range.size() != 2 || !(range[0] > 0) || range[1] < range[0])
      return BadField("RandomErasing", absl::StrCat(name, ": expected {least, greatest}, both above 0"));
  }
  if (const double most = fields.Numbers("scale")[1]; most > 1)
    return BadField("RandomErasing", absl::StrCat("scale: expected a share of the area of at most 1, got ", most));
  return absl::OkStatus();
}

}  // namespace

MSLUA_VISION(random_erasing) {
  VisionDef def("random_erasing", "RandomErasing");
  def.doc = "Overwrites a random rectangle with `value`, with probability `prob`.";
  def.fields = {ProbField(),
                NumbersField("scale", "{least, greatest} share of the area", std::vector<double>{0.02, 0.33}),
                NumbersField("ratio", "{least, greatest} height by width", std::vector<double>{0.3, 3.3}),
                NumbersField("value", "one number, or one for each channel", std::vector<double>{0})};
  def.draws = 1 + 2 * kAttempts + 2;
  def.places = true;
  def.check = Check;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
