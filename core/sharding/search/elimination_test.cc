#include "core/sharding/search/elimination.h"

#include <random>

#include "gtest/gtest.h"

namespace mslua {
namespace {

struct CostTerm {
  Variables variables;
  CostTable table;
};
struct Problem {
  std::vector<int> domains;
  std::vector<CostTerm> terms;
};

Elimination EliminationOf(const Problem& p) {
  std::vector<Variables> variables;
  for (const CostTerm& term : p.terms) variables.push_back(term.variables);
  return Elimination(p.domains, variables);
}

Minimum Minimise(const Problem& p, SolvedParts* solved, std::vector<std::vector<int64_t>>* marginals = nullptr) {
  std::vector<CostTable> tables;
  for (const CostTerm& term : p.terms) tables.push_back(term.table);
  return EliminationOf(p).Minimise(tables, solved, marginals);
}

int64_t CostOf(const Problem& p, const std::vector<int>& values) {
  int64_t cost = 0;
  for (const CostTerm& term : p.terms) {
    size_t index = 0;
    for (int v : term.variables) index = index * p.domains[v] + values[v];
    cost += (*term.table)[index];
  }
  return cost;
}

int64_t BruteForce(const Problem& p) {
  std::vector<int> values(p.domains.size(), 0);
  int64_t best = CostOf(p, values);
  for (size_t v = 0; v < values.size();) {
    if (++values[v] == p.domains[v]) {
      values[v++] = 0;
    } else {
      best = std::min(best, CostOf(p, values));
      v = 0;
    }
  }
  return best;
}

Problem Random(uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem p;
  for (int v = 0; v < 7; ++v) p.domains.push_back(static_cast<int>(1 + random() % 4));
  for (int t = 0; t < 12; ++t) {
    CostTerm term;
    size_t entries = 1;
    for (int v = 0; v < 7; ++v) {
      if (random() % 3 != 0 || term.variables.size() == 3) continue;
      term.variables.push_back(v);
      entries *= p.domains[v];
    }
    std::vector<int64_t> costs;
    for (size_t e = 0; e < entries; ++e) costs.push_back(static_cast<int64_t>(random() % 100) - 20);
    term.table = std::make_shared<const std::vector<int64_t>>(std::move(costs));
    p.terms.push_back(std::move(term));
  }
  return p;
}

TEST(Elimination, FindsTheMinimum) {
  SolvedParts solved;  // of all of them
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Problem p = Random(seed);
    const Minimum m = Minimise(p, &solved);
    EXPECT_EQ(m.cost, BruteForce(p)) << "seed " << seed;
    EXPECT_EQ(m.cost, CostOf(p, m.values)) << "seed " << seed;
  }
}

TEST(Elimination, MarginalsAreTheMinimaWithOneValueSettled) {
  SolvedParts solved;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Problem p = Random(seed);
    std::vector<std::vector<int64_t>> marginals;
    Minimise(p, &solved, &marginals);
    ASSERT_EQ(marginals.size(), p.domains.size());
    for (size_t v = 0; v < p.domains.size(); ++v) {
      ASSERT_EQ(static_cast<int>(marginals[v].size()), p.domains[v]);
      for (int x = 0; x < p.domains[v]; ++x) {
        Problem settled = p;
        std::vector<int64_t> others(p.domains[v], int64_t{1} << 30);
        others[x] = 0;
        settled.terms.push_back({{static_cast<int>(v)}, std::make_shared<const std::vector<int64_t>>(others)});
        EXPECT_EQ(marginals[v][x], BruteForce(settled)) << "seed " << seed << ", value " << x << " of variable " << v;
      }
    }
  }
}

TEST(Elimination, AChainNeedsTablesOfTwoVariables) {
  std::vector<int> domains(50, 10);
  std::vector<CostTerm> terms;
  const auto table = std::make_shared<const std::vector<int64_t>>(100, 1);
  for (int v = 0; v + 1 < 50; ++v) terms.push_back({{v, v + 1}, table});
  const Effort effort = EliminationOf({domains, terms}).effort();
  EXPECT_NEAR(effort.largest, 100, 1e-6);
  EXPECT_NEAR(effort.total, 49 * 100 + 10, 1e-6);
}

// Layers alike are solved once, and those at the ends are not alike.
TEST(Elimination, MarginalsOfAChainOfEqualLayers) {
  constexpr int kLength = 40, kValues = 3;
  const auto step = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{4, 1, 7, 2, 5, 3, 6, 0, 9});
  const auto end = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{11, 0, 5});
  std::vector<CostTerm> terms{{{0}, end}, {{kLength - 1}, end}};
  for (int v = 0; v + 1 < kLength; ++v) terms.push_back({{v, v + 1}, step});
  const std::vector<int> domains(kLength, kValues);
  SolvedParts solved;
  std::vector<std::vector<int64_t>> marginals;
  Minimise({domains, terms}, &solved, &marginals);
  std::vector<std::vector<int64_t>> before{*end}, after{*end};  // the least of what comes before, and after, a place
  for (int v = 1; v < kLength; ++v) {
    std::vector<int64_t> b(kValues, 1 << 30), a(kValues, 1 << 30);
    for (int x = 0; x < kValues; ++x) {
      for (int y = 0; y < kValues; ++y) {
        b[y] = std::min(b[y], before.back()[x] + (*step)[x * kValues + y]);
        a[x] = std::min(a[x], after.back()[y] + (*step)[x * kValues + y]);
      }
    }
    before.push_back(b);
    after.push_back(a);
  }
  for (int v = 0; v < kLength; ++v) {
    for (int x = 0; x < kValues; ++x) EXPECT_EQ(marginals[v][x], before[v][x] + after[kLength - 1 - v][x]) << v;
  }
}

TEST(Elimination, VariablesWithOneValueCostNothing) {
  SolvedParts solved;
  const auto table = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 3});
  const std::vector<int> domains{1, 2};
  const std::vector<CostTerm> terms{{{0, 1}, table}};
  const Minimum m = Minimise({domains, terms}, &solved);
  EXPECT_EQ(m.cost, 3);
  EXPECT_EQ(m.values, (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace mslua
