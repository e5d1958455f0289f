#include "core/kernels/amx/tile_convolution.h"

#if defined(__x86_64__)

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/amx/amx-inl.h"

MSLUA_AMX_BEGIN

namespace mslua::amx {
namespace {

constexpr int64_t kStripWords = 1 << 20;   // of the operand that a thread lays out at a time (4 MiB), at most
constexpr int64_t kNearWords = 256 << 10;  // of weights that stay in a core's own cache (1 MiB)
constexpr int64_t kChunkWords = 2 << 20;   // of both images that all threads lay out at a time (8 MiB), about
constexpr int64_t kSumSteps = 64;          // of a weight's gradient that are summed by themselves, about

template <class T>
constexpr int kParts = std::is_same_v<T, float> ? 3 : 1;
template <class T>
constexpr int64_t kStepWords = kWordsOfStep<kParts<T>>;

// 0, stride, 2 stride, ...
__m512i Multiples(int64_t stride) {
  return _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                            _mm512_set1_epi32(static_cast<int>(stride)));
}

// Lays numbers out as words of tiles.
template <class T>
class Packer;

template <>
class Packer<float> {
 public:
  // The first `count` of 32 numbers along k.
  void AlongK(const float* x, int64_t count, uint32_t* to) {
    splitter_.AlongK(_mm512_maskz_loadu_ps(First(count), x), _mm512_maskz_loadu_ps(First(count - kTile), x + kTile), to,
                     kPlane);
  }
  // Two neighbours along k, of 16 rows: those of `lanes` of them.
  void AcrossK(const float* first, __mmask16 first_lanes, const float* second, __mmask16 second_lanes, uint32_t* to,
               int64_t plane) {
    splitter_.AcrossK(_mm512_maskz_loadu_ps(first_lanes, first), _mm512_maskz_loadu_ps(second_lanes, second), to,
                      plane);
  }
  // The same where the rows lie `stride` numbers apart. First comes where the tensor begins.
  void Gather(const float*, const float* first, __mmask16 first_lanes, const float* second, __mmask16 second_lanes,
              int64_t stride, uint32_t* to) {
    splitter_.AcrossK(Column(first, stride, first_lanes), Column(second, stride, second_lanes), to, kPlane);
  }
  bool finite() const { return splitter_.finite(); }

 private:
  static __m512 Column(const float* at, int64_t stride, __mmask16 lanes) {
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, Multiples(stride), at, 4);
  }

  Splitter splitter_;
};

template <>
class Packer<BF16> {
 public:
  void AlongK(const BF16* x, int64_t count, uint32_t* to) {
    const __mmask32 lanes = static_cast<__mmask32>((uint64_t{1} << std::clamp<int64_t>(count, 0, 32)) - 1);
    _mm512_store_si512(to, _mm512_maskz_loadu_epi16(lanes, x));
  }
  void AcrossK(const BF16* first, __mmask16 first_lanes, const BF16* second, __mmask16 second_lanes, uint32_t* to,
               int64_t) {
    const __m512i lower = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes, first));
    const __m512i upper = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second_lanes, second));
    _mm512_store_si512(to, _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16)));
  }
  void Gather(const BF16* origin, const BF16* first, __mmask16 first_lanes, const BF16* second, __mmask16 second_lanes,
              int64_t stride, uint32_t* to) {
    const __m512i lower = Column(origin, first, stride, first_lanes);
    const __m512i upper = Column(origin, second, stride, second_lanes);
    _mm512_store_si512(to, _mm512_or_si512(_mm512_srli_epi32(lower, 16), upper));
  }
  bool finite() const { return true; }

 private:
  // In the upper halves of words: what is read with a number is the one before it, so that nothing past the tensor is.
  static __m512i Column(const BF16* origin, const BF16* at, int64_t stride, __mmask16 lanes) {
    const __m512i zero = _mm512_setzero_si512(), index = Multiples(stride);
    if (at == origin) return _mm512_slli_epi32(_mm512_mask_i32gather_epi32(zero, lanes, index, at, 2), 16);
    return _mm512_and_si512(_mm512_mask_i32gather_epi32(zero, lanes, index, at - 1, 2), _mm512_set1_epi32(-65536));
  }
};

