#include "core/sharding/elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"

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

// What the rest of a problem says of a part: of its eliminated variable, and to the terms that the part was made of.
struct Downward {
  std::vector<int64_t> marginal;
  std::vector<int> messages;  // by place in the bucket the number of a table, -1: not the message of a part
};

}  // namespace

struct SolvedParts::Known {
  struct Part {
    int number;
    Message message;
  };
  std::vector<CostTable> tables;
  absl::flat_hash_map<size_t, std::vector<int>> by_content;
  absl::flat_hash_map<std::vector<int>, Part> parts;
  absl::flat_hash_map<std::vector<int>, Downward> downwards;
  size_t entries = 0;  // of the tables

  // Whether what is known takes too much memory to be kept.
  bool Full() const { return entries > size_t{1} << 24; }
};

SolvedParts::SolvedParts() : known_(std::make_unique<Known>()) {}
SolvedParts::~SolvedParts() = default;

class Elimination {
 public:
  Elimination(const std::vector<int>& domains, const std::vector<CostTerm>& terms, SolvedParts* solved)
      : domains_(domains), known_(*solved->known_), tables_(known_.tables), of_(domains.size()) {
    if (known_.Full()) known_ = {};
    terms_.reserve(terms.size() + domains.size());
    for (const CostTerm& term : terms) AddTerm(Wide(term.variables), Intern(term.table));
  }

