// Runs of bytes at equal steps, over Highway: a call of memcpy for each would cost more than the bytes. The kernel of
// concat and split.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/op/op_def.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/rows_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n bytes, at least a vector's: whole vectors from the front, then the last one, which may overlap them.
template <size_t kBytes>
HWY_INLINE void CopyVectors(const uint8_t* from, uint8_t* to, int64_t n) {
  const hn::CappedTag<uint8_t, kBytes> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + step < n; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  hn::StoreU(hn::LoadU(d, from + n - step), d, to + n - step);
}

void CopyRuns(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t bytes, int64_t runs) {
  constexpr int64_t kCall = 2048;  // from here on memcpy is as fast
  const auto each = [&](const auto& copy) {
    for (int64_t r = 0; r < runs; ++r) copy(from + r * from_step, to + r * to_step);
  };
  const auto fixed = [&](auto size) { each([](const uint8_t* a, uint8_t* b) { std::memcpy(b, a, sizeof size); }); };
  if (bytes >= kCall) {
    each([&](const uint8_t* a, uint8_t* b) { std::memcpy(b, a, static_cast<size_t>(bytes)); });
  } else if (bytes >= 64) {
    each([&](const uint8_t* a, uint8_t* b) { CopyVectors<64>(a, b, bytes); });
  } else if (bytes >= 16) {
    each([&](const uint8_t* a, uint8_t* b) { CopyVectors<16>(a, b, bytes); });
  } else if (bytes == 8) {
    fixed(uint64_t{});
  } else if (bytes == 4) {
    fixed(uint32_t{});
  } else if (bytes == 2) {
    fixed(uint16_t{});
  } else {
    each([&](const uint8_t* a, uint8_t* b) {
      for (int64_t i = 0; i < bytes; ++i) b[i] = a[i];
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(CopyRuns);

// `runs` runs of `bytes` bytes; the steps from one to the next are in bytes.
void HighwayCopyRuns(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t bytes, int64_t runs) {
  HWY_DYNAMIC_DISPATCH(CopyRuns)
  (static_cast<const uint8_t*>(from), from_step, static_cast<uint8_t*>(to), to_step, bytes, runs);
}

namespace {

// One tensor is the others joined along an axis: each of those has a piece of every row of it, where rows are the
// dimensions from the axis on.
class PiecesKernel : public Kernel {
 public:
  PiecesKernel(const OpSpec& s, bool joins) : joins_(joins) {
    const TensorType& whole = joins ? s.outputs[0] : s.inputs[0];
    const auto axis = static_cast<size_t>(s.attrs.Int("axis"));
    for (size_t d = 0; d < axis; ++d) rows_ *= whole.shape[d];
    if (whole.bytes() == 0) rows_ = 0;
    for (const TensorType& part : joins ? s.inputs : s.outputs) {
      pieces_.push_back(rows_ == 0 ? 0 : part.bytes() / rows_);
      row_ += pieces_.back();
    }
  }
  Status Run(const Buffers& b) override {
    if (rows_ == 1) {
      int64_t at = 0;
      for (size_t k = 0; k < pieces_.size(); at += pieces_[k++]) {
        ParallelFor(pieces_[k], kGrain,
                    [&](int64_t begin, int64_t end) { Copy(b, k, begin, 0, at + begin, 0, end - begin, 1); });
      }
      return absl::OkStatus();
    }
    ParallelFor(rows_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row_)), [&](int64_t begin, int64_t end) {
      // Some rows at a time, so that what all pieces touch stays in the cache.
      for (const int64_t last = end; begin < last; begin = end) {
        end = std::min(last, begin + std::max<int64_t>(1, kBlock / row_));
        int64_t at = 0;
        for (size_t k = 0; k < pieces_.size(); at += pieces_[k++]) {
          const int64_t n = pieces_[k];
          Copy(b, k, begin * n, n, begin * row_ + at, row_, n, end - begin);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kGrain = 65536;  // bytes that are worth a thread
  static constexpr int64_t kBlock = 16384;  // bytes

  // Between tensor k, from byte `part` on, and the whole one, from byte `whole` on.
  void Copy(const Buffers& b, size_t k, int64_t part, int64_t part_step, int64_t whole, int64_t whole_step,
            int64_t bytes, int64_t runs) const {
    if (joins_) {
      HighwayCopyRuns(static_cast<const char*>(b.inputs[k]) + part, part_step, static_cast<char*>(b.outputs[0]) + whole,
                      whole_step, bytes, runs);
    } else {
      HighwayCopyRuns(static_cast<const char*>(b.inputs[0]) + whole, whole_step,
                      static_cast<char*>(b.outputs[k]) + part, part_step, bytes, runs);
    }
  }

  const bool joins_;
  int64_t rows_ = 1, row_ = 0;   // row_: bytes of one
  std::vector<int64_t> pieces_;  // bytes of each
};

}  // namespace

// The kernel of concat, which joins, and of split.
FastKernel RowPieces(bool joins) {
  return {"rows", [](const OpSpec&) { return true; },
          [joins](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<PiecesKernel>(s, joins);
          }};
}

}  // namespace mslua
#endif  // HWY_ONCE
