#include "core/kernels/convolution.h"

#include "absl/strings/str_cat.h"

namespace mslua {

StatusOr<Convolution> ResolveConvolution(const Attrs& attrs, const TensorType& x, const TensorType& w) {
  const bool last = ChannelsLast(attrs);
  if (x.rank() != 4)
    return absl::InvalidArgumentError(
        absl::StrCat("the images need 4 dimensions, ", last ? "[n, h, w, c]" : "[n, c, h, w]"));
  if (w.rank() != 4)
    return absl::InvalidArgumentError("the weight needs 4 dimensions, [out, in / group, height, width]");
  Convolution c;
  c.x = Image::Of(x, last);
  c.group = attrs.Int("group");
  if (c.x.c == 0) return absl::InvalidArgumentError("the images have no channels");
  if (c.group < 1 || c.x.c % c.group != 0 || w.shape[0] % c.group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("group is ", c.group, ", expected a divisor of ", c.x.c,
                                                   " input and ", w.shape[0], " output channels"));
  }
  if (c.in_per_group() != w.shape[1]) {
    return absl::InvalidArgumentError(absl::StrCat("the images have ", c.x.c, " channels in ", c.group, " group",
                                                   c.group == 1 ? "" : "s", " but the weight takes ", w.shape[1],
                                                   " a group"));
  }
  ASSIGN_OR_RETURN(c.window, ResolveWindow(attrs, {w.shape[2], w.shape[3]}, c.x.h, c.x.w));
  const auto out = OutputSize(c.window, c.x.h, c.x.w);
  c.y = {c.x.n, w.shape[0], out[0], out[1], last};
  return c;
}

}  // namespace mslua
