#include "core/passes/buckets.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/graph/collective_node.h"
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

// Not the messages between pipeline stages: those have numbers of their own.
bool IsCall(const Node& n) { return IsCollective(n) && !n.attrs.Has("peer") && n.attrs.Ints("group").size() > 1; }

bool Travels(const Node& n) {
  return (n.op->name == "all_reduce" || MovesBlocks(n)) && n.attrs.Int("fusion") > 0 && IsCall(n);
}

// The node after which a collective can begin: what does not travel stays where it is.
int32_t ReadyAt(const Graph& graph, int32_t i) { return Travels(graph.nodes[i]) ? graph.nodes[i].inputs[0].node : i; }

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
    const std::vector<std::vector<size_t>> starts = FindStarts();
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
    int32_t read = 0;   // the first node that reads a result
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
    std::sort(buckets_.begin(), buckets_.end(), [](const Bucket& a, const Bucket& b) {
      return a.ready != b.ready ? a.ready < b.ready : a.members[0] < b.members[0];
    });
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (int32_t m : buckets_[b].members) bucket_[m] = static_cast<int32_t>(b);
    }
  }

  // After each node the buckets that begin there: as soon as their inputs are known, and after the collectives of lower
  // numbers, so that calls begin in one order on all ranks.
  std::vector<std::vector<size_t>> FindStarts() const {
    struct Call {
      int64_t number = 0;
      int32_t node = 0;
      int64_t bucket = -1;
    };
    std::vector<Call> calls;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      int64_t last = -1;
      for (const int32_t m : buckets_[b].members)
        last = std::max(last, mark::kBegins.GetOr(graph_.nodes[m].attrs, int64_t{-1}));
      calls.push_back({last, buckets_[b].ready, static_cast<int64_t>(b)});
    }
    for (int32_t i = 0; i < count_; ++i) {
      const int64_t* const number = mark::kBegins.Find(graph_.nodes[i].attrs);
      if (number != nullptr && bucket_[i] < 0) calls.push_back({*number, i, -1});
    }
    std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.number < b.number; });
    std::vector<std::vector<size_t>> starts(count_);
    int32_t at = 0;
    for (const Call& call : calls) {
      // A collective that a pass has made is not numbered.
      if (call.number >= 0) at = std::max(at, call.node);
      if (call.bucket < 0) continue;
      const auto b = static_cast<size_t>(call.bucket);
      starts[call.number < 0 ? call.node : std::min(at, std::max(call.node, buckets_[b].read - 1))].push_back(b);
    }
    return starts;
  }

  // Buckets that can begin before anybody reads a member's result.
  void SplitWhereRead(const std::vector<int32_t>& members) {
    Bucket bucket;
    int32_t read = count_;  // the first node that reads a result
    for (const int32_t m : members) {
      const int32_t ready = graph_.nodes[m].inputs[0].node;
      if (read <= ready) {
        bucket.read = read;
        buckets_.push_back(std::move(bucket));
        bucket = Bucket();
        read = count_;
      }
      bucket.members.push_back(m);
      bucket.ready = std::max(bucket.ready, ready);
      read = std::min(read, first_reader_[m]);
    }
    bucket.read = read;
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
    Attrs attrs = AttrsOf(first);
    SetCalls(*b, &attrs);
    b->started = rewriter_.to().OpMulti("all_reduce_start", inputs, std::move(attrs));
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
    SetCalls(b, &attrs);
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

  // A message is the calls of all its members.
  void SetCalls(const Bucket& b, Attrs* attrs) const {
    std::vector<int64_t> calls;
    for (const int32_t m : b.members) {
      for (const int64_t call : mark::kCalls.GetOr(graph_.nodes[m].attrs, {})) calls.push_back(call);
    }
    if (!calls.empty()) mark::kCalls.Set(*attrs, std::move(calls));
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

Graph NumberCollectives(const Graph& graph) {
  std::vector<int32_t> calls;
  std::map<std::vector<int64_t>, int64_t> of_group;
  Graph numbered = graph;
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (!IsCall(graph.nodes[i])) continue;
    calls.push_back(i);
    mark::kCalls.Set(numbered.nodes[i].attrs, {of_group[graph.nodes[i].attrs.Ints("group")]++});
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [&](int32_t a, int32_t b) { return ReadyAt(graph, a) < ReadyAt(graph, b); });
  for (size_t k = 0; k < calls.size(); ++k) mark::kBegins.Set(numbered.nodes[calls[k]].attrs, static_cast<int64_t>(k));
  return numbered;
}

Graph BucketCollectives(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), Travels) ? Bucketer(graph).Run() : graph;
}

}  // namespace mslua