  Minimum Run(const std::vector<int>& order) {
    for (int v : order) {
      Step step{v, ScopeOf(v), {}, -1, 0, {}};
      const SolvedParts::Known::Part& part = Eliminate(v, step.scope, &step.bucket);
      step.part = part.number;
      step.best = part.message.best;
      constant_ += part.message.constant;
      if (!step.scope.empty()) step.term = static_cast<int>(terms_.size());
      AddTerm(Variables(step.scope.begin(), step.scope.end()), part.message.table);
      steps_.push_back(std::move(step));
    }
    Minimum minimum;
    minimum.cost = constant_;
    minimum.values.assign(domains_.size(), 0);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      size_t index = 0;
      for (int u : step->scope) index = index * domains_[u] + minimum.values[u];
      minimum.values[step->variable] = (*step->best)[index];
    }
    return minimum;
  }

  // After Run. What the rest of the problem says of a step's scope goes down the way that its message came up.
  std::vector<std::vector<int64_t>> Marginals() {
    std::vector<std::vector<int64_t>> marginals(domains_.size());
    std::vector<int> step_of(terms_.size(), -1);  // by term: the step whose message it is
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].term >= 0) step_of[steps_[i].term] = static_cast<int>(i);
    }
    std::vector<int> down(steps_.size(), -1);  // by step, over its scope: a table, -1: nothing is said
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step& step = steps_[i];
      std::vector<int> key{step.part, down[i]};
      for (size_t t : step.bucket) key.push_back(step_of[t] >= 0);
      auto known = known_.downwards.find(key);
      if (known == known_.downwards.end()) {
        Downward fresh = DownwardOf(step, down[i], step_of);
        known = known_.downwards.emplace(std::move(key), std::move(fresh)).first;
      }
      marginals[step.variable] = known->second.marginal;
      Lift(&marginals[step.variable]);
      for (size_t b = 0; b < step.bucket.size(); ++b) {
        if (step_of[step.bucket[b]] >= 0) down[step_of[step.bucket[b]]] = known->second.messages[b];
      }
    }
    return marginals;
  }

 private:
  struct Term {
    Variables variables;
    int table;
    bool done = false;
  };
  struct Step {
    int variable;
    std::vector<int> scope;
    std::vector<size_t> bucket;  // the terms that were summed, in the order of the part's key
    int term;                    // the number of its message among the terms, or -1: it is a constant
    int part;
    std::shared_ptr<const std::vector<uint16_t>> best;
  };

  Downward DownwardOf(const Step& step, int down, const std::vector<int>& step_of) {
    std::vector<int> clique = step.scope;
    clique.push_back(step.variable);
    std::vector<int64_t> sum = Spread(down < 0 ? std::vector<int64_t>() : *tables_[down], clique);
    for (size_t t : step.bucket) Accumulate(terms_[t], clique, &sum);
    Downward out{Least(sum, clique, {step.variable}), {}};
    for (size_t t : step.bucket) {
      out.messages.push_back(-1);
      if (step_of[t] < 0) continue;
      std::vector<int64_t> message = Least(sum, clique, terms_[t].variables);
      const std::vector<int64_t>& up = *tables_[terms_[t].table];
      for (size_t e = 0; e < message.size(); ++e) message[e] -= up[e];
      // Without a constant, so that what is said to equal layers becomes equal.
      const int64_t least = *std::min_element(message.begin(), message.end());
      for (int64_t& cost : message) cost -= least;
      out.messages.back() = InternContent(std::make_shared<const std::vector<int64_t>>(std::move(message)));
    }
    return out;
  }

  // A sum over all of a clique, its last variable minor-most, of a function of the variables before the last.
  std::vector<int64_t> Spread(const std::vector<int64_t>& function, const std::vector<int>& clique) const {
    size_t entries = 1;
    for (int u : clique) entries *= domains_[u];
    std::vector<int64_t> sum(entries, 0);
    const size_t n = domains_[clique.back()];
    for (size_t e = 0; e < function.size(); ++e) std::fill_n(sum.begin() + e * n, n, function[e]);
    return sum;
  }

  // Calls with the index into a table over `variables` of each entry of a table over `clique`.
  template <class F>
  void Walk(const std::vector<int>& clique, absl::Span<const int> variables, const F& f) const {
    std::vector<int64_t> strides(clique.size(), 0);
    int64_t stride = 1;
    for (auto u = variables.rbegin(); u != variables.rend(); ++u) {
      strides[std::find(clique.begin(), clique.end(), *u) - clique.begin()] = stride;
      stride *= domains_[*u];
    }
    std::vector<int> at(clique.size(), 0);
    const int64_t inner = domains_[clique.back()], step = strides.back();
    int64_t entries = 1, index = 0;
    for (int u : clique) entries *= domains_[u];
    for (int64_t e = 0; e < entries; e += inner) {
      f(e, index, inner, step);
      for (size_t d = clique.size() - 1; d-- > 0;) {
        index += strides[d];
        if (++at[d] < domains_[clique[d]]) break;
        index -= strides[d] * domains_[clique[d]];
        at[d] = 0;
      }
    }
  }

  void Accumulate(const Term& term, const std::vector<int>& clique, std::vector<int64_t>* sum) const {
    const int64_t* table = tables_[term.table]->data();
    Walk(clique, term.variables, [&](int64_t e, int64_t index, int64_t inner, int64_t step) {
      for (int64_t x = 0; x < inner; ++x) (*sum)[e + x] += table[index + x * step];
    });
  }

  std::vector<int64_t> Least(const std::vector<int64_t>& sum, const std::vector<int>& clique,
                             absl::Span<const int> variables) const {
    size_t entries = 1;
    for (int u : variables) entries *= domains_[u];
    std::vector<int64_t> least(entries, std::numeric_limits<int64_t>::max());
    Walk(clique, variables, [&](int64_t e, int64_t index, int64_t inner, int64_t step) {
      for (int64_t x = 0; x < inner; ++x) {
        int64_t& entry = least[index + x * step];
        entry = std::min(entry, sum[e + x]);
      }
    });
    return least;
  }

  // Adds what has been taken out as constants: the least is the minimum of all.
  void Lift(std::vector<int64_t>* marginal) const {
    const int64_t missing = constant_ - *std::min_element(marginal->begin(), marginal->end());
    for (int64_t& cost : *marginal) cost += missing;
  }

  // One term of a bucket: where the entries are for each value of the eliminated variable, in a row.
  struct Row {
    std::vector<int64_t> copy;  // empty: the table itself
    const int64_t* at;
    std::vector<int64_t> strides;  // of the scope's variables, 0: not among the term's
  };

  Variables Wide(const Variables& variables) const {
    Variables wide;
    for (int v : variables) {
      if (domains_[v] > 1) wide.push_back(v);
    }
    return wide;
  }

  void AddTerm(Variables variables, int table) {
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
    const int number = InternContent(table);
    by_address_.emplace(table.get(), number);
    return number;
  }
  int InternContent(const CostTable& table) {
    auto& same = known_.by_content[absl::Hash<std::vector<int64_t>>()(*table)];
    for (int t : same) {
      if (*tables_[t] == *table) return t;
    }
    same.push_back(static_cast<int>(tables_.size()));
    tables_.push_back(table);
    known_.entries += table->size();
    return same.back();
  }

  std::vector<int> ScopeOf(int v) const {
    std::vector<int> scope;
    for (size_t t : of_[v]) {
      if (!terms_[t].done) scope.insert(scope.end(), terms_[t].variables.begin(), terms_[t].variables.end());
    }
    std::sort(scope.begin(), scope.end());
    scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
    scope.erase(std::remove(scope.begin(), scope.end(), v), scope.end());
    return scope;
  }

  const SolvedParts::Known::Part& Eliminate(int v, const std::vector<int>& scope, std::vector<size_t>* bucket) {
    // What the result depends on: the sizes, and each table with the places of its variables.
    using Member = std::pair<absl::InlinedVector<int, 6>, size_t>;
    absl::InlinedVector<Member, 8> members;
    for (size_t t : of_[v]) {
      if (terms_[t].done) continue;
      terms_[t].done = true;
      members.emplace_back();
      members.back().second = t;
      members.back().first.push_back(terms_[t].table);
      for (int u : terms_[t].variables)
        members.back().first.push_back(
            u == v ? -1 : static_cast<int>(std::lower_bound(scope.begin(), scope.end(), u) - scope.begin()));
    }
    std::sort(members.begin(), members.end());
    std::vector<int> key{domains_[v]};
    for (int u : scope) key.push_back(domains_[u]);
    for (const Member& member : members) {
      key.push_back(-2);  // no table, place or size
      key.insert(key.end(), member.first.begin(), member.first.end());
      bucket->push_back(member.second);
    }
    const auto known = known_.parts.find(key);
    if (known != known_.parts.end()) return known->second;
    SolvedParts::Known::Part part{static_cast<int>(known_.parts.size()), Compute(v, scope, *bucket)};
    return known_.parts.emplace(std::move(key), std::move(part)).first->second;
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
    message.table = InternContent(std::make_shared<const std::vector<int64_t>>(std::move(least)));
    return message;
  }

  const std::vector<int>& domains_;
  SolvedParts::Known& known_;
  std::vector<CostTable>& tables_;
  absl::flat_hash_map<const std::vector<int64_t>*, int> by_address_;  // of the terms of this problem
  std::vector<Term> terms_;
  std::vector<Step> steps_;
  std::vector<std::vector<size_t>> of_;  // the terms of each variable
  int64_t constant_ = 0;
};

std::vector<int> EliminationOrder(const std::vector<int>& domains, const std::vector<CostTerm>& terms, Effort* effort) {
  return Ordering(domains, terms).Run(effort);
}

Minimum Minimise(const std::vector<int>& domains, const std::vector<CostTerm>& terms, const std::vector<int>& order,
                 SolvedParts* solved, std::vector<std::vector<int64_t>>* marginals) {
  Elimination elimination(domains, terms, solved);
  Minimum minimum = elimination.Run(order);
  if (marginals != nullptr) *marginals = elimination.Marginals();
  return minimum;
}

}  // namespace mslua
