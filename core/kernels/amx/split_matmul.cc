#include "core/kernels/amx/split_matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <atomic>

#include "core/base/parallel_for.h"
#include "core/kernels/amx/amx-inl.h"

MSLUA_AMX_BEGIN

namespace mslua::amx {
namespace {

constexpr int64_t kStepWords = kWordsOfStep<3>;
constexpr int64_t kChunk = 768;             // of k, so that 9 panels of it (144 KiB each) fit into a core's own cache
constexpr int64_t kMostBlockPanels = 8;     // panels that a thread splits at a time
constexpr int64_t kNearWords = 192 << 10;   // so much of the other operand stays in a core's own cache (768 KiB)
constexpr int64_t kStretchWords = 2 << 20;  // most of what is split beforehand (8 MiB)

// One operand as [rows, k]: b is taken as its transpose.
struct Matrix {
  const float* data = nullptr;
  int64_t rows = 0, k = 0;
  bool k_dense = false;     // numbers along k lie side by side; else those along rows do
  bool words_of_k = false;  // a row of its tiles is a row's words (left operand); else a word of each row (right)

  int64_t panels() const { return CeilDiv(rows, kPanel); }
};

// Tiles of the three parts of 16 rows from `row` on and 32 k from `k` on; zeros past the matrix.
void SplitTile(const Matrix& x, int64_t row, int64_t k, int64_t k_end, Splitter& splitter, uint32_t* to) {
  alignas(64) uint32_t turned[3 * kTileWords];
  const bool turn = x.k_dense != x.words_of_k;
  uint32_t* const words = turn ? turned : to;
  const int64_t plane = turn ? kTileWords : kPlane;
  if (x.k_dense) {
    const __mmask16 lower = First(k_end - k), upper = First(k_end - k - kTile);
    for (int64_t r = 0; r < kTile; ++r) {
      const bool inside = row + r < x.rows;
      const float* from = x.data + (row + r) * x.k + k;
      Prefetch(from + kPanel * x.k);
      Prefetch(from + kPanel * x.k + kTile);
      splitter.AlongK(_mm512_maskz_loadu_ps(inside ? lower : 0, from),
                      _mm512_maskz_loadu_ps(inside ? upper : 0, from + kTile), words + r * kTile, plane);
    }
  } else {
    const __mmask16 lanes = First(x.rows - row);
    for (int64_t p = 0; p < kTile; ++p) {
      const float* from = x.data + (k + 2 * p) * x.rows + row;
      Prefetch(from + kStep * x.rows);
      Prefetch(from + (kStep + 1) * x.rows);
      splitter.AcrossK(_mm512_maskz_loadu_ps(k + 2 * p < k_end ? lanes : 0, from),
                       _mm512_maskz_loadu_ps(k + 2 * p + 1 < k_end ? lanes : 0, from + x.rows), words + p * kTile,
                       plane);
    }
  }
  if (!turn) return;
  for (int64_t part = 0; part < 3; ++part) TransposeWords(turned + part * kTileWords, kTile, to + part * kPlane, kTile);
}

// Panels [first, last) of 32 rows, of k in [begin, end), `panel_words` from one to the next. The matrix is read along
// its rows in memory.
void SplitPanels(const Matrix& x, int64_t first, int64_t last, int64_t begin, int64_t end, Splitter& splitter,
                 uint32_t* to, int64_t panel_words) {
  const auto split = [&](int64_t panel, int64_t k) {
    uint32_t* const step = to + (panel - first) * panel_words + (k - begin) / kStep * kStepWords;
    SplitTile(x, panel * kPanel, k, end, splitter, step);
    SplitTile(x, panel * kPanel + kTile, k, end, splitter, step + kTileWords);
  };
  if (x.k_dense) {
    for (int64_t p = first; p < last; ++p) {
      for (int64_t k = begin; k < end; k += kStep) split(p, k);
    }
  } else {
    for (int64_t k = begin; k < end; k += kStep) {
      for (int64_t p = first; p < last; ++p) split(p, k);
    }
  }
}

// y [32, 32], rows `stride` bytes apart, (+)= a panel of a times one of b, over `steps` of k.
void MultiplyPanels(const uint32_t* a, const uint32_t* b, int64_t steps, bool add, float* y, int64_t stride) {
  BeginSums(add, y, stride);
  MultiplySteps<3>(a, b, steps);
  StoreSums(y, stride);
}

// The same for panels that reach past the rows or columns of y.
void MultiplyEdge(const uint32_t* a, const uint32_t* b, int64_t steps, bool add, float* y, int64_t columns, int64_t m,
                  int64_t n) {
  alignas(64) float block[kPanel * kPanel];
  for (int64_t i = 0; add && i < m; ++i) std::copy_n(y + i * columns, n, block + i * kPanel);
  MultiplyPanels(a, b, steps, add, block, kPanel * 4);
  for (int64_t i = 0; i < m; ++i) std::copy_n(block + i * kPanel, n, y + i * columns);
}

// The operand with fewer rows is split first, by all threads; of the other each thread has a part, which it splits a
// block at a time as it multiplies it. Where k is long this is done for a stretch of it after the other.
class Multiplication {
 public:
  Multiplication(const Product& p, const float* a, const float* b, float* y) : p_(p), y_(y) {
    const Matrix left = {a, p.m, p.k, !p.transpose_a, true}, right = {b, p.n, p.k, p.transpose_b, false};
    few_ = p.m < p.n ? left : right;
    many_ = p.m < p.n ? right : left;
    chunk_words_ = std::min(kChunk / kStep, CeilDiv(p.k, kStep)) * kStepWords;
    block_panels_ = many_.k_dense && few_.panels() * chunk_words_ <= kNearWords ? 1 : kMostBlockPanels;
    stretch_ = std::min(CeilDiv(p.k, kChunk), std::max<int64_t>(1, kStretchWords / (few_.panels() * chunk_words_)));
  }

