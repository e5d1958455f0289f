#include "core/ops/support/split_convolution.h"

#if defined(__x86_64__)

#include <algorithm>
#include <atomic>

#include "core/base/parallel_for.h"
#include "core/ops/support/amx-inl.h"

MSLUA_AMX_BEGIN

namespace mslua::amx {
namespace {

constexpr int64_t kStripWords = 1 << 20;   // of the operand that a thread splits at a time (4 MiB), at most
constexpr int64_t kNearWords = 256 << 10;  // of weights that stay in a core's own cache (1 MiB)
constexpr int64_t kChunkWords = 2 << 20;   // of both images that all threads split at a time (8 MiB), about
constexpr int64_t kSumSteps = 64;          // of a weight's gradient that are summed by themselves, about

int64_t ImageStride(const Image& image) { return image.pixels() * image.c; }

// Steps of the pixels from `from` on, `pixels` of them one after the other, of 32 images: a tile's row is an image, its
// words are channels.
void SplitPixels(const Image& image, const float* from, int64_t images, int64_t pixels, Splitter& splitter,
                 uint32_t* to) {
  const int64_t steps = CeilDiv(image.c, kStep), stride = ImageStride(image);
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t r = 0; r < kPanel; ++r) {
      const float* at = from + r * stride + p * image.c;
      uint32_t* row = to + p * steps * kStepWords + r * kTile;
      for (int64_t s = 0; s < steps; ++s, at += kStep, row += kStepWords) {
        const int64_t left = r < images ? image.c - s * kStep : 0;
        Prefetch(at + 2 * image.c);
        Prefetch(at + 2 * image.c + kTile);
        splitter.AlongK(_mm512_maskz_loadu_ps(First(left), at), _mm512_maskz_loadu_ps(First(left - kTile), at + kTile),
                        row, kPlane);
      }
    }
  }
}

// Numbers of row k, 16 columns from `at` on, `stride` apart.
__m512 Column16(const float* at, int64_t stride, __mmask16 lanes) {
  const __m512i index = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                           _mm512_set1_epi32(static_cast<int>(stride)));
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, index, at, 4);
}

// Pixel `from` of 32 images, channels [channel, channel + 32), as a step along the images: a tile's row is two images,
// its words are channels; or, turned, a row is a channel.
void SplitAlongImages(const Image& image, const float* from, int64_t images, int64_t channel, bool turned,
                      Splitter& splitter, uint32_t* to) {
  alignas(64) uint32_t words[3 * kTileWords];
  const int64_t stride = ImageStride(image);
  for (int64_t half = 0; half < 2; ++half) {
    const __mmask16 lanes = First(image.c - channel - half * kTile);
    const float* const at = from + channel + half * kTile;
    for (int64_t r = 0; r < kTile; ++r) {
      const float *const first = at + 2 * r * stride, *const second = first + stride;
      Prefetch(first + 2 * image.c);
      Prefetch(second + 2 * image.c);
      splitter.AcrossK(_mm512_maskz_loadu_ps(2 * r < images ? lanes : 0, first),
                       _mm512_maskz_loadu_ps(2 * r + 1 < images ? lanes : 0, second),
                       turned ? words + r * kTile : to + half * kTileWords + r * kTile, turned ? kTileWords : kPlane);
    }
    for (int64_t part = 0; turned && part < 3; ++part)
      TransposeWords(words + part * kTileWords, kTile, to + half * kTileWords + part * kPlane, kTile);
  }
}

}  // namespace

SplitConvolution::SplitConvolution(const Convolution& c, Direction direction, int64_t threads)
    : from_(direction == Direction::kForward ? c.x : c.y),
      to_(direction == Direction::kForward ? c.y : c.x),
      taps_(c.window.size[0] * c.window.size[1]),
      threads_(threads),
      k_stride_(direction == Direction::kForward ? taps_ : c.x.c * taps_),
      column_stride_(direction == Direction::kForward ? c.x.c * taps_ : taps_),
      steps_(CeilDiv(from_.c, kStep)),
      panels_(CeilDiv(to_.c, kPanel)) {
  FindTerms(c, direction);
  CutStrips();
}

