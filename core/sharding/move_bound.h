// What any resharding takes at least, from how often each dimension is sharded along axes of one kind: a closed form
// that does not depend on which of the axes they are, nor on the tensor's shape.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/sharding/layout.h"
#include "core/sharding/link_costs.h"

namespace mslua {

// Axes of one size and one link. Exchanging two of them changes no cost.
struct AxisKind {
  AxisList axes;  // ascending
  int64_t size = 1;
  int64_t parts = 1;  // the product of the axes' sizes
  LinkCosts::Link link;
};
// The kind with the slowest bytes is first.
std::vector<AxisKind> KindsOf(const Mesh& mesh, const LinkCosts& links);

class MoveBound {
 public:
  // `only`: a kind; moves along the others count nothing, as if they shard whatever there is in all their parts; -1:
  // all kinds count. The bounds of one move in the kinds one by one sum to no more than its cost.
  MoveBound(const Mesh& mesh, const LinkCosts& links, int only = -1);

  // Of a tensor of B bytes: the least of three lines in B, and bytes * B that a device receives.
  struct Coefficients {
    struct Line {
      double seconds, seconds_per_byte;
    };
    static constexpr Line kNever{std::numeric_limits<double>::infinity(), 0};
    Line collectives{0, 0};  // of plans of neither of the others
    Line sliced = kNever;    // that slice before a sum more than is wanted, and gather that again
    Line exchange = kNever;  // with an exchange
    double bytes = 0;
    double Seconds(double whole) const {
      return std::min({collectives.seconds + collectives.seconds_per_byte * whole,
                       sliced.seconds + sliced.seconds_per_byte * whole,
                       exchange.seconds + exchange.seconds_per_byte * whole});
    }
  };
  // Counts, for each dimension of a layout, how many axes of each kind shard it, and over how many the layout is a
  // partial sum. Nothing else matters.
  struct Uses {
    struct OfKind {
      std::array<uint8_t, kMaxRank> shards{};  // by dimension
      uint8_t all = 0;                         // their sum
      uint8_t partial = 0;
      friend bool operator==(const OfKind& a, const OfKind& b) {
        return a.shards == b.shards && a.partial == b.partial;
      }
      friend bool operator<(const OfKind& a, const OfKind& b) {
        return std::tie(a.partial, a.shards) < std::tie(b.partial, b.shards);
      }
      template <class H>
      friend H AbslHashValue(H h, const OfKind& u) {
        return H::combine(std::move(h), u.shards, u.partial);
      }
    };
    absl::InlinedVector<OfKind, 2> kinds;
    friend bool operator==(const Uses& a, const Uses& b) { return a.kinds == b.kinds; }
    friend bool operator<(const Uses& a, const Uses& b) { return a.kinds < b.kinds; }
    template <class H>
    friend H AbslHashValue(H h, const Uses& u) {
      return H::combine(std::move(h), u.kinds);
    }
  };
  Uses UsesOf(const Layout& layout) const;

  // Of the best of all layouts with these uses.
  Coefficients Of(const Uses& from, const Uses& to) const { return Of(from, to, {}); }
  // Of these two layouts, for which it may be more.
  Coefficients Of(const Layout& from, const Layout& to) const {
    return Of(UsesOf(from), UsesOf(to), ConflictsOf(from, to));
  }
  // Seconds from any layout on that a permutation makes of `from`, for a tensor of so many bytes.
  double AfterPermutation(const Uses& from, const Uses& to, double whole) const;

 private:
  // Whether some device's parts before and after have nothing in common since different axes shard a dimension at the
  // same place: of all axes, and by kind if there were no others.
  struct Conflicts {
    bool all = false;
    uint32_t kinds = 0;
  };
  Conflicts ConflictsOf(const Layout& from, const Layout& to) const;
  Coefficients Of(const Uses& from, const Uses& to, const Conflicts& conflicts) const;

  // Along the axes of one kind. Counts of axes; bytes as parts of the tensor.
  struct Part {
    int has = 0, wants = 0;  // that shard the tensor before and after
    int summed = 0;          // over which it is reduced
    double received = 0;     // at least
    double reduced = 0;      // of that, by reductions
    double rounds = 0;       // of messages, without the first of a step
    double copied = 0;
    bool moves = false;
  };
  using Parts = absl::InlinedVector<Part, 3>;  // by kind
  // So many axes of kind k have so many devices, and a message to all of them takes so many rounds.
  double Power(size_t k, int axes) const { return powers_[k][static_cast<size_t>(axes + kMaxPower)]; }
  double Rounds(size_t k, int axes) const { return axes * rounds_[k]; }
  Part Along(size_t kind, const Uses::OfKind& from, const Uses::OfKind& to, bool conflict) const;
  double SumRounds(double summed, double joined, double growth) const;
  // `sliced`: a kind along which parts are sliced once more, and gathered; or kNone.
  static constexpr size_t kNone = Mesh::kMaxAxes;
  double SeparateRounds(const Parts& parts, size_t sliced) const;
  double MessageSeconds(const Parts& parts, size_t sliced) const;
  bool CanSlice(size_t kind, const Part& part) const;
  // Whether something must come along the axes of the part's kind: devices that are alike along all others lack it.
  static bool Crosses(const Part& part) { return part.summed == 0 && part.received > 0; }
  void Resize(const Parts& parts, double overlap, Coefficients* least) const;
  double Overlap(const Uses& from, const Uses& to) const;
  double ExchangeSeconds(const Parts& parts) const;
  Coefficients OfKind(const Uses& from, const Uses& to) const;

  static constexpr int kMaxPower = 3 * Mesh::kMaxAxes;
  std::array<int8_t, Mesh::kMaxAxes> kind_of_{};  // by axis
  int axes_;
  std::vector<std::array<double, 2 * kMaxPower + 1>> powers_;  // by kind
  std::vector<double> rounds_;                                 // by kind
  std::vector<AxisKind> kinds_;
  std::vector<double> others_;  // by kind: parts along the axes of all other kinds
  int only_;
  double copy_beta_;
  double exchange_messages_ = 0;  // 0: no plan has an exchange
};

}  // namespace mslua
