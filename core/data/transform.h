// What map does to one column, made ready at open: types checked, vision chains fused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/data/image.h"
#include "core/data/reader.h"

namespace mslua::data {

// Whether it draws random numbers.
bool IsRandom(const Transform& transform);

// A column's transforms, from what the reader gives to what the batch holds. Immutable; any thread.
class ColumnChain {
 public:
  // Errors name the transform, the column and what it is there. `places`: for each transform the column's name and
  // which of its transforms it is, "image/0", which the random numbers belong to; empty: of this column.
  static StatusOr<ColumnChain> Make(const Column& column, std::vector<Transform> transforms,
                                    const std::vector<std::string>& places = {});

  // Type of a transformed sample; a dimension -1 is known at run time only.
  const TensorType& out() const { return out_; }
  // Samples stay as they are.
  bool plain() const { return transforms_.empty() && image_ == nullptr; }
  // Images come out as [channels,height,width].
  bool planar() const;
  // The streams of random numbers it draws from in an epoch.
  const std::vector<std::string>& random_streams() const { return random_streams_; }

  // Writes the sample of type `want` (out() with every dimension known) to `out`. A sample whose shape
  // comes out otherwise, or a label OneHot cannot take, is an error.
  Status Apply(const RawColumn& raw, const Draws& draws, ImageScratch* scratch, const TensorType& want,
               void* out) const;
  // The type that Apply would give for this sample.
  StatusOr<TensorType> TypeFor(const RawColumn& raw) const;

 private:
  Status ApplyNumbers(const RawColumn& raw, void* out) const;
  Status CheckPixel(double value, DType type) const;

  std::string name_;
  TensorType in_, out_;
  std::vector<Transform> transforms_;
  std::vector<std::string> random_streams_;
  std::shared_ptr<const ImageChain> image_;  // set when the chain is one of images
  bool planes_ = false;                      // which are [channels,height,width] in the column
};

}  // namespace mslua::data
