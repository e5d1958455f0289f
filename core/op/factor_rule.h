// Factor rules: one line that says how an operator's dimensions relate. Shape checks, output shapes, sharding
// propagation, where a reduction is needed, and cost follow from it. After Shardy's
// factor notation (openxla/shardy, propagation.md).
//
//   "*b i k, *b k j -> *b i j"      matmul: `*b` is any number of dimensions, the same ones everywhere
//   "n c !h !w -> n c !p !q"        `!`: must not be split over devices
//   "n c, d -> n 1"                 a literal 1: a dimension of size one that belongs to no factor
//   "(i j) k -> i j k"              a compound dimension, major factor first
//   "r c -> r {max}"                a factor in the inputs only is reduced; the result of splitting it is
//                                   a partial value of that kind ({sum} when not said)
#pragma once

#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua {

enum class Reduction : uint8_t { kSum, kMax, kMin, kProd };
const char* Name(Reduction r);

struct FactorRule {
  struct Factor {
    std::string name;    // "k"; dimensions of `*b` are "b0", "b1", ...
    bool whole = false;  // marked `!` anywhere
    bool in_input = false, in_output = false;
    bool reduced() const { return in_input && !in_output; }
  };
  // The factors of one tensor dimension, major to minor; none for a literal 1.
  using Dim = absl::InlinedVector<int, 2>;
  using Tensor = std::vector<Dim>;

  std::vector<Factor> factors;
  std::vector<Tensor> inputs, outputs;
  Reduction reduction = Reduction::kSum;

  // The factor of that name, or -1.
  int Find(absl::string_view name) const;
};

// Reads a rule for inputs of these ranks (which say how many dimensions `*b` has).
StatusOr<FactorRule> ParseFactorRule(absl::string_view rule, absl::Span<const int64_t> input_ranks);

// The size of each factor, from the inputs' shapes; -1 where the inputs do not say (a factor of
// outputs only, or inside a compound whose other sizes are unknown). `input_names` are for the message:
//   "size of 'k' differs: dimension 2 of x is 32, dimension 1 of w is 16"
StatusOr<Shape> FactorSizes(const FactorRule& rule, absl::Span<const Shape> inputs,
                            absl::Span<const std::string> input_names);

}  // namespace mslua