// 32 sums a row, rows of `block` one after the other, as `count` rows of `columns` numbers, `stride` apart.
void StoreBlock(const float* block, int64_t count, int64_t columns, float* to, int64_t stride) {
  for (int64_t r = 0; r < count; ++r) std::copy_n(block + r * kPanel, columns, to + r * stride);
}
void StoreBlock(const float* block, int64_t count, int64_t columns, BF16* to, int64_t stride) {
  const __mmask32 lanes = static_cast<__mmask32>((uint64_t{1} << columns) - 1);
  for (int64_t r = 0; r < count; ++r, block += kPanel, to += stride) {
    const __m512bh row = _mm512_cvtne2ps_pbh(_mm512_load_ps(block + kTile), _mm512_load_ps(block));
    _mm512_mask_storeu_epi16(to, lanes, reinterpret_cast<__m512i>(row));
  }
}

int64_t ImageStride(const Image& image) { return image.pixels() * image.c; }

template <class T>
void PrefetchNumbers(const T* x) {
  _mm_prefetch(reinterpret_cast<const char*>(x), _MM_HINT_T1);
}

// Steps of the pixels from `from` on, `pixels` of them one after the other, of 32 images: a tile's row is an image, its
// words are channels.
template <class T>
void PackPixels(const Image& image, const T* from, int64_t images, int64_t pixels, Packer<T>& packer, uint32_t* to) {
  const int64_t steps = CeilDiv(image.c, kStep), stride = ImageStride(image);
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const T* at = from + r * stride + p * image.c;
      uint32_t* row = to + p * steps * kStepWords<T> + r * kTile;
      for (int64_t s = 0; s < steps; ++s, at += kStep, row += kStepWords<T>) {
        PrefetchNumbers(at + 2 * image.c);
        PrefetchNumbers(at + 2 * image.c + kTile);
        packer.AlongK(at, r < images ? image.c - s * kStep : 0, row);
      }
    }
  }
}

// Pixel `from` of 32 images, channels [channel, channel + 32), as a step along the images: a tile's row is two images,
// its words are channels; or, turned, a row is a channel.
template <class T>
void PackAlongImages(const Image& image, const T* from, int64_t images, int64_t channel, bool turned, Packer<T>& packer,
                     uint32_t* to) {
  alignas(64) uint32_t words[kParts<T> * kTileWords];
  const int64_t stride = ImageStride(image);
  for (int64_t half = 0; half < 2; ++half) {
    const __mmask16 lanes = First(image.c - channel - half * kTile);
    const T* const at = from + channel + half * kTile;
    for (int64_t r = 0; r < kTile; ++r) {
      const T *const first = at + 2 * r * stride, *const second = first + stride;
      PrefetchNumbers(first + 2 * image.c);
      PrefetchNumbers(second + 2 * image.c);
      packer.AcrossK(first, 2 * r < images ? lanes : 0, second, 2 * r + 1 < images ? lanes : 0,
                     turned ? words + r * kTile : to + half * kTileWords + r * kTile, turned ? kTileWords : kPlane);
    }
    for (int64_t part = 0; turned && part < kParts<T>; ++part)
      TransposeWords(words + part * kTileWords, kTile, to + half * kTileWords + part * kPlane, kTile);
  }
}

}  // namespace

template <class T>
TileConvolution<T>::TileConvolution(const Convolution& c, Direction direction, int64_t threads)
    : from_(direction == Direction::kForward ? c.x : c.y),
      to_(direction == Direction::kForward ? c.y : c.x),
      window_(c.window),
      direction_(direction),
      taps_(c.window.size[0] * c.window.size[1]),
      threads_(threads),
      k_stride_(direction == Direction::kForward ? taps_ : c.x.c * taps_),
      column_stride_(direction == Direction::kForward ? c.x.c * taps_ : taps_),
      steps_(CeilDiv(from_.c, kStep)),
      panels_(CeilDiv(to_.c, kPanel)) {
  SplitIntoStrips();
}

// Row (axis 0) or column (axis 1) of the operand that `place` of the window takes to `to` of the result; -1: none.
template <class T>
int64_t TileConvolution<T>::Source(int axis, int64_t to, int64_t place) const {
  int64_t from = window_.Start(axis, to) + place * window_.dilation[axis];
  if (direction_ == Direction::kGradInput) {
    const int64_t start = to + window_.before[axis] - place * window_.dilation[axis];
    from = start % window_.stride[axis] == 0 ? start / window_.stride[axis] : -1;
  }
  return from < (axis == 0 ? from_.h : from_.w) ? from : -1;
}

