#include "core/sharding/search/elimination.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "core/base/target_clones.h"

namespace mslua {
namespace {

// Most of a search's arithmetic is here: for the processors that there are.
// out[i] = the least of base[x] + rows[i * stride + x], x < n.
MSLUA_VECTORS void LeastOfSums(const int64_t* base, const int64_t* rows, int64_t stride, int64_t n, int64_t count,
                               int64_t* out) {
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    int64_t least = std::numeric_limits<int64_t>::max();
#pragma omp simd reduction(min : least)
    for (int64_t x = 0; x < n; ++x) {
      const int64_t sum = base[x] + rows[x];
      least = sum < least ? sum : least;
    }
    out[i] = least;
  }
}

MSLUA_VECTORS void AddTo(const int64_t* from, int64_t n, int64_t* to) {
#pragma omp simd
  for (int64_t x = 0; x < n; ++x) to[x] += from[x];
}
MSLUA_VECTORS void AddConstant(int64_t constant, int64_t n, int64_t* to) {
#pragma omp simd
  for (int64_t x = 0; x < n; ++x) to[x] += constant;
}
MSLUA_VECTORS void TakeLeast(const int64_t* from, int64_t n, int64_t* to) {
#pragma omp simd
  for (int64_t x = 0; x < n; ++x) to[x] = from[x] < to[x] ? from[x] : to[x];
}
MSLUA_VECTORS int64_t Least(const int64_t* from, int64_t n) {
  int64_t least = std::numeric_limits<int64_t>::max();
#pragma omp simd reduction(min : least)
  for (int64_t x = 0; x < n; ++x) least = from[x] < least ? from[x] : least;
  return least;
}

// A table as outer x n x inner.
struct Turn {
  int64_t outer = 1, n = 1, inner = 1;
};
// The table as outer x inner x n.
std::vector<int64_t> Turned(const int64_t* table, const Turn& t) {
  std::vector<int64_t> out(t.outer * t.n * t.inner);
  for (int64_t o = 0; o < t.outer; ++o, table += t.n * t.inner) {
    int64_t* to = out.data() + o * t.n * t.inner;
    for (int64_t i = 0; i < t.inner; ++i) {
      for (int64_t x = 0; x < t.n; ++x) *to++ = table[x * t.inner + i];
    }
  }
  return out;
}

// One term of a bucket: where the entries are for each value of the eliminated variable, in a row.
struct Row {
  std::vector<int64_t> copy;  // empty: the table itself
  const int64_t *begin, *at;
  absl::InlinedVector<int64_t, 4> strides;  // of the scope's variables, 0: not among the term's
};

// The least sums of rows over the eliminated variable, for each value of the scope's last variable.
class Sums {
 public:
  explicit Sums(int64_t n) : n_(n), base_(n), sum_(n) {}

  void Run(const std::vector<Row>& rows, int64_t count, int64_t* out) {
    std::fill(base_.begin(), base_.end(), 0);
    const Row* last = nullptr;  // one that changes along the last variable
    int changing = 0;
    for (const Row& row : rows) {
      if (row.strides.empty() || row.strides.back() == 0) {
        AddTo(row.at, n_, base_.data());
        continue;
      }
      last = &row;
      ++changing;
    }
    if (changing == 0) {
      std::fill_n(out, count, Least(base_.data(), n_));
    } else if (changing == 1) {
      LeastOfSums(base_.data(), last->at, last->strides.back(), n_, count, out);
    } else {
      for (int64_t i = 0; i < count; ++i) OfSeveral(rows, *last, i, out + i);
    }
  }

 private:
  void OfSeveral(const std::vector<Row>& rows, const Row& last, int64_t i, int64_t* out) {
    sum_ = base_;
    for (const Row& row : rows) {
      if (&row != &last && row.strides.back() != 0) AddTo(row.at + i * row.strides.back(), n_, sum_.data());
    }
    LeastOfSums(sum_.data(), last.at + i * last.strides.back(), 0, n_, 1, out);
  }

