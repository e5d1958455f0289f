// Convolutions with the tile instructions of Intel processors (AMX), without a matrix of patches: of bf16, or of f32 as
// sums of three bf16 (split_matmul.h). The rows of a tile are 32 images at one pixel, so that any stride, padding and
// dilation takes whole tiles, and what lies in the padding is left out. See
// docs/explanation/decisions/0017-convolutions-on-tiles.md.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/convolution.h"

namespace mslua::amx {

constexpr int64_t kMostTaps = 64;  // places of a window

// Whether this processor has the instructions, and the sizes repay laying the operands out. Images are channels-last,
// in one group.
bool SupportsTiles(const Convolution& c);

enum class Direction { kForward, kGradInput };

// A convolution, or the gradient of its input: each pixel of a result is a sum of pixels of the operand, each times the
// weights of one place of the window. T is float or BF16.
template <class T>
class TileConvolution {
 public:
  TileConvolution(const Convolution& c, Direction direction, int64_t threads);

  // Of scratch memory, 64-byte aligned.
  int64_t scratch_bytes() const;

  // Runs on the calling thread's compute threads; the bits of `to` do not depend on how many. False where an operand is
  // f32 and not finite, or so large (3.39e38) that its upper part is not: `to` is undefined then.
  bool Run(const T* from, const T* weight, T* to, void* scratch) const;

 private:
  struct Term {
    int64_t pixel, tap;  // of the operand; of the window
  };
  // Rows [first, last) of 32 images of the result, and those of the operand that they are made of.
  struct Strip {
    int64_t images;
    int64_t first, last, from_first, from_last;
  };

  int64_t Source(int axis, int64_t to, int64_t place) const;
  int64_t TermsOf(int64_t pixel, Term* terms) const;
  void SplitIntoStrips();
  int64_t weight_words() const;
  int64_t pixel_words() const;
  bool PackWeights(const T* weight, int64_t begin, int64_t end, uint32_t* to) const;
  bool PackStrip(const Strip& strip, const T* from, uint32_t* to) const;
  void MultiplyStrip(const Strip& strip, const uint32_t* from, const uint32_t* weights, T* to) const;

  Image from_, to_;
  Window window_;
  Direction direction_;
  int64_t taps_, threads_;
  int64_t k_stride_, column_stride_;  // of the weights: from a channel of the operand to the next, of the result
  int64_t steps_, panels_;            // 32 channels each: of the operand, of the result
  std::vector<Strip> strips_;
  int64_t strip_words_ = 0;  // of the largest one
};

// The gradient of a convolution's weights.
template <class T>
class TileWeightGradient {
 public:
  TileWeightGradient(const Convolution& c, int64_t threads);

  int64_t scratch_bytes() const;
  // As above: x and dy are the images, dw [y.c, x.c, kernel height, kernel width].
  bool Run(const T* x, const T* dy, T* dw, void* scratch) const;

 private:
  // Rows [first, last) of the result's images, of images [32 images, 32 (images + blocks)); x_first, x_last: the
  // operand's rows that they are made of.
  struct Chunk {
    int64_t images, blocks;
    int64_t first, last, x_first, x_last;
  };

  Chunk ChunkAt(int64_t index) const;
  bool PackChunk(const Chunk& chunk, const T* x, const T* dy, uint32_t* x_words, uint32_t* dy_words) const;
  void AddChunk(const Chunk& chunk, int64_t begin, int64_t end, const uint32_t* x_words, const uint32_t* dy_words,
                bool add, float* sums) const;
  void AddRow(const Chunk& chunk, int64_t index, int64_t tap, const uint32_t* x_words, const uint32_t* dy_words) const;
  int64_t x_words() const;
  int64_t dy_words() const;

  Convolution c_;
  int64_t threads_, taps_, x_panels_, y_panels_;
  int64_t rows_, blocks_;  // of a chunk
  int64_t chunks_;
};

}  // namespace mslua::amx
