// Mixing rows of a batch: torchvision's MixUp and CutMix.
#pragma once

#include <cstdint>

#include "core/base/shape.h"
#include "core/data/dataset.h"

namespace mslua::data {

// How a batch is mixed: a box of each image, or the whole of it.
struct MixedPart {
  bool mixes = false;
  float kept = 1;                                    // share of a row in its result; the row before it has the rest
  bool box = false;                                  // else the whole image is blended
  bool planar = false;                               // images are [channels,height,width]
  int64_t top = 0, left = 0, bottom = 0, right = 0;  // the box
};

// The numbers of batch `batch`: whether it is mixed, the share from Beta(alpha, alpha), and the box.
MixedPart DrawMix(const MixOp& op, const TensorType& image, bool planar, uint64_t seed, uint64_t stream,
                  uint64_t batch);

// Row r of `x`, `rows` times `size` numbers, becomes kept * x[r] + (1 - kept) * x[r - 1]; `before` stands for x[-1].
void BlendRows(float kept, int64_t size, int64_t rows, const float* before, float* x);
// The same for images of type `image`, whose box alone is replaced where the part has one.
void MixRowsOf(const MixedPart& part, const TensorType& image, int64_t rows, const float* before, float* x);

}  // namespace mslua::data
