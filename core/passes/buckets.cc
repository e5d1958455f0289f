#include "core/passes/buckets.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/op/marks.h"
#include "core/passes/rewriter.h"

namespace mslua {

std::vector<int64_t> AssignBuckets(const BucketRule& rule, absl::Span<const BucketMember> members) {
  struct Open {
    int64_t bucket = 0, bytes = 0;
  };
  std::map<std::tuple<int64_t, int64_t, DType>, Open> open;  // segment, fusion, dtype
  std::vector<int64_t> buckets;
  int64_t next = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const BucketMember& m = members[i];
    const auto segment = std::upper_bound(rule.segments.begin(), rule.segments.end(), static_cast<int64_t>(i));
    const auto key = std::make_tuple(segment - rule.segments.begin(), m.fusion, m.dtype);
    const auto found = open.find(key);
    const bool joins = found != open.end() && m.fusion != 0 &&
                       (!rule.segments.empty() || rule.bytes == 0 || found->second.bytes + m.bytes <= rule.bytes);
    if (!joins) open[key] = {next++, 0};
    open[key].bytes += m.bytes;
    buckets.push_back(open[key].bucket);
  }
  return buckets;
}

namespace {

// all_gather and reduce_scatter, whose ranks' blocks follow one another: those of one message are joined block by
// block.
bool MovesBlocks(const Node& n) {
  return (n.op->name == "all_gather" || n.op->name == "reduce_scatter") && n.attrs.Int("axis") == 0;
}

bool Travels(const Node& n) {
  return (n.op->name == "all_reduce" || MovesBlocks(n)) && n.attrs.Int("fusion") > 0 &&
         n.attrs.Ints("group").size() > 1;
}

std::string ReductionOf(const Node& n) { return n.attrs.Has("op") ? n.attrs.Str("op") : ""; }

class Bucketer {
 public:
  explicit Bucketer(const Graph& graph)
      : graph_(graph),
        count_(static_cast<int32_t>(graph.nodes.size())),
        bucket_(count_, -1),
        first_reader_(count_, count_),
        rewriter_(graph) {}

  Graph Run() {
    FindBuckets();
    std::vector<std::vector<size_t>> starts(count_);
    for (size_t b = 0; b < buckets_.size(); ++b) starts[buckets_[b].ready].push_back(b);
    for (int32_t i = 0; i < count_; ++i) {
      for (Value v : graph_.nodes[i].inputs) Arrive(v);
      if (bucket_[i] < 0) rewriter_.Copy(i);
      for (size_t b : starts[i]) Start(&buckets_[b]);
    }
    for (const GraphOutput& o : graph_.outputs) Arrive(o.value);
    for (Bucket& b : buckets_) Wait(&b);
    return rewriter_.Finish();
  }

 private:
  struct Bucket {
    std::vector<int32_t> members;
    int32_t ready = 0;  // the node after which all inputs are known
    std::vector<Value> started;
    bool waited = false;
  };

  void FindBuckets() {
    std::map<std::string, std::vector<int32_t>> by_key;
    for (int32_t i = 0; i < count_; ++i) {
      const Node& n = graph_.nodes[i];
      if (!Travels(n)) continue;
      by_key[absl::StrCat(n.op->name, " ", n.attrs.Int("fusion"), " ", ReductionOf(n), " ", Name(n.outputs[0].dtype),
                          " ", AttrText(n.attrs.Ints("group")))]
          .push_back(i);
    }
    for (int32_t i = count_ - 1; i >= 0; --i) {
      // What travels itself is read as soon as it is known.
      const bool travels = Travels(graph_.nodes[i]);
      for (Value v : graph_.nodes[i].inputs)
        first_reader_[v.node] = std::min(first_reader_[v.node], travels ? v.node : i);
    }
    for (const auto& [key, members] : by_key) SplitWhereRead(members);
    // Calls begin in one order on all ranks: that of the nodes, whatever the keys are.
    std::sort(buckets_.begin(), buckets_.end(), [](const Bucket& a, const Bucket& b) {
      return a.ready != b.ready ? a.ready < b.ready : a.members[0] < b.members[0];
    });
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (int32_t m : buckets_[b].members) bucket_[m] = static_cast<int32_t>(b);
    }
  }

