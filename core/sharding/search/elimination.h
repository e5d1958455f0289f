// The minimum of a sum of functions of few variables with few values each, by bucket elimination (Dechter, "Bucket
// elimination: a unifying framework for reasoning", 1999) in min-fill order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/sharding/search/elimination_order.h"

namespace mslua {

// Costs of every combination of values, row-major, the first variable most significant. Shared: equal parts of a
// problem (the layers of a network) name the same table and are then solved once.
using CostTable = std::shared_ptr<const std::vector<int64_t>>;

// What eliminations have computed: equal parts of a problem, and of problems one after the other, are solved once.
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

// A problem but for its costs: how many values each variable has, and which variables each term is about.
class Elimination {
 public:
  Elimination(std::vector<int> domains, const std::vector<Variables>& terms);
  ~Elimination();

  // Says whether Minimise is affordable.
  const Effort& effort() const { return effort_; }

  // Exact. `tables` by term. `marginals`, where it is wanted: of every value of every variable the least cost of all
  // assignments that have it, for about three times the work.
  Minimum Minimise(const std::vector<CostTable>& tables, SolvedParts* solved,
                   std::vector<std::vector<int64_t>>* marginals = nullptr) const;

 private:
  struct Step;
  class Run;
  void MakeSteps(const std::vector<Variables>& terms, const std::vector<int>& order);

  const std::vector<int> domains_;
  const int terms_;  // of the problem; the messages of steps are numbered after them
  Effort effort_;
  std::vector<Step> steps_;               // in the order of elimination
  std::vector<std::vector<int>> shapes_;  // of steps, each once: sizes, and where among them terms' variables are
  std::vector<int> constants_;            // terms about no variable that has a choice
};

}  // namespace mslua