  int64_t few_words() const { return stretch_ * few_.panels() * chunk_words_; }
  int64_t block_words() const { return block_panels_ * chunk_words_; }

  bool Run(int64_t threads, uint32_t* scratch) {
    std::atomic<bool> finite{true};
    const int64_t chunks = CeilDiv(p_.k, kChunk), shares = std::min(threads, many_.panels());
    for (int64_t c = 0; c < chunks; c += stretch_) {
      const int64_t end = std::min(chunks, c + stretch_);
      ParallelFor(few_.panels(), 1, [&](int64_t first, int64_t last) {
        Splitter splitter;
        for (int64_t i = c; i < end; ++i) {
          SplitPanels(few_, first, last, i * kChunk, ChunkEnd(i * kChunk), splitter,
                      scratch + ((i - c) * few_.panels() + first) * chunk_words_, chunk_words_);
        }
        if (!splitter.finite()) finite = false;
      });
      ParallelFor(shares, 1, [&](int64_t first, int64_t last) {
        const Tiles tiles;
        Splitter splitter;
        for (int64_t t = first; t < last; ++t) {
          RunPanels(many_.panels() * t / shares, many_.panels() * (t + 1) / shares, c, end, scratch,
                    scratch + few_words() + t * block_words(), splitter);
        }
        if (!splitter.finite()) finite = false;
      });
    }
    return finite;
  }

 private:
  int64_t ChunkEnd(int64_t k) const { return std::min(p_.k, k + kChunk); }

  // Panels [first, last) of the operand with many rows, times all of the other's, of which chunks [begin, end) lie in
  // `few`.
  void RunPanels(int64_t first, int64_t last, int64_t begin, int64_t end, const uint32_t* few, uint32_t* block,
                 Splitter& splitter) const {
    for (int64_t p0 = first; p0 < last; p0 += block_panels_) {
      const int64_t count = std::min(block_panels_, last - p0);
      for (int64_t c = begin; c < end; ++c) {
        const int64_t k = c * kChunk, steps = CeilDiv(ChunkEnd(k) - k, kStep);
        SplitPanels(many_, p0, p0 + count, k, ChunkEnd(k), splitter, block, chunk_words_);
        for (int64_t f = 0; f < few_.panels(); ++f) {
          const uint32_t* const from = few + ((c - begin) * few_.panels() + f) * chunk_words_;
          for (int64_t q = 0; q < count; ++q) RunPair(f, p0 + q, from, block + q * chunk_words_, steps, c > 0);
        }
      }
    }
  }

  void RunPair(int64_t few_panel, int64_t many_panel, const uint32_t* few, const uint32_t* many, int64_t steps,
               bool add) const {
    const bool left_is_few = few_.words_of_k;
    const int64_t row = (left_is_few ? few_panel : many_panel) * kPanel,
                  column = (left_is_few ? many_panel : few_panel) * kPanel;
    const uint32_t *const a = left_is_few ? few : many, *const b = left_is_few ? many : few;
    float* const to = y_ + row * p_.n + column;
    const int64_t m = std::min(kPanel, p_.m - row), n = std::min(kPanel, p_.n - column);
    if (m == kPanel && n == kPanel)
      MultiplyPanels(a, b, steps, add, to, p_.n * 4);
    else
      MultiplyEdge(a, b, steps, add, to, p_.n, m, n);
  }

  const Product p_;
  float* const y_;
  Matrix few_, many_;
  int64_t chunk_words_;   // of a panel of a chunk
  int64_t block_panels_;  // that a thread splits before it multiplies them with all of few
  int64_t stretch_;       // chunks
};

}  // namespace

int64_t SplitMatmul::scratch_bytes() const {
  const Multiplication sizes(p_, nullptr, nullptr, nullptr);
  return (sizes.few_words() + threads_ * sizes.block_words()) * 4;
}

bool SplitMatmul::Run(const float* a, const float* b, float* y, void* scratch) const {
  return Multiplication(p_, a, b, y).Run(threads_, static_cast<uint32_t*>(scratch));
}

}  // namespace mslua::amx
MSLUA_AMX_END

#else  // not x86

namespace mslua::amx {
int64_t SplitMatmul::scratch_bytes() const { return 0; }
bool SplitMatmul::Run(const float*, const float*, float*, void*) const { return false; }
}  // namespace mslua::amx

#endif

namespace mslua::amx {

bool SupportsSplit(const Product& p) {
  // How often a number should be used, on average over both operands, to repay splitting it.
  constexpr int64_t kWorth = 90;
  return Available() && p.k >= kBlock && p.m * p.n >= kWorth * (p.m + p.n);
}

}  // namespace mslua::amx
