#include "core/sharding/search/elimination_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <queue>
#include <tuple>

namespace mslua {
namespace {

class Ordering {
 public:
  Ordering(const std::vector<int>& domains, const std::vector<Variables>& terms)
      : neighbours_(domains.size()), priority_(domains.size()) {
    for (int n : domains) log_.push_back(std::log2(n));
    for (const Variables& variables : terms) {
      for (int a : variables) {
        for (int b : variables) {
          if (a != b && domains[a] > 1 && domains[b] > 1) Tie(a, b);
        }
      }
    }
  }

  std::vector<int> Run(Effort* effort) {
    std::vector<int> order;
    std::vector<bool> done(log_.size(), false);
    for (int v = 0; v < static_cast<int>(log_.size()); ++v) queue_.push(priority_[v] = PriorityOf(v));
    while (!queue_.empty()) {
      const Priority next = queue_.top();
      queue_.pop();
      const auto [fill, log_entries, v] = next;
      if (done[v] || next != priority_[v]) continue;
      done[v] = true;
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

  bool Tied(int a, int b) const { return std::binary_search(neighbours_[a].begin(), neighbours_[a].end(), b); }
  // Whether they were not.
  bool Tie(int a, int b) {
    std::vector<int>& all = neighbours_[a];
    const auto place = std::lower_bound(all.begin(), all.end(), b);
    if (place != all.end() && *place == b) return false;
    all.insert(place, b);
    return true;
  }

  Priority PriorityOf(int v) const {
    int64_t fill = 0;
    double log_entries = log_[v];
    const std::vector<int>& all = neighbours_[v];
    for (size_t a = 0; a < all.size(); ++a) {
      log_entries += log_[all[a]];
      for (size_t b = a + 1; b < all.size(); ++b) fill += !Tied(all[a], all[b]);
    }
    return {fill, log_entries, v};
  }

  void Remove(int v) {
    const std::vector<int> around = std::move(neighbours_[v]);
    neighbours_[v].clear();
    std::vector<int> changed = around;
    for (int a : around) {
      neighbours_[a].erase(std::lower_bound(neighbours_[a].begin(), neighbours_[a].end(), v));
      for (int b : around) {
        if (a != b && Tie(a, b)) changed.insert(changed.end(), neighbours_[a].begin(), neighbours_[a].end());
      }
    }
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    for (int a : changed) {
      const Priority now = PriorityOf(a);
      if (now != priority_[a]) queue_.push(priority_[a] = now);
    }
  }

  std::vector<double> log_;  // of the variables' numbers of values
  std::vector<std::vector<int>> neighbours_;
  std::vector<Priority> priority_;
  std::priority_queue<Priority, std::vector<Priority>, std::greater<Priority>> queue_;
};

}  // namespace

std::vector<int> EliminationOrder(const std::vector<int>& domains, const std::vector<Variables>& terms,
                                  Effort* effort) {
  return Ordering(domains, terms).Run(effort);
}

}  // namespace mslua