template <class T>
int64_t TileConvolution<T>::TermsOf(int64_t pixel, Term* terms) const {
  int64_t count = 0;
  for (int64_t i = 0; i < window_.size[0]; ++i) {
    const int64_t row = Source(0, pixel / to_.w, i);
    for (int64_t j = 0; row >= 0 && j < window_.size[1]; ++j) {
      const int64_t column = Source(1, pixel % to_.w, j);
      if (column >= 0) terms[count++] = {row * from_.w + column, i * window_.size[1] + j};
    }
  }
  return count;
}

template <class T>
void TileConvolution<T>::SplitIntoStrips() {
  const int64_t row_words = from_.w * pixel_words();
  std::vector<Strip> of_image;
  Strip strip{0, 0, 0, from_.h, 0};
  for (int64_t row = 0; row < to_.h; ++row) {
    Strip grown = strip;
    grown.last = row + 1;
    for (int64_t i = 0; i < window_.size[0]; ++i) {
      const int64_t from_row = Source(0, row, i);
      if (from_row < 0) continue;
      grown.from_first = std::min(grown.from_first, from_row);
      grown.from_last = std::max(grown.from_last, from_row + 1);
    }
    if (strip.last > strip.first && (grown.from_last - grown.from_first) * row_words > kStripWords) {
      of_image.push_back(strip);
      strip = {0, row, row, from_.h, 0};
      --row;
      continue;
    }
    strip = grown;
  }
  of_image.push_back(strip);
  for (int64_t b = 0; b < CeilDiv(to_.n, kPanel); ++b) {
    for (Strip s : of_image) {
      s.images = b;
      s.from_first = std::min(s.from_first, s.from_last);
      strip_words_ = std::max(strip_words_, (s.from_last - s.from_first) * row_words);
      strips_.push_back(s);
    }
  }
}

template <class T>
int64_t TileConvolution<T>::scratch_bytes() const {
  return (weight_words() + threads_ * strip_words_) * 4;
}
template <class T>
int64_t TileConvolution<T>::pixel_words() const {
  return steps_ * kStepWords<T>;
}
template <class T>
int64_t TileConvolution<T>::weight_words() const {
  return panels_ * taps_ * pixel_words();
}

template <class T>
bool TileConvolution<T>::Run(const T* from, const T* weight, T* to, void* scratch) const {
  auto* const weights = static_cast<uint32_t*>(scratch);
  std::atomic<bool> finite{true};
  ParallelFor(panels_ * taps_, 1, [&](int64_t begin, int64_t end) {
    if (!PackWeights(weight, begin, end, weights)) finite = false;
  });
  const auto strips = static_cast<int64_t>(strips_.size());
  const int64_t shares = std::min(threads_, strips);
  ParallelFor(shares, 1, [&](int64_t first, int64_t last) {
    const Tiles tiles;
    for (int64_t t = first; t < last; ++t) {
      uint32_t* const words = weights + weight_words() + t * strip_words_;
      for (int64_t s = strips * t / shares; s < strips * (t + 1) / shares; ++s) {
        if (!PackStrip(strips_[s], from, words)) finite = false;
        MultiplyStrip(strips_[s], words, weights, to);
      }
    }
  });
  return finite;
}

// Panel by panel, and of a panel tap by tap: [begin, end) of these.
template <class T>
bool TileConvolution<T>::PackWeights(const T* weight, int64_t begin, int64_t end, uint32_t* to) const {
  Packer<T> packer;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t panel = i / taps_, tap = i % taps_;
    uint32_t* step = to + i * pixel_words();
    for (int64_t k = 0; k < from_.c; k += kStep, step += kStepWords<T>) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t column = panel * kPanel + half * kTile;
        const __mmask16 lanes = First(to_.c - column);
        for (int64_t r = 0; r < kTile; ++r) {
          const T* const at = weight + tap + column * column_stride_ + (k + 2 * r) * k_stride_;
          packer.Gather(weight, at, k + 2 * r < from_.c ? lanes : 0, at + k_stride_,
                        k + 2 * r + 1 < from_.c ? lanes : 0, column_stride_, step + half * kTileWords + r * kTile);
        }
      }
    }
  }
  return packer.finite();
}