void SplitConvolution::FindTerms(const Convolution& c, Direction direction) {
  struct Place {
    int32_t to;
    Term term;
  };
  std::vector<Place> places;
  for (int64_t p = 0; p < c.y.h; ++p) {
    for (int64_t q = 0; q < c.y.w; ++q) {
      ForEachTap(c.window, c.x.h, c.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
        const auto x = static_cast<int32_t>(row * c.x.w + column), y = static_cast<int32_t>(p * c.y.w + q);
        const auto tap = static_cast<int32_t>(i * c.window.size[1] + j);
        if (direction == Direction::kForward) {
          places.push_back({y, {x, tap}});
        } else {
          places.push_back({x, {y, tap}});
        }
      });
    }
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.to < b.to; });
  first_term_.assign(to_.pixels() + 1, 0);
  for (const Place& place : places) {
    terms_.push_back(place.term);
    ++first_term_[place.to + 1];
  }
  for (int64_t p = 0; p < to_.pixels(); ++p) first_term_[p + 1] += first_term_[p];
}

void SplitConvolution::CutStrips() {
  const int64_t row_words = from_.w * pixel_words();
  std::vector<Strip> of_image;
  Strip strip{0, 0, 0, from_.h, 0};
  for (int64_t row = 0; row < to_.h; ++row) {
    Strip grown = strip;
    grown.last = row + 1;
    for (int64_t t = first_term_[row * to_.w]; t < first_term_[(row + 1) * to_.w]; ++t) {
      const int64_t from_row = terms_[t].pixel / from_.w;
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

int64_t SplitConvolution::pixel_words() const { return steps_ * kStepWords; }
int64_t SplitConvolution::weight_words() const { return panels_ * taps_ * pixel_words(); }

bool SplitConvolution::Run(const float* from, const float* weight, float* to, void* scratch) const {
  auto* const weights = static_cast<uint32_t*>(scratch);
  std::atomic<bool> finite{true};
  ParallelFor(panels_ * taps_, 1, [&](int64_t begin, int64_t end) {
    if (!SplitWeights(weight, begin, end, weights)) finite = false;
  });
  const auto strips = static_cast<int64_t>(strips_.size());
  const int64_t shares = std::min(threads_, strips);
  ParallelFor(shares, 1, [&](int64_t first, int64_t last) {
    const Tiles tiles;
    for (int64_t t = first; t < last; ++t) {
      uint32_t* const words = weights + weight_words() + t * strip_words_;
      for (int64_t s = strips * t / shares; s < strips * (t + 1) / shares; ++s) {
        if (!SplitStrip(strips_[s], from, words)) finite = false;
        MultiplyStrip(strips_[s], words, weights, to);
      }
    }
  });
  return finite;
}

// Panel by panel, and of a panel tap by tap: [begin, end) of these.
bool SplitConvolution::SplitWeights(const float* weight, int64_t begin, int64_t end, uint32_t* to) const {
  Splitter splitter;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t panel = i / taps_, tap = i % taps_;
    uint32_t* step = to + i * pixel_words();
    for (int64_t k = 0; k < from_.c; k += kStep, step += kStepWords) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t column = panel * kPanel + half * kTile;
        const __mmask16 lanes = First(to_.c - column);
        for (int64_t r = 0; r < kTile; ++r) {
          const float* const at = weight + tap + column * column_stride_ + (k + 2 * r) * k_stride_;
          splitter.AcrossK(Column16(at, column_stride_, k + 2 * r < from_.c ? lanes : 0),
                           Column16(at + k_stride_, column_stride_, k + 2 * r + 1 < from_.c ? lanes : 0),
                           step + half * kTileWords + r * kTile, kPlane);
        }
      }
    }
  }
  return splitter.finite();
}

bool SplitConvolution::SplitStrip(const Strip& strip, const float* from, uint32_t* to) const {
  Splitter splitter;
  const int64_t image = strip.images * kPanel;
  SplitPixels(from_, from + image * ImageStride(from_) + strip.from_first * from_.w * from_.c, from_.n - image,
              (strip.from_last - strip.from_first) * from_.w, splitter, to);
  return splitter.finite();
}

