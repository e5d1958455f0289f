#include <cstring>

#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {
namespace {

OpDef BucketOp(const char* name, RankCall call, const char* doc) {
  OpDef op = CollectiveOp(name, "", call, doc);
  op.inputs[0].variadic = true;
  op.Choice("op", {"sum", "prod", "max", "min", "mean"}, "how values are combined");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>(in.begin(), in.end());
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {2}}}, {{"group", std::vector<int64_t>{0}}}});
  return op;
}

}  // namespace

// all_reduce of several tensors in one message that travels while other nodes run (core/passes/buckets.h). The results
// are `all_reduce_wait`'s; between the two nobody reads these tensors.
MSLUA_OPERATOR(all_reduce_start) {
  OpDef start = BucketOp("all_reduce_start", RankCall::kStartAllReduce,
                         "Begins the all_reduce of tensors that travel as one message.");
  start.Grad([](GradContext& c) {
    std::vector<Value> dx;
    for (Value dy : c.dy) dx.push_back(dy.valid() ? AllReduceGradient(c.g, c.attrs, dy) : Value());
    return dx;
  });
  OpDef wait = BucketOp("all_reduce_wait", RankCall::kEndAllReduce,
                        "The tensors of an all_reduce_start, once all ranks' have come.");
  wait.Grad([](GradContext& c) { return std::vector<Value>(c.dy.begin(), c.dy.end()); });
  return {start, wait};
}

}  // namespace mslua