template <class T>
bool TileConvolution<T>::PackStrip(const Strip& strip, const T* from, uint32_t* to) const {
  Packer<T> packer;
  const int64_t image = strip.images * kPanel;
  PackPixels(from_, from + image * ImageStride(from_) + strip.from_first * from_.w * from_.c, from_.n - image,
             (strip.from_last - strip.from_first) * from_.w, packer, to);
  return packer.finite();
}

template <class T>
void TileConvolution<T>::MultiplyStrip(const Strip& strip, const uint32_t* from, const uint32_t* weights, T* to) const {
  const int64_t image = strip.images * kPanel, stride = ImageStride(to_), images = std::min(kPanel, to_.n - image);
  const uint32_t* const origin = from - strip.from_first * from_.w * pixel_words();
  const int64_t near = std::clamp<int64_t>(kNearWords / (taps_ * pixel_words()), 1, panels_);
  for (int64_t p0 = 0; p0 < panels_; p0 += near) {
    for (int64_t pixel = strip.first * to_.w; pixel < strip.last * to_.w; ++pixel) {
      Term terms[kMostTaps];
      const int64_t count = TermsOf(pixel, terms);
      for (int64_t panel = p0; panel < std::min(panels_, p0 + near); ++panel) {
        BeginSums(false, nullptr, 0);
        for (int64_t t = 0; t < count; ++t) {
          MultiplySteps<kParts<T>>(origin + terms[t].pixel * pixel_words(),
                                   weights + (panel * taps_ + terms[t].tap) * pixel_words(), steps_);
        }
        T* const y = to + image * stride + pixel * to_.c + panel * kPanel;
        const int64_t columns = std::min(kPanel, to_.c - panel * kPanel);
        if constexpr (std::is_same_v<T, float>) {
          if (images == kPanel && columns == kPanel) {
            StoreSums(y, stride * 4);
            continue;
          }
        }
        alignas(64) float block[kPanel * kPanel];
        StoreSums(block, kPanel * 4);
        StoreBlock(block, images, columns, y, stride);
      }
    }
  }
}

template <class T>
TileWeightGradient<T>::TileWeightGradient(const Convolution& c, int64_t threads)
    : c_(c),
      threads_(threads),
      taps_(c.window.size[0] * c.window.size[1]),
      x_panels_(CeilDiv(c.x.c, kPanel)),
      y_panels_(CeilDiv(c.y.c, kPanel)) {
  const int64_t row_words = (c.window.stride[0] * c.x.w * x_panels_ + c.y.w * y_panels_) * kStepWords<T>;
  const int64_t rows = std::max<int64_t>(1, kChunkWords / row_words), blocks = CeilDiv(c.y.n, kPanel);
  rows_ = std::min(rows, c.y.h);
  blocks_ = std::clamp<int64_t>(rows / c.y.h, 1, blocks);
  chunks_ = CeilDiv(blocks, blocks_) * CeilDiv(c.y.h, rows_);
}

template <class T>
typename TileWeightGradient<T>::Chunk TileWeightGradient<T>::ChunkAt(int64_t index) const {
  const int64_t per_image = CeilDiv(c_.y.h, rows_);
  Chunk chunk;
  chunk.images = index / per_image * blocks_;
  chunk.blocks = std::min(blocks_, CeilDiv(c_.y.n, kPanel) - chunk.images);
  chunk.first = index % per_image * rows_;
  chunk.last = std::min(c_.y.h, chunk.first + rows_);
  chunk.x_first = std::clamp<int64_t>(c_.window.Start(0, chunk.first), 0, c_.x.h);
  chunk.x_last = std::clamp<int64_t>(
      c_.window.Start(0, chunk.last - 1) + (c_.window.size[0] - 1) * c_.window.dilation[0] + 1, chunk.x_first, c_.x.h);
  return chunk;
}