  const int64_t n_;
  std::vector<int64_t> base_, sum_;
};

// What eliminating a variable gives: a table over other variables than before, whatever they are.
struct Part {
  int number;        // among the parts
  int table = -1;    // number among the tables
  int64_t constant;  // taken out of every entry, so that messages of equal layers become equal
};

// What the rest of a problem says of a part: of its eliminated variable, and to the terms that the part was made of.
struct Downward {
  std::vector<int64_t> marginal;
  std::vector<int> messages;  // by place in the bucket the number of a table, -1: not the message of a part
};

}  // namespace

struct SolvedParts::Known {
  using Key = absl::InlinedVector<int, 8>;
  std::vector<CostTable> tables;  // with different entries
  absl::flat_hash_map<size_t, std::vector<int>> by_content;
  absl::flat_hash_map<CostTable, int> by_address;
  absl::flat_hash_map<std::vector<int>, int> shapes;
  absl::flat_hash_map<Key, Part> parts;
  absl::flat_hash_map<Key, Downward> downwards;
  size_t entries = 0;  // of tables that are kept

  // Whether what is known takes too much memory to be kept.
  bool Full() const { return entries > size_t{1} << 24; }

  // Tables with the same entries have one number.
  int NumberOf(const CostTable& table) {
    const auto known = by_address.find(table);
    if (known != by_address.end()) return known->second;
    entries += table->size();
    const int number = NumberOfContent(table);
    by_address.emplace(table, number);
    return number;
  }
  int NumberOfContent(const CostTable& table) {
    auto& same = by_content[absl::Hash<std::vector<int64_t>>()(*table)];
    for (int t : same) {
      if (*tables[t] == *table) return t;
    }
    same.push_back(static_cast<int>(tables.size()));
    tables.push_back(table);
    entries += table->size();
    return same.back();
  }
};

SolvedParts::SolvedParts() : known_(std::make_unique<Known>()) {}
SolvedParts::~SolvedParts() = default;

// The elimination of one variable.
struct Elimination::Step {
  struct Member {
    int term;
    Variables places;   // of its variables in the scope; kOwn: the variable's own
    bool tied = false;  // the member before has the same places
    bool message = false;
  };
  static constexpr int kOwn = -1;

  int variable;
  std::vector<int> scope;       // ascending
  std::vector<Member> members;  // the terms to be summed
  int shape;                    // number among the shapes
};

Elimination::Elimination(std::vector<int> domains, const std::vector<Variables>& terms)
    : domains_(std::move(domains)), terms_(static_cast<int>(terms.size())) {
  MakeSteps(terms, EliminationOrder(domains_, terms, &effort_));
}
Elimination::~Elimination() = default;

