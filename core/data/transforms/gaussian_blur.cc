// GaussianBlur. Follows torchvision.transforms.functional.gaussian_blur: a separable kernel, borders reflected.
#include <cmath>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

std::vector<float> Kernel(int64_t size, double sigma) {
  std::vector<float> kernel(static_cast<size_t>(size));
  float sum = 0;
  for (int64_t k = 0; k < size; ++k) {
    const double x = static_cast<double>(k) - static_cast<double>(size - 1) / 2;
    kernel[static_cast<size_t>(k)] = static_cast<float>(std::exp(-0.5 * (x / sigma) * (x / sigma)));
    sum += kernel[static_cast<size_t>(k)];
  }
  for (float& k : kernel) k /= sum;
  return kernel;
}

int64_t Reflected(int64_t i, int64_t n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

// Along lines of n elements `step` apart; `count` of them begin `next` apart.
void Convolve(const float* in, int64_t n, int64_t step, int64_t count, int64_t next, const std::vector<float>& kernel,
              float* out) {
  const int64_t half = static_cast<int64_t>(kernel.size()) / 2;
  for (int64_t line = 0; line < count; ++line) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int64_t k = -half; k <= half; ++k)
        sum += kernel[static_cast<size_t>(k + half)] * in[line * next + Reflected(i + k, n) * step];
      out[line * next + i * step] = sum;
    }
  }
}

void Paint(const Fields& fields, float, SampleDraws* draws, const Planes& in, Planes* out) {
  const std::vector<double> sizes = fields.Numbers("kernel_size"), sigmas = fields.Numbers("sigma");
  const double sigma = draws->Uniform(sigmas[0], sigmas.back());
  const std::vector<float> columns = Kernel(static_cast<int64_t>(sizes[0]), sigma);
  const std::vector<float> rows = Kernel(static_cast<int64_t>(sizes.back()), sigma);
  out->Resize(in.channels, in.height, in.width);
  std::vector<float> between(static_cast<size_t>(in.height * in.width));
  for (int64_t c = 0; c < in.channels; ++c) {
    Convolve(in.plane(c), in.width, 1, in.height, in.width, columns, between.data());
    Convolve(between.data(), in.height, in.width, in.width, 1, rows, out->plane(c));
  }
}

Status Check(const Fields& fields, int64_t) {
  const std::vector<double> sizes = fields.Numbers("kernel_size"), sigmas = fields.Numbers("sigma");
  bool odd = !sizes.empty() && sizes.size() <= 2;
  for (double size : sizes) odd &= static_cast<int64_t>(size) % 2 == 1 && size <= 99;
  if (!odd) return BadField("GaussianBlur", "kernel_size: expected an odd number, or {width, height}, up to 99");
  if (sigmas.empty() || sigmas.size() > 2 || !(sigmas[0] > 0) || sigmas.back() < sigmas[0])
    return BadField("GaussianBlur", "sigma: expected a number or {least, greatest}, above 0");
  return absl::OkStatus();
}

}  // namespace

MSLUA_VISION(gaussian_blur) {
  VisionDef def("gaussian_blur", "GaussianBlur");
  def.doc = "Blurs with a Gaussian kernel, whose deviation in pixels is drawn out of `sigma`.";
  FieldDef size =
      NumbersField("kernel_size", "pixels of the kernel, odd: one number or {width, height}", {}, FieldType::kInts);
  size.limits = AtLeast(1);
  def.fields = {size,
                NumbersField("sigma", "deviation: {least, greatest}, or one number", std::vector<double>{0.1, 2})};
  def.draws = 1;
  def.check = Check;
  def.size = [](const Fields& fields, ImageSize size) -> StatusOr<ImageSize> {
    const std::vector<double> sizes = fields.Numbers("kernel_size");
    if ((size.width >= 0 && sizes[0] / 2 > static_cast<double>(size.width)) ||
        (size.height >= 0 && sizes.back() / 2 > static_cast<double>(size.height)))
      return BadField("GaussianBlur", absl::StrCat("kernel_size: the kernel is larger than twice the image, ",
                                                   size.height, "x", size.width));
    return size;
  };
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