template <class T>
int64_t TileWeightGradient<T>::x_words() const {
  const int64_t span = (rows_ - 1) * c_.window.stride[0] + (c_.window.size[0] - 1) * c_.window.dilation[0] + 1;
  return blocks_ * std::min(span, c_.x.h) * c_.x.w * x_panels_ * kStepWords<T>;
}
template <class T>
int64_t TileWeightGradient<T>::dy_words() const {
  return blocks_ * rows_ * c_.y.w * y_panels_ * kStepWords<T>;
}

template <class T>
int64_t TileWeightGradient<T>::scratch_bytes() const {
  return (x_words() + dy_words() + y_panels_ * x_panels_ * taps_ * kPanel * kPanel) * 4;
}

template <class T>
bool TileWeightGradient<T>::Run(const T* x, const T* dy, T* dw, void* scratch) const {
  auto* const xs = static_cast<uint32_t*>(scratch);
  uint32_t* const dys = xs + x_words();
  auto* const sums = reinterpret_cast<float*>(dys + dy_words());
  const int64_t tasks = y_panels_ * x_panels_ * taps_;
  const int64_t shares = std::min(threads_, tasks);
  bool finite = true;
  for (int64_t i = 0; i < chunks_ && finite; ++i) {
    const Chunk chunk = ChunkAt(i);
    finite = PackChunk(chunk, x, dy, xs, dys);
    ParallelFor(shares, 1, [&](int64_t first, int64_t last) {
      const Tiles tiles;
      const int64_t end = tasks * last / shares;
      for (int64_t t = tasks * first / shares, next; t < end; t = next) {
        next = std::min(end, (t / taps_ + 1) * taps_);
        AddChunk(chunk, t, next, xs, dys, i > 0, sums + t * kPanel * kPanel);
      }
    });
  }
  ParallelFor(y_panels_ * x_panels_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o0 = i / x_panels_ * kPanel, c0 = i % x_panels_ * kPanel;
      for (int64_t o = o0; o < std::min(c_.y.c, o0 + kPanel); ++o) {
        for (int64_t c = c0; c < std::min(c_.x.c, c0 + kPanel); ++c) {
          const float* from = sums + i * taps_ * kPanel * kPanel + (o - o0) * kPanel + (c - c0);
          T* const to = dw + (o * c_.x.c + c) * taps_;
          for (int64_t t = 0; t < taps_; ++t) to[t] = static_cast<T>(from[t * kPanel * kPanel]);
        }
      }
    }
  });
  return finite;
}

// Words of images block by block, of these pixel by pixel, of these panel by panel.
template <class T>
bool TileWeightGradient<T>::PackChunk(const Chunk& chunk, const T* x, const T* dy, uint32_t* x_words,
                                      uint32_t* dy_words) const {
  const int64_t x_pixels = (chunk.x_last - chunk.x_first) * c_.x.w, y_pixels = (chunk.last - chunk.first) * c_.y.w;
  std::atomic<bool> finite{true};
  ParallelFor(chunk.blocks * (x_pixels + y_pixels), 1, [&](int64_t begin, int64_t end) {
    Packer<T> packer;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / (x_pixels + y_pixels), place = i % (x_pixels + y_pixels);
      const bool of_x = place < x_pixels;
      const Image& image = of_x ? c_.x : c_.y;
      const int64_t pixel = of_x ? place : place - x_pixels, first_image = (chunk.images + block) * kPanel;
      const int64_t panels = of_x ? x_panels_ : y_panels_;
      const int64_t first_pixel = of_x ? chunk.x_first * c_.x.w : chunk.first * c_.y.w;
      const T* const from = (of_x ? x : dy) + first_image * ImageStride(image) + (first_pixel + pixel) * image.c;
      uint32_t* const words = of_x ? x_words + block * x_pixels * panels * kStepWords<T>
                                   : dy_words + block * y_pixels * panels * kStepWords<T>;
      uint32_t* const to = words + pixel * panels * kStepWords<T>;
      for (int64_t p = 0; p < panels; ++p)
        PackAlongImages(image, from, image.n - first_image, p * kPanel, !of_x, packer, to + p * kStepWords<T>);
    }
    if (!packer.finite()) finite = false;
  });
  return finite;
}