void SplitConvolution::MultiplyStrip(const Strip& strip, const uint32_t* from, const uint32_t* weights,
                                     float* to) const {
  const int64_t image = strip.images * kPanel, stride = ImageStride(to_), images = std::min(kPanel, to_.n - image);
  const uint32_t* const origin = from - strip.from_first * from_.w * pixel_words();
  const int64_t near = std::clamp<int64_t>(kNearWords / (taps_ * pixel_words()), 1, panels_);
  for (int64_t p0 = 0; p0 < panels_; p0 += near) {
    for (int64_t pixel = strip.first * to_.w; pixel < strip.last * to_.w; ++pixel) {
      for (int64_t panel = p0; panel < std::min(panels_, p0 + near); ++panel) {
        BeginSums(false, nullptr, 0);
        for (int64_t t = first_term_[pixel]; t < first_term_[pixel + 1]; ++t) {
          MultiplySteps(origin + terms_[t].pixel * pixel_words(),
                        weights + (panel * taps_ + terms_[t].tap) * pixel_words(), steps_);
        }
        float* const y = to + image * stride + pixel * to_.c + panel * kPanel;
        const int64_t columns = std::min(kPanel, to_.c - panel * kPanel);
        if (images == kPanel && columns == kPanel) {
          StoreSums(y, stride * 4);
          continue;
        }
        alignas(64) float block[kPanel * kPanel];
        StoreSums(block, kPanel * 4);
        for (int64_t r = 0; r < images; ++r) std::copy_n(block + r * kPanel, columns, y + r * stride);
      }
    }
  }
}

SplitWeightGradient::SplitWeightGradient(const Convolution& c)
    : c_(c),
      taps_(c.window.size[0] * c.window.size[1]),
      x_panels_(CeilDiv(c.x.c, kPanel)),
      y_panels_(CeilDiv(c.y.c, kPanel)) {
  const int64_t row_words = (c.window.stride[0] * c.x.w * x_panels_ + c.y.w * y_panels_) * kStepWords;
  const int64_t rows = std::max<int64_t>(1, kChunkWords / row_words), blocks = CeilDiv(c.y.n, kPanel);
  rows_ = std::min(rows, c.y.h);
  blocks_ = std::clamp<int64_t>(rows / c.y.h, 1, blocks);
  chunks_ = CeilDiv(blocks, blocks_) * CeilDiv(c.y.h, rows_);
}

SplitWeightGradient::Chunk SplitWeightGradient::ChunkAt(int64_t index) const {
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

int64_t SplitWeightGradient::x_words() const {
  const int64_t span = (rows_ - 1) * c_.window.stride[0] + (c_.window.size[0] - 1) * c_.window.dilation[0] + 1;
  return blocks_ * std::min(span, c_.x.h) * c_.x.w * x_panels_ * kStepWords;
}
int64_t SplitWeightGradient::dy_words() const { return blocks_ * rows_ * c_.y.w * y_panels_ * kStepWords; }

int64_t SplitWeightGradient::scratch_bytes() const {
  return (x_words() + dy_words() + y_panels_ * x_panels_ * taps_ * kPanel * kPanel) * 4;
}

bool SplitWeightGradient::Run(const float* x, const float* dy, float* dw, int64_t threads, void* scratch) const {
  auto* const xs = static_cast<uint32_t*>(scratch);
  uint32_t* const dys = xs + x_words();
  auto* const sums = reinterpret_cast<float*>(dys + dy_words());
  const int64_t tasks = y_panels_ * x_panels_ * taps_;
  const int64_t shares = std::min(threads, tasks);
  bool finite = true;
  for (int64_t i = 0; i < chunks_ && finite; ++i) {
    const Chunk chunk = ChunkAt(i);
    finite = SplitChunk(chunk, x, dy, xs, dys);
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
          float* const to = dw + (o * c_.x.c + c) * taps_;
          for (int64_t t = 0; t < taps_; ++t) to[t] = from[t * kPanel * kPanel];
        }
      }
    }
  });
  return finite;
}

