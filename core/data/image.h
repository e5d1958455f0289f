// Chains of vision transforms, fused: crops, flips and a resize become one table of taps for the rows and
// one for the columns, Rescale and Normalize one multiply-add for each channel, HWC2CHW and a TypeCast to a
// float type at the end the way the result is stored. A chain is one pass over the image unless it resizes twice, pads
// what has been normalised, or casts to a type that has other numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/data/dataset.h"
#include "core/data/vision.h"

namespace mslua::data {

// The random numbers of one sample: stream k belongs to the k-th random transform of the column.
struct Draws {
  uint64_t seed = 0;
  absl::Span<const uint64_t> streams;
  uint64_t index = 0;  // of the sample in the epoch's global sequence
};

// An image [height,width,channels] in memory, or its planes [channels,height,width].
struct ImageView {
  const void* data = nullptr;
  DType dtype = DType::kU8;  // u8 or f32
  int64_t height = 0, width = 0, channels = 0;
  bool planar = false;
};

// A thread's working memory. Grows to the largest image and stays.
struct ImageScratch {
  typedef float F4 __attribute__((vector_size(16)));  // four channels of a pixel

  std::vector<Tap> rows, columns, spare;
  std::vector<F4> line;        // a source row: [groups of 4 channels, width + 1], the last for padding
  std::vector<float> resized;  // three rows: [3, channels, width of the result]
  std::vector<float> mixed;    // a row of the result
  Planes between[2];           // images between two passes
  Planes painted;
  std::vector<float> source;  // an image whose type is neither u8 nor f32
};

class ImageChain {
 public:
  // True for the transforms that work on images only.
  static bool IsVision(const Transform& transform);

  // `in` is [height,width,channels], sizes -1 where unknown. Images are computed in f32: the result of f64 is f32.
  // Errors name the transform and the sizes.
  static StatusOr<ImageChain> Make(const TensorType& in, absl::Span<const Transform> transforms);

  const TensorType& out() const { return out_; }

  // The result's [height,width,channels] or [channels,height,width] for an image of this size.
  StatusOr<Shape> ShapeFor(int64_t height, int64_t width) const;
  // Writes the result to `out`, ShapeFor(...) elements of out().dtype.
  Status Apply(const ImageView& image, const Draws& draws, ImageScratch* scratch, void* out) const;

 private:
  // A declared transform with its fields checked.
  struct Declared {
    const VisionDef* def = nullptr;
    Fields fields;
  };
  struct Move {
    Transform transform;
    Declared declared;  // of a Vision
  };
  // A TypeCast.
  struct NumberCast {
    DType from = DType::kF32, to = DType::kF32;
  };
  // Moves of pixels, then a multiply-add, then what is painted or cast.
  struct Pass {
    std::vector<Move> moves;
    std::vector<float> scale, shift;  // for each channel
    bool affine = false;              // else scale is 1 and shift 0
    Declared paint;                   // without a definition: nothing
    float bound = 1;                  // the value of white that it sees
    NumberCast cast;                  // from f32 to f32: none
  };

  static Pass PlainPass(int64_t channels);
  static StatusOr<ImageSize> SizeAfter(const Move& move, ImageSize size);
  Status AddDeclared(const Vision& vision, bool* resized, ImageSize* size);
  void AddCast(NumberCast cast, bool* resized);
  static Status CastPlanes(NumberCast cast, Planes* planes);

  std::vector<Pass> passes_;
  TensorType out_;
  int64_t channels_ = 0;  // of the result
  bool planar_ = false;   // the result is [channels,height,width]
};

}  // namespace mslua::data
