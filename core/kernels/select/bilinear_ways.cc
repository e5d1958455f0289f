#include "core/kernels/select/bilinear_ways.h"

#include <utility>

#include "core/kernels/amx/tile_bilinear.h"
#include "core/kernels/onednn/onednn.h"
#include "core/kernels/onednn/onednn_bilinear.h"

namespace mslua {

absl::Span<const Way> OneDnnWays(DType t) {
  static constexpr Way kOwnTypeFirst[] = {Way::kOneDnn, Way::kOneDnnF32};
  static constexpr Way kF32First[] = {Way::kOneDnnF32, Way::kOneDnn};
  return t == DType::kBF16 && !onednn::MultipliesBF16() ? absl::MakeConstSpan(kF32First) : kOwnTypeFirst;
}

StatusOr<std::unique_ptr<Kernel>> MakeUnguarded(const Bilinear& b, Way way) {
  if (way == Way::kOneDnn) return onednn::MakeBilinear(b, b.type);
  if (way == Way::kOneDnnF32) return onednn::MakeBilinear(b, DType::kF32);
  std::unique_ptr<Kernel> plain;
  if (b.type == DType::kF32) {
    ASSIGN_OR_RETURN(plain, onednn::MakeBilinear(b, DType::kF32));
  }
  return amx::MakeTiles(b, std::move(plain));
}

}  // namespace mslua