void Elimination::MakeSteps(const std::vector<Variables>& terms, const std::vector<int>& order) {
  std::vector<Variables> all;                         // of terms and messages, the variables that have a choice
  std::vector<std::vector<int>> of(domains_.size());  // by variable the terms about it
  std::vector<bool> done;
  const auto add = [&](const Variables& variables) {
    for (int v : variables) of[v].push_back(static_cast<int>(all.size()));
    all.push_back(variables);
    done.push_back(false);
  };
  for (const Variables& variables : terms) {
    Variables wide;
    std::copy_if(variables.begin(), variables.end(), std::back_inserter(wide), [&](int v) { return domains_[v] > 1; });
    if (wide.empty()) constants_.push_back(static_cast<int>(all.size()));
    add(wide);
  }
  absl::flat_hash_map<std::vector<int>, int> known;
  for (int v : order) {
    Step step{v, {}, {}, 0};
    for (int t : of[v]) {
      if (done[t]) continue;
      done[t] = true;
      step.members.push_back({t, {}, false, t >= terms_});
      step.scope.insert(step.scope.end(), all[t].begin(), all[t].end());
    }
    std::sort(step.scope.begin(), step.scope.end());
    step.scope.erase(std::unique(step.scope.begin(), step.scope.end()), step.scope.end());
    step.scope.erase(std::remove(step.scope.begin(), step.scope.end(), v), step.scope.end());
    for (Step::Member& m : step.members) {
      for (int u : all[m.term])
        m.places.push_back(
            u == v ? Step::kOwn
                   : static_cast<int>(std::lower_bound(step.scope.begin(), step.scope.end(), u) - step.scope.begin()));
    }
    std::stable_sort(step.members.begin(), step.members.end(), [](const Step::Member& a, const Step::Member& b) {
      return std::tie(a.places, a.message) < std::tie(b.places, b.message);
    });
    std::vector<int> shape{domains_[v]};
    for (int u : step.scope) shape.push_back(domains_[u]);
    for (size_t m = 0; m < step.members.size(); ++m) {
      Step::Member& member = step.members[m];
      member.tied =
          m > 0 && member.places == step.members[m - 1].places && member.message == step.members[m - 1].message;
      shape.push_back(-2);  // no place or size
      shape.push_back(member.message);
      shape.insert(shape.end(), member.places.begin(), member.places.end());
    }
    const auto [it, fresh] = known.emplace(std::move(shape), static_cast<int>(shapes_.size()));
    if (fresh) shapes_.push_back(it->first);
    step.shape = it->second;
    add(Variables(step.scope.begin(), step.scope.end()));
    steps_.push_back(std::move(step));
  }
}

// One elimination of all variables, for certain tables.
class Elimination::Run {
 public:
  Run(const Elimination& structure, const std::vector<CostTable>& tables, SolvedParts::Known* known)
      : structure_(structure), domains_(structure.domains_), known_(*known), steps_(structure.steps_) {
    if (known_.Full()) known_ = {};
    for (const CostTable& table : tables) tables_.push_back(known_.NumberOf(table));
    for (const std::vector<int>& shape : structure.shapes_)
      shapes_.push_back(known_.shapes.emplace(shape, static_cast<int>(known_.shapes.size())).first->second);
    for (int term : structure.constants_) constant_ += (*known_.tables[tables_[term]])[0];
  }

  Minimum Solve() {
    for (const Step& step : steps_) {
      first_.push_back(slots_.size());
      for (const Step::Member& m : step.members) {
        slots_.push_back({m.term, tables_[m.term]});
        // Terms that can change places are in the order of their tables.
        for (size_t s = slots_.size() - 1; s > first_.back() && step.members[s - first_.back()].tied; --s) {
          if (slots_[s].table < slots_[s - 1].table) std::swap(slots_[s], slots_[s - 1]);
        }
      }
      const Part& part = PartOf(step, slots_.data() + first_.back());
      parts_.push_back(part.number);
      tables_.push_back(part.table);
      constant_ += part.constant;
    }
    Minimum minimum;
    minimum.cost = constant_;
    minimum.values.assign(domains_.size(), 0);
    for (size_t i = steps_.size(); i-- > 0;) minimum.values[steps_[i].variable] = BestOf(i, minimum.values);
    return minimum;
  }

  // After Solve. What the rest of the problem says of a step's scope goes down the way that its message came up.
  std::vector<std::vector<int64_t>> Marginals() {
    std::vector<std::vector<int64_t>> marginals(domains_.size());
    std::vector<int> down(steps_.size(), -1);  // by step, over its scope: a table, -1: nothing is said
    for (size_t i = steps_.size(); i-- > 0;) {
      const SolvedParts::Known::Key key{parts_[i], down[i]};
      auto known = known_.downwards.find(key);
      if (known == known_.downwards.end()) known = known_.downwards.emplace(key, DownwardOf(i, down[i])).first;
      std::vector<int64_t>& marginal = marginals[steps_[i].variable] = known->second.marginal;
      // What has been taken out as constants is missing: the least is the minimum of all.
      const auto values = static_cast<int64_t>(marginal.size());
      AddConstant(constant_ - Least(marginal.data(), values), values, marginal.data());
      for (size_t m = 0; m < steps_[i].members.size(); ++m) {
        if (steps_[i].members[m].message)
          down[slots_[first_[i] + m].term - structure_.terms_] = known->second.messages[m];
      }
    }
    return marginals;
  }

