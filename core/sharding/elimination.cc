#include "core/sharding/elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace mslua {
namespace {

// Min-fill: the variable whose elimination ties the fewest pairs of its neighbours anew; among equals the one with the
// smaller table, then the first.
class Ordering {
 public:
  Ordering(const std::vector<int>& domains, const std::vector<CostTerm>& terms)
      : domains_(domains), neighbours_(domains.size()), priority_(domains.size()) {
    for (const CostTerm& term : terms) {
      for (int a : term.variables) {
        for (int b : term.variables) {
          if (a != b && domains[a] > 1 && domains[b] > 1) neighbours_[a].insert(b);
        }
      }
    }
  }

  std::vector<int> Run(Effort* effort) {
    std::vector<int> order;
    for (int v = 0; v < static_cast<int>(domains_.size()); ++v) {
      priority_[v] = PriorityOf(v);
      queue_.insert(priority_[v]);
    }
    while (!queue_.empty()) {
      const auto [fill, log_entries, v] = *queue_.begin();
      queue_.erase(queue_.begin());
      order.push_back(v);
      const double entries = std::exp2(log_entries);
      effort->largest = std::max(effort->largest, entries);
      effort->total += entries;
      Remove(v);
    }
    return order;
  }

 private:
  using Priority = std::tuple<int64_t, double, int>;  // pairs to tie, log2 of the table's entries, variable

  Priority PriorityOf(int v) const {
    int64_t fill = 0;
    double log_entries = std::log2(domains_[v]);
    for (auto a = neighbours_[v].begin(); a != neighbours_[v].end(); ++a) {
      log_entries += std::log2(domains_[*a]);
      for (auto b = std::next(a); b != neighbours_[v].end(); ++b) fill += neighbours_[*a].count(*b) == 0;
    }
    return {fill, log_entries, v};
  }

  void Remove(int v) {
    std::set<int> changed = neighbours_[v];
    for (int a : neighbours_[v]) {
      neighbours_[a].erase(v);
      for (int b : neighbours_[v]) {
        if (a != b && neighbours_[a].insert(b).second) changed.insert(neighbours_[a].begin(), neighbours_[a].end());
      }
    }
    neighbours_[v].clear();
    for (int a : changed) {
      const Priority now = PriorityOf(a);
      if (now == priority_[a]) continue;
      queue_.erase(priority_[a]);
      queue_.insert(priority_[a] = now);
    }
  }

  const std::vector<int>& domains_;
  std::vector<std::set<int>> neighbours_;
  std::vector<Priority> priority_;
  std::set<Priority> queue_;
};

// A table over other variables than before, whatever they are: what eliminating one variable gives.
struct Message {
  int table = -1;                                     // number among the interned tables
  std::shared_ptr<const std::vector<uint16_t>> best;  // the eliminated variable's value for each entry
  int64_t constant = 0;  // taken out of every entry, so that messages of equal layers become equal
};

class Elimination {
 public:
  Elimination(const std::vector<int>& domains, const std::vector<CostTerm>& terms)
      : domains_(domains), of_(domains.size()) {
    for (const CostTerm& term : terms) AddTerm(Wide(term.variables), Intern(term.table));
  }

  Minimum Run(const std::vector<int>& order) {
    std::vector<std::pair<std::vector<int>, Message>> steps;
    for (int v : order) {
      std::vector<int> scope = ScopeOf(v);
      Message message = Eliminate(v, scope);
      constant_ += message.constant;
      AddTerm(scope, message.table);
      steps.emplace_back(std::move(scope), std::move(message));
    }
    Minimum minimum;
    minimum.cost = constant_;
    minimum.values.assign(domains_.size(), 0);
    for (size_t i = order.size(); i-- > 0;) {
      size_t index = 0;
      for (int u : steps[i].first) index = index * domains_[u] + minimum.values[u];
      minimum.values[order[i]] = (*steps[i].second.best)[index];
    }
    return minimum;
  }

 private:
  struct Term {
    std::vector<int> variables;
    int table;
    bool done = false;
  };
  // One term of a bucket: where the entries are for each value of the eliminated variable, in a row.
  struct Row {
    std::vector<int64_t> copy;  // empty: the table itself
    const int64_t* at;
    std::vector<int64_t> strides;  // of the scope's variables, 0: not among the term's
  };

  std::vector<int> Wide(const std::vector<int>& variables) const {
    std::vector<int> wide;
    for (int v : variables) {
      if (domains_[v] > 1) wide.push_back(v);
    }
    return wide;
  }

  void AddTerm(std::vector<int> variables, int table) {
    if (variables.empty()) {
      constant_ += (*tables_[table])[0];
      return;
    }
    for (int v : variables) of_[v].push_back(terms_.size());
    terms_.push_back({std::move(variables), table});
  }

  // Tables with the same entries have one number.
  int Intern(const CostTable& table) {
    const auto known = by_address_.find(table.get());
    if (known != by_address_.end()) return known->second;
    auto& same = by_content_[absl::Hash<std::vector<int64_t>>()(*table)];
    for (int t : same) {
      if (*tables_[t] == *table) return t;
    }
    same.push_back(static_cast<int>(tables_.size()));
    tables_.push_back(table);
    by_address_.emplace(table.get(), same.back());
    return same.back();
  }