// Tasks, each a panel of dy, a panel of x and a tap: [begin, end) of the same panels. They go over the chunk together,
// a few rows at a time, which stay in a core's own cache meanwhile.
template <class T>
void TileWeightGradient<T>::AddChunk(const Chunk& chunk, int64_t begin, int64_t end, const uint32_t* x_words,
                                     const uint32_t* dy_words, bool add, float* sums) const {
  const int64_t x_panel = begin / taps_ % x_panels_, y_panel = begin / taps_ / x_panels_;
  const int64_t rows = chunk.blocks * (chunk.last - chunk.first), together = CeilDiv(kSumSteps, c_.y.w);
  for (int64_t r = 0; r < rows; r += together) {
    for (int64_t t = begin; t < end; ++t) {
      BeginSums(false, nullptr, 0);
      for (int64_t i = r; i < std::min(rows, r + together); ++i) {
        AddRow(chunk, i, t % taps_, x_words + x_panel * kStepWords<T>, dy_words + y_panel * kStepWords<T>);
      }
      float* const to = sums + (t - begin) * kPanel * kPanel;
      if (!add && r == 0) {
        StoreSums(to, kPanel * 4);
        continue;
      }
      alignas(64) float block[kPanel * kPanel];
      StoreSums(block, kPanel * 4);
      for (int64_t k = 0; k < kPanel * kPanel; k += kTile)
        _mm512_store_ps(to + k, _mm512_add_ps(_mm512_load_ps(to + k), _mm512_load_ps(block + k)));
    }
  }
}

// Row `index` of the chunk's: of dy, and where the window's tap lies over it, of x.
template <class T>
void TileWeightGradient<T>::AddRow(const Chunk& chunk, int64_t index, int64_t tap, const uint32_t* x_words,
                                   const uint32_t* dy_words) const {
  const int64_t rows = chunk.last - chunk.first, block = index / rows;
  const int64_t row = c_.window.Start(0, chunk.first + index % rows) + tap / c_.window.size[1] * c_.window.dilation[0];
  if (row < 0 || row >= c_.x.h) return;
  const uint32_t* const dy = dy_words + index * c_.y.w * y_panels_ * kStepWords<T>;
  const int64_t x_row = block * (chunk.x_last - chunk.x_first) + row - chunk.x_first;
  const uint32_t* const x = x_words + x_row * c_.x.w * x_panels_ * kStepWords<T>;
  for (int64_t q = 0; q < c_.y.w; ++q) {
    const int64_t column = c_.window.Start(1, q) + tap % c_.window.size[1] * c_.window.dilation[1];
    if (column < 0 || column >= c_.x.w) continue;
    MultiplySteps<kParts<T>>(dy + q * y_panels_ * kStepWords<T>, x + column * x_panels_ * kStepWords<T>, 1);
  }
}

}  // namespace mslua::amx
MSLUA_AMX_END

#else  // not x86

namespace mslua::amx {
template <class T>
TileConvolution<T>::TileConvolution(const Convolution&, Direction, int64_t) {}
template <class T>
int64_t TileConvolution<T>::scratch_bytes() const {
  return 0;
}
template <class T>
bool TileConvolution<T>::Run(const T*, const T*, T*, void*) const {
  return false;
}
template <class T>
TileWeightGradient<T>::TileWeightGradient(const Convolution&, int64_t) {}
template <class T>
int64_t TileWeightGradient<T>::scratch_bytes() const {
  return 0;
}
template <class T>
bool TileWeightGradient<T>::Run(const T*, const T*, T*, void*) const {
  return false;
}
}  // namespace mslua::amx

#endif

namespace mslua::amx {

template class TileConvolution<float>;
template class TileConvolution<BF16>;
template class TileWeightGradient<float>;
template class TileWeightGradient<BF16>;

bool SupportsTiles(const Convolution& c) {
  // How often a number should be used to repay laying it out.
  constexpr int64_t kWorth = 90;
  const int64_t taps = c.window.size[0] * c.window.size[1];
  // Rows of the last tiles that would be empty: at most a fifth.
  const int64_t padded = RoundUp(c.x.n, kBlock);
  return Available() && c.x.channels_last && c.group == 1 && c.x.c >= kBlock && c.y.c >= kBlock && taps <= kMostTaps &&
         5 * (padded - c.x.n) <= padded && std::min(c.x.c, c.y.c) * taps >= kWorth;
}

}  // namespace mslua::amx
