// In which order to eliminate the variables of a sum of functions of few of them.
#pragma once

#include <vector>

#include "absl/container/inlined_vector.h"

namespace mslua {

// Of a term, ascending.
using Variables = absl::InlinedVector<int, 2>;

// What an elimination needs.
struct Effort {
  double largest = 0;  // entries of its largest table
  double total = 0;    // of all its tables
};

// Min-fill: the variable whose elimination adds the fewest new pairs among its neighbours; among equals the one with
// the smaller table, then the first. `domains`: how many values each variable has.
std::vector<int> EliminationOrder(const std::vector<int>& domains, const std::vector<Variables>& terms, Effort* effort);

}  // namespace mslua