 private:
  // What stands in a member's place.
  struct Slot {
    int term, table;
  };

  int SizeOf(const Step& step, int place) const {
    return domains_[place == Step::kOwn ? step.variable : step.scope[place]];
  }
  Turn TurnOf(const Step& step, const Step::Member& m) const {
    Turn turn;
    for (int place : m.places) {
      if (place == Step::kOwn)
        turn.outer = turn.inner, turn.n = SizeOf(step, place), turn.inner = 1;
      else
        turn.inner *= SizeOf(step, place);
    }
    return turn;
  }

  // The first value of a step's variable that is least where its scope has these values.
  int BestOf(size_t i, const std::vector<int>& values) {
    const Step& step = steps_[i];
    sum_.assign(domains_[step.variable], 0);
    for (size_t m = 0; m < step.members.size(); ++m) {
      const Variables& places = step.members[m].places;
      int64_t index = 0, stride = 1, own = 0;
      for (auto place = places.rbegin(); place != places.rend(); ++place) {
        if (*place == Step::kOwn)
          own = stride;
        else
          index += stride * values[step.scope[*place]];
        stride *= SizeOf(step, *place);
      }
      const int64_t* at = known_.tables[slots_[first_[i] + m].table]->data() + index;
      for (size_t x = 0; x < sum_.size(); ++x) sum_[x] += at[x * own];
    }
    return static_cast<int>(std::min_element(sum_.begin(), sum_.end()) - sum_.begin());
  }

  const Part& PartOf(const Step& step, const Slot* slots) {
    // What the result depends on: the sizes, and each table with the places of its variables.
    SolvedParts::Known::Key key{shapes_[step.shape]};
    for (size_t m = 0; m < step.members.size(); ++m) key.push_back(slots[m].table);
    const auto known = known_.parts.find(key);
    if (known != known_.parts.end()) return known->second;
    Part part = Compute(step, slots);
    part.number = static_cast<int>(known_.parts.size());
    return known_.parts.emplace(std::move(key), part).first->second;
  }

  std::vector<Row> RowsOf(const Step& step, const Slot* slots) const {
    std::vector<Row> rows(step.members.size());
    for (size_t m = 0; m < rows.size(); ++m) {
      const Step::Member& member = step.members[m];
      Row& row = rows[m];
      row.begin = known_.tables[slots[m].table]->data();
      const Turn turn = TurnOf(step, member);
      if (turn.inner > 1) {
        row.copy = Turned(row.begin, turn);
        row.begin = row.copy.data();
      }
      row.at = row.begin;
      row.strides.assign(step.scope.size(), 0);
      int64_t stride = turn.n;
      for (auto place = member.places.rbegin(); place != member.places.rend(); ++place) {
        if (*place == Step::kOwn) continue;
        row.strides[*place] = stride;
        stride *= SizeOf(step, *place);
      }
    }
    return rows;
  }

  // The next values of the scope's first `dims` variables, the last of them minor-most; false after the last.
  bool Advance(const Step& step, size_t dims, std::vector<int>* at, std::vector<Row>* rows) const {
    for (size_t d = dims; d-- > 0;) {
      const int values = domains_[step.scope[d]];
      const bool carry = ++(*at)[d] == values;
      for (Row& row : *rows) row.at += carry ? -row.strides[d] * (values - 1) : row.strides[d];
      if (!carry) return true;
      (*at)[d] = 0;
    }
    return false;
  }

