// The minimum of a sum of functions of few variables with few values each, by bucket elimination (Dechter, "Bucket
// elimination: a unifying framework for reasoning", 1999) in min-fill order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace mslua {

// Costs of every combination of values, row-major, the first variable most significant. Shared: equal parts of a
// problem (the layers of a network) name the same table and are then solved once.
using CostTable = std::shared_ptr<const std::vector<int64_t>>;

// Of a term, ascending.
using Variables = absl::InlinedVector<int, 2>;

struct CostTerm {
  Variables variables;
  CostTable table;
};

// What an elimination needs.
struct Effort {
  double largest = 0;  // entries of its largest table
  double total = 0;    // of all its tables
};

// The order in which to eliminate variables, and what that takes. `domains`: how many values each variable has. Reads
// the terms' variables only.
std::vector<int> EliminationOrder(const std::vector<int>& domains, const std::vector<CostTerm>& terms, Effort* effort);

// What calls of Minimise have computed: equal parts of a problem, and of problems one after the other, are solved once.
class SolvedParts {
 public:
  SolvedParts();
  ~SolvedParts();

 private:
  friend class Elimination;
  struct Known;
  std::unique_ptr<Known> known_;
};

struct Minimum {
  std::vector<int> values;  // one that reaches it, by variable
  int64_t cost = 0;
};
// Exact. `order` from EliminationOrder; its effort says whether this is affordable. `marginals`, where it is wanted: of
// every value of every variable the least cost of all assignments that have it, for about three times the work.
Minimum Minimise(const std::vector<int>& domains, const std::vector<CostTerm>& terms, const std::vector<int>& order,
                 SolvedParts* solved, std::vector<std::vector<int64_t>>* marginals = nullptr);

}  // namespace mslua