  std::vector<int> ScopeOf(int v) const {
    std::set<int> scope;
    for (size_t t : of_[v]) {
      if (!terms_[t].done) scope.insert(terms_[t].variables.begin(), terms_[t].variables.end());
    }
    scope.erase(v);
    return {scope.begin(), scope.end()};
  }

  Message Eliminate(int v, const std::vector<int>& scope) {
    // What the result depends on: the sizes, and each table with the places of its variables.
    std::vector<std::vector<int>> parts;
    std::vector<size_t> bucket;
    for (size_t t : of_[v]) {
      if (terms_[t].done) continue;
      terms_[t].done = true;
      bucket.push_back(t);
      std::vector<int> part{terms_[t].table};
      for (int u : terms_[t].variables)
        part.push_back(u == v ? -1 : static_cast<int>(std::lower_bound(scope.begin(), scope.end(), u) - scope.begin()));
      parts.push_back(std::move(part));
    }
    std::sort(parts.begin(), parts.end());
    std::vector<int> sizes{domains_[v]};
    for (int u : scope) sizes.push_back(domains_[u]);
    parts.push_back(std::move(sizes));
    const auto known = solved_.find(parts);
    if (known != solved_.end()) return known->second;
    const Message message = Compute(v, scope, bucket);
    solved_.emplace(std::move(parts), message);
    return message;
  }

  Row RowOf(const Term& term, int v, const std::vector<int>& scope) const {
    Row row;
    row.at = tables_[term.table]->data();
    row.strides.assign(scope.size(), 0);
    const auto place = std::find(term.variables.begin(), term.variables.end(), v);
    if (place + 1 != term.variables.end()) {
      int64_t outer = 1, inner = 1;
      for (auto u = term.variables.begin(); u != place; ++u) outer *= domains_[*u];
      for (auto u = place + 1; u != term.variables.end(); ++u) inner *= domains_[*u];
      const int64_t n = domains_[v];
      row.copy.resize(outer * inner * n);
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t x = 0; x < n; ++x) {
          for (int64_t i = 0; i < inner; ++i) row.copy[(o * inner + i) * n + x] = row.at[(o * n + x) * inner + i];
        }
      }
    }
    int64_t stride = domains_[v];
    for (auto u = term.variables.rbegin(); u != term.variables.rend(); ++u) {
      if (*u == v) continue;
      row.strides[std::lower_bound(scope.begin(), scope.end(), *u) - scope.begin()] = stride;
      stride *= domains_[*u];
    }
    return row;
  }

  Message Compute(int v, const std::vector<int>& scope, const std::vector<size_t>& bucket) {
    std::vector<Row> rows;
    rows.reserve(bucket.size());
    for (size_t t : bucket) {
      rows.push_back(RowOf(terms_[t], v, scope));
      if (!rows.back().copy.empty()) rows.back().at = rows.back().copy.data();
    }
    int64_t entries = 1;
    for (int u : scope) entries *= domains_[u];
    std::vector<int64_t> least(entries), sum(domains_[v]);
    std::vector<uint16_t> best(entries);
    std::vector<int> at(scope.size(), 0);
    for (int64_t e = 0; e < entries; ++e) {
      std::fill(sum.begin(), sum.end(), 0);
      for (const Row& row : rows) {
        for (size_t x = 0; x < sum.size(); ++x) sum[x] += row.at[x];
      }
      const auto min = std::min_element(sum.begin(), sum.end());
      least[e] = *min;
      best[e] = static_cast<uint16_t>(min - sum.begin());
      for (size_t d = scope.size(); d-- > 0;) {
        const bool carry = ++at[d] == domains_[scope[d]];
        for (Row& row : rows) row.at += carry ? -row.strides[d] * (domains_[scope[d]] - 1) : row.strides[d];
        if (!carry) break;
        at[d] = 0;
      }
    }
    Message message;
    message.constant = *std::min_element(least.begin(), least.end());
    for (int64_t& cost : least) cost -= message.constant;
    message.best = std::make_shared<const std::vector<uint16_t>>(std::move(best));
    message.table = Intern(std::make_shared<const std::vector<int64_t>>(std::move(least)));
    return message;
  }

  const std::vector<int>& domains_;
  std::vector<CostTable> tables_;
  absl::flat_hash_map<const std::vector<int64_t>*, int> by_address_;
  absl::flat_hash_map<size_t, std::vector<int>> by_content_;
  absl::flat_hash_map<std::vector<std::vector<int>>, Message> solved_;
  std::vector<Term> terms_;
  std::vector<std::vector<size_t>> of_;  // the terms of each variable
  int64_t constant_ = 0;
};

}  // namespace

std::vector<int> EliminationOrder(const std::vector<int>& domains, const std::vector<CostTerm>& terms, Effort* effort) {
  return Ordering(domains, terms).Run(effort);
}

Minimum Minimise(const std::vector<int>& domains, const std::vector<CostTerm>& terms, const std::vector<int>& order) {
  return Elimination(domains, terms).Run(order);
}

}  // namespace mslua