  // Buckets that can begin before anybody reads a member's result.
  void SplitWhereRead(const std::vector<int32_t>& members) {
    Bucket bucket;
    int32_t read = count_;  // the first node that reads a result
    for (const int32_t m : members) {
      const int32_t ready = graph_.nodes[m].inputs[0].node;
      if (read <= ready) {
        buckets_.push_back(std::move(bucket));
        bucket = Bucket();
        read = count_;
      }
      bucket.members.push_back(m);
      bucket.ready = std::max(bucket.ready, ready);
      read = std::min(read, first_reader_[m]);
    }
    buckets_.push_back(std::move(bucket));
  }

  void Start(Bucket* b) {
    std::vector<Value> inputs;
    for (int32_t m : b->members) Arrive(graph_.nodes[m].inputs[0]);
    for (int32_t m : b->members) inputs.push_back(rewriter_.Map(graph_.nodes[m].inputs[0]));
    const Node& first = graph_.nodes[b->members[0]];
    rewriter_.to().SetLocation(first.location);
    if (MovesBlocks(first)) {
      b->waited = true;
      return MoveBlocks(*b, inputs);
    }
    b->started = rewriter_.to().OpMulti("all_reduce_start", inputs, AttrsOf(first));
  }

  // One all_gather or reduce_scatter for all members: with one row for each rank, their rows joined. Who is alone stays
  // as it is.
  void MoveBlocks(const Bucket& b, const std::vector<Value>& inputs) {
    GraphBuilder& g = rewriter_.to();
    const Node& first = graph_.nodes[b.members[0]];
    if (b.members.size() == 1) return rewriter_.Copy(b.members[0]);
    const auto ranks = static_cast<int64_t>(first.attrs.Ints("group").size());
    const bool gathers = first.op->name == "all_gather";
    std::vector<Value> rows;
    for (Value v : inputs) {
      const int64_t parts = gathers ? 1 : ranks;
      rows.push_back(Reshape(g, v, {parts, g.TypeOf(v).elements() / parts}));
    }
    Attrs attrs = first.attrs;
    mark::kMembers.Set(attrs.Set("fusion", int64_t{0}), static_cast<int64_t>(b.members.size()));
    const Value all = g.Op(first.op->name, {g.Op("concat", rows, {{"axis", int64_t{1}}})}, std::move(attrs));
    const int64_t height = gathers ? ranks : 1;
    int64_t at = 0;
    for (size_t k = 0; k < b.members.size(); ++k) {
      const int64_t width = g.TypeOf(rows[k]).shape[1];
      const Value mine =
          g.Op("strided_slice", {all},
               {{"begin", std::vector<int64_t>{0, at}}, {"end", std::vector<int64_t>{height, at + width}}});
      rewriter_.Replace({b.members[k], 0}, Reshape(g, mine, graph_.nodes[b.members[k]].outputs[0].shape));
      at += width;
    }
  }

  void Arrive(Value v) {
    if (bucket_[v.node] >= 0) Wait(&buckets_[static_cast<size_t>(bucket_[v.node])]);
  }
  void Wait(Bucket* b) {
    if (b->waited) return;
    b->waited = true;
    const Node& first = graph_.nodes[b->members[0]];
    rewriter_.to().SetLocation(first.location);
    const std::vector<Value> done = rewriter_.to().OpMulti("all_reduce_wait", b->started, AttrsOf(first));
    for (size_t k = 0; k < b->members.size() && k < done.size(); ++k) rewriter_.Replace({b->members[k], 0}, done[k]);
  }

  static Attrs AttrsOf(const Node& all_reduce) {
    return {{"group", all_reduce.attrs.Ints("group")}, {"op", all_reduce.attrs.Str("op")}};
  }

  const Graph& graph_;
  const int32_t count_;
  std::vector<int32_t> bucket_;        // of an all_reduce; -1: none
  std::vector<int32_t> first_reader_;  // of a node's results
  std::vector<Bucket> buckets_;
  Rewriter rewriter_;
};

}  // namespace

Graph BucketCollectives(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), Travels) ? Bucketer(graph).Run() : graph;
}

}  // namespace mslua
