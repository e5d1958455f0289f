#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/op/device_text.h"
#include "core/ops/ranks/collective.h"

namespace mslua {
namespace {

Status CheckGroup(const Attrs& attrs) {
  const std::vector<int64_t>& group = attrs.Ints("group");
  if (group.empty()) return absl::InvalidArgumentError("group: expected the ranks that take part, got an empty list");
  for (size_t i = 0; i < group.size(); ++i) {
    if (group[i] < 0) return absl::InvalidArgumentError(absl::StrCat("group: there is no rank ", group[i]));
    if (std::find(group.begin() + i + 1, group.end(), group[i]) != group.end())
      return absl::InvalidArgumentError(absl::StrCat("group: rank ", group[i], " is named twice"));
  }
  return absl::OkStatus();
}

Status CopyOfOne(const OpCall& call) {
  if (GroupSize(call.attrs) != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("a group of ", GroupSize(call.attrs), " ranks: runs only in a compiled graph, on every rank"));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i)
    std::memcpy(call.outputs[i].data, call.inputs[i].data, static_cast<size_t>(call.outputs[i].type.bytes()));
  return absl::OkStatus();
}

StatusOr<DeviceProgram> CopyOfOneOnDevice(const OpSpec& spec) {
  if (GroupSize(spec.attrs) != 1) return absl::InternalError("a collective of several ranks has no kernel of its own");
  DeviceProgram program;
  for (size_t i = 0; i < spec.outputs.size(); ++i)
    program.steps.push_back(EachElement(spec.outputs[i].elements(), absl::StrCat("  y", i, "[i] = x", i, "[i];")));
  return program;
}

}  // namespace

OpDef CollectiveOp(std::string name, std::string class_name, RankCall call, std::string doc) {
  OpDef op(std::move(name));
  op.Class(std::move(class_name)).Doc(std::move(doc));
  op.Input("x").AllTypes().SideEffect();
  SetRankCall(op.name, call);
  op.Required("group", AttrKind::kInts, "the ranks that take part, by their numbers in the world");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) { return CheckGroup(a); });
  op.Reference(CopyOfOne).OnDevice(CopyOfOneOnDevice);
  return op;
}

OpDef& RankAttr(OpDef& op, const std::string& name, std::string doc) {
  op.Required(name, AttrKind::kInt, std::move(doc));
  return op.Check([name](const Attrs& a, absl::Span<const TensorType>) {
    RETURN_IF_ERROR(CheckGroup(a));
    const std::vector<int64_t>& group = a.Ints("group");
    if (std::find(group.begin(), group.end(), a.Int(name)) != group.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": rank ", a.Int(name), " is not in the group ", AttrText(group)));
  });
}

Attrs SameGroup(const Attrs& attrs) { return {{"group", attrs.Ints("group")}}; }

OpDef MessageOp(std::string name, std::string class_name, RankCall call, std::string doc) {
  OpDef op = CollectiveOp(std::move(name), std::move(class_name), call, std::move(doc));
  RankAttr(op, "peer", "the other rank, by its number in the world");
  op.Attr("tag", AttrKind::kInt, int64_t{0},
          "a number to check the message by: messages come in the order in which they are sent, and a receive whose "
          "tag is not the next message's is an error");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0]};
  });
  op.InPlace(0, 0);
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"peer", int64_t{0}}}});
  return op;
}

Attrs SameMessage(const Attrs& attrs) {
  return {{"group", attrs.Ints("group")}, {"peer", attrs.Int("peer")}, {"tag", attrs.Int("tag")}};
}

// The loss of the job is the sum of the ranks' losses: every rank's y depends on every rank's x.
Value AllReduceGradient(GraphBuilder& g, const Attrs& attrs, Value dy) {
  const std::string& reduction = attrs.Str("op");
  if (reduction != "sum" && reduction != "mean") {
    g.Fail(absl::UnimplementedError(absl::StrCat("all_reduce ", reduction, " has no gradient here")));
    return {};
  }
  Attrs again = SameGroup(attrs);
  again.Set("op", reduction);
  return g.Op("all_reduce", {dy}, std::move(again));
}

StatusOr<std::vector<TensorType>> GatheredType(const Attrs& attrs, TensorType x, int64_t axis) {
  x.shape[axis] *= GroupSize(attrs);
  return std::vector<TensorType>{std::move(x)};
}

StatusOr<std::vector<TensorType>> ScatteredType(const Attrs& attrs, TensorType x, int64_t axis) {
  const int64_t n = GroupSize(attrs);
  if (x.shape[axis] % n != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dimension ", axis + 1, " of size ", x.shape[axis], " does not divide into ", n, " equal parts"));
  }
  x.shape[axis] /= n;
  return std::vector<TensorType>{std::move(x)};
}

}  // namespace mslua
