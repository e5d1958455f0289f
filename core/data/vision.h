// Vision transforms. A file of core/data/transforms declares one: its name in Lua, its fields, and what it does to an
// image. The folder is the list. (Crops, flips, Resize, Rescale, Normalize and HWC2CHW are fused: core/data/image.h.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/data/sample_draws.h"
#include "core/data/source.h"

namespace mslua::data {

struct ImageSize {
  int64_t height = 0, width = 0;
};

// An image as planes [channels,height,width].
struct Planes {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<float> values;

  void Resize(int64_t c, int64_t h, int64_t w) {
    channels = c, height = h, width = w;
    values.resize(static_cast<size_t>(c * h * w));
  }
  float* plane(int64_t c) { return values.data() + c * height * width; }
  const float* plane(int64_t c) const { return values.data() + c * height * width; }
};

// Element i of a result's row or column: (1 - w) * source[a] + w * source[b]; index -1 is a zero of padding.
struct Tap {
  int32_t a = 0, b = 0;
  float w = 0;
};

// The rows and columns of an image on their way through moves of pixels.
struct ImageTaps {
  std::vector<Tap>* rows;
  std::vector<Tap>* columns;
  std::vector<Tap>* spare;  // working memory
};
// Element i becomes element i + offset; outside there is padding.
void Window(int64_t offset, int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare);
// Linear, to n elements, with half-pixel centres. The taps so far only move pixels (w = 0).
void Interpolate(int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare);
// The nearest element, to n elements, with half-pixel centres: PyTorch's "nearest-exact".
void TakeNearest(int64_t n, std::vector<Tap>* taps, std::vector<Tap>* spare);

// The result's size for a field `size` of one number, the shorter edge, or two; -1 where it depends on an unknown one.
ImageSize SizeOfResize(const Fields& fields, ImageSize size);
// What is wrong with the field `size` of Resize.
Status CheckSizeOfResize(const Fields& fields);

struct VisionDef {
  VisionDef(std::string kind_name, std::string class_of_lua)
      : kind(std::move(kind_name)), class_name(std::move(class_of_lua)) {}

  std::string kind;              // "color_jitter", the name of its file
  std::string class_name;        // "ColorJitter"
  std::string doc;               // help
  std::vector<FieldDef> fields;  // in the order of positional arguments
  int draws = 0;                 // random numbers that a sample takes, at most; 0: it is not random
  bool resizes = false;          // `move` scales: in one pass over the pixels there is one such
  bool integers = false;         // for images of integers alone
  bool places = false;           // what it draws is a place in the image, and depends on the image's size

  // What is wrong with the fields for images of these channels; null: nothing.
  std::function<Status(const Fields& fields, int64_t channels)> check;
  // The result's size and channels; null: the image's.
  std::function<StatusOr<ImageSize>(const Fields& fields, ImageSize size)> size;
  std::function<int64_t(const Fields& fields, int64_t channels)> channels;
  // One of the two. `bound` is the value of white: 255 for images of integers, else 1. `paint` makes the result in
  // `out`.
  std::function<void(const Fields& fields, SampleDraws* draws, const ImageTaps& taps)> move;
  std::function<void(const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out)> paint;
};

// Every one of the folder, sorted by kind.
const std::vector<VisionDef>& VisionTransforms();
// Null when there is none of this kind.
const VisionDef* FindVision(const std::string& kind);

// The error of a transform: "ColorJitter: hue: ...".
inline Status BadField(const char* name, const std::string& what) {
  return absl::InvalidArgumentError(std::string(name) + ": " + what);
}

}  // namespace mslua::data