// Words of images block by block, of these pixel by pixel, of these panel by panel.
bool SplitWeightGradient::SplitChunk(const Chunk& chunk, const float* x, const float* dy, uint32_t* x_words,
                                     uint32_t* dy_words) const {
  const int64_t x_pixels = (chunk.x_last - chunk.x_first) * c_.x.w, y_pixels = (chunk.last - chunk.first) * c_.y.w;
  std::atomic<bool> finite{true};
  ParallelFor(chunk.blocks * (x_pixels + y_pixels), 1, [&](int64_t begin, int64_t end) {
    Splitter splitter;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / (x_pixels + y_pixels), place = i % (x_pixels + y_pixels);
      const bool of_x = place < x_pixels;
      const Image& image = of_x ? c_.x : c_.y;
      const int64_t pixel = of_x ? place : place - x_pixels, first_image = (chunk.images + block) * kPanel;
      const int64_t panels = of_x ? x_panels_ : y_panels_;
      const int64_t first_pixel = of_x ? chunk.x_first * c_.x.w : chunk.first * c_.y.w;
      const float* const from = (of_x ? x : dy) + first_image * ImageStride(image) + (first_pixel + pixel) * image.c;
      uint32_t* const to = (of_x ? x_words + block * x_pixels * panels * kStepWords
                                 : dy_words + block * y_pixels * panels * kStepWords) +
                           pixel * panels * kStepWords;
      for (int64_t p = 0; p < panels; ++p)
        SplitAlongImages(image, from, image.n - first_image, p * kPanel, !of_x, splitter, to + p * kStepWords);
    }
    if (!splitter.finite()) finite = false;
  });
  return finite;
}

// Tasks, each a panel of dy, a panel of x and a tap: [begin, end) of the same panels. They go over the chunk together,
// a few rows at a time, which stay in a core's own cache meanwhile.
void SplitWeightGradient::AddChunk(const Chunk& chunk, int64_t begin, int64_t end, const uint32_t* x_words,
                                   const uint32_t* dy_words, bool add, float* sums) const {
  const int64_t x_panel = begin / taps_ % x_panels_, y_panel = begin / taps_ / x_panels_;
  const int64_t rows = chunk.blocks * (chunk.last - chunk.first), together = CeilDiv(kSumSteps, c_.y.w);
  for (int64_t r = 0; r < rows; r += together) {
    for (int64_t t = begin; t < end; ++t) {
      BeginSums(false, nullptr, 0);
      for (int64_t i = r; i < std::min(rows, r + together); ++i) {
        AddRow(chunk, i, t % taps_, x_words + x_panel * kStepWords, dy_words + y_panel * kStepWords);
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
void SplitWeightGradient::AddRow(const Chunk& chunk, int64_t index, int64_t tap, const uint32_t* x_words,
                                 const uint32_t* dy_words) const {
  const int64_t rows = chunk.last - chunk.first, block = index / rows;
  const int64_t row = c_.window.Start(0, chunk.first + index % rows) + tap / c_.window.size[1] * c_.window.dilation[0];
  if (row < 0 || row >= c_.x.h) return;
  const uint32_t* const dy = dy_words + index * c_.y.w * y_panels_ * kStepWords;
  const int64_t x_row = block * (chunk.x_last - chunk.x_first) + row - chunk.x_first;
  const uint32_t* const x = x_words + x_row * c_.x.w * x_panels_ * kStepWords;
  for (int64_t q = 0; q < c_.y.w; ++q) {
    const int64_t column = c_.window.Start(1, q) + tap % c_.window.size[1] * c_.window.dilation[1];
    if (column < 0 || column >= c_.x.w) continue;
    MultiplySteps(dy + q * y_panels_ * kStepWords, x + column * x_panels_ * kStepWords, 1);
  }
}

}  // namespace mslua::amx
MSLUA_AMX_END

#else  // not x86

namespace mslua::amx {
SplitConvolution::SplitConvolution(const Convolution&, Direction, int64_t) {}
bool SplitConvolution::Run(const float*, const float*, float*, void*) const { return false; }
SplitWeightGradient::SplitWeightGradient(const Convolution& c) : c_(c) {}
int64_t SplitWeightGradient::scratch_bytes() const { return 0; }
bool SplitWeightGradient::Run(const float*, const float*, float*, int64_t, void*) const { return false; }
}  // namespace mslua::amx

#endif

namespace mslua::amx {

bool SupportsSplit(const Convolution& c) {
  constexpr int64_t kWorth = 90;
  const int64_t taps = c.window.size[0] * c.window.size[1];
  // Rows of the last tiles that would be empty: at most a fifth.
  const int64_t padded = (c.x.n + kBlock - 1) / kBlock * kBlock;
  return Available() && c.x.channels_last && c.group == 1 && c.x.c >= kBlock && c.y.c >= kBlock &&
         5 * (padded - c.x.n) <= padded && std::min(c.x.c, c.y.c) * taps >= kWorth;
}

}  // namespace mslua::amx