  Part Compute(const Step& step, const Slot* slots) {
    std::vector<Row> rows = RowsOf(step, slots);
    int64_t entries = 1;
    for (int u : step.scope) entries *= domains_[u];
    std::vector<int64_t> least(entries);
    std::vector<int> at(step.scope.size(), 0);
    const size_t outer = std::max<size_t>(step.scope.size(), 1) - 1;
    const int64_t inner = step.scope.empty() ? 1 : domains_[step.scope.back()];
    Sums sums(domains_[step.variable]);
    int64_t* out = least.data();
    do {
      sums.Run(rows, inner, out);
      out += inner;
    } while (Advance(step, outer, &at, &rows));
    Part part{0, 0, Least(least.data(), entries)};
    AddConstant(-part.constant, entries, least.data());
    part.table = known_.NumberOfContent(std::make_shared<const std::vector<int64_t>>(std::move(least)));
    return part;
  }

  Downward DownwardOf(size_t i, int down) {
    const Step& step = steps_[i];
    const Slot* slots = &slots_[first_[i]];
    std::vector<Row> rows = RowsOf(step, slots);
    const int64_t n = domains_[step.variable];
    Downward out;
    out.marginal.assign(n, std::numeric_limits<int64_t>::max());
    std::vector<std::vector<int64_t>> messages(rows.size());  // to those members that are messages, as their rows lie
    for (size_t m = 0; m < rows.size(); ++m) {
      if (step.members[m].message)
        messages[m].assign(known_.tables[slots[m].table]->size(), std::numeric_limits<int64_t>::max());
    }
    std::vector<int64_t> sum(n);
    std::vector<int> at(step.scope.size(), 0);
    const int64_t* said = down < 0 ? nullptr : known_.tables[down]->data();
    do {
      std::fill(sum.begin(), sum.end(), said == nullptr ? 0 : *said++);
      for (const Row& row : rows) AddTo(row.at, n, sum.data());
      TakeLeast(sum.data(), n, out.marginal.data());
      for (size_t m = 0; m < rows.size(); ++m) {
        if (step.members[m].message) TakeLeast(sum.data(), n, messages[m].data() + (rows[m].at - rows[m].begin));
      }
    } while (Advance(step, step.scope.size(), &at, &rows));
    for (size_t m = 0; m < rows.size(); ++m)
      out.messages.push_back(step.members[m].message ? Said(step, step.members[m], rows[m], &messages[m]) : -1);
    return out;
  }

  // The number of what the sums with a member, as its row lies, say beyond the member itself.
  int Said(const Step& step, const Step::Member& member, const Row& row, std::vector<int64_t>* sums) {
    const auto size = static_cast<int64_t>(sums->size());
    for (int64_t e = 0; e < size; ++e) (*sums)[e] -= row.begin[e];
    // Without a constant, so that what is said to equal layers becomes equal.
    AddConstant(-Least(sums->data(), size), size, sums->data());
    const Turn turn = TurnOf(step, member);
    if (turn.inner > 1) *sums = Turned(sums->data(), {turn.outer, turn.inner, turn.n});
    return known_.NumberOfContent(std::make_shared<const std::vector<int64_t>>(std::move(*sums)));
  }

  const Elimination& structure_;
  const std::vector<int>& domains_;
  SolvedParts::Known& known_;
  const std::vector<Step>& steps_;
  std::vector<int> tables_;    // of terms, then of the steps' messages
  std::vector<int> shapes_;    // of the structure's shapes the number among all
  std::vector<Slot> slots_;    // of all steps' members
  std::vector<size_t> first_;  // by step, of its slots
  std::vector<int> parts_;     // by step
  std::vector<int64_t> sum_;
  int64_t constant_ = 0;
};

Minimum Elimination::Minimise(const std::vector<CostTable>& tables, SolvedParts* solved,
                              std::vector<std::vector<int64_t>>* marginals) const {
  Run run(*this, tables, solved->known_.get());
  Minimum minimum = run.Solve();
  if (marginals != nullptr) *marginals = run.Marginals();
  return minimum;
}

}  // namespace mslua
