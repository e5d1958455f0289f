// The part of a tensor that one rank or one file has.
#pragma once

#include "core/base/shape.h"

namespace mslua {

// A box of a tensor: `size` elements from `begin` on, by dimension, of a tensor of the sizes `whole`. A slice of a
// tensor's elements is a box of the flat tensor. Without dimensions it is the whole tensor.
struct Part {
  Shape whole, begin, size;

  // All of a tensor of these sizes.
  static Part Of(Shape whole) { return {whole, Shape(whole.size(), 0), whole}; }
  // `count` of `whole` elements from `begin` on, as far as there are so many: what a rank has behind them is padding.
  static Part Slice(int64_t whole, int64_t begin, int64_t count);

  bool all() const { return size == whole; }
  Shape end() const;
  // Whether it is a box, and lies within the tensor.
  bool valid() const;
  friend bool operator==(const Part& a, const Part& b) {
    return a.whole == b.whole && a.begin == b.begin && a.size == b.size;
  }
};

}  // namespace mslua
