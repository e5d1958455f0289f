#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {
namespace {

struct Box {
  int64_t from, to;
  Shape source, target, sizes;
};

std::vector<Box> BoxesOf(const Attrs& attrs) {
  const std::vector<int64_t>& messages = attrs.Ints("messages");
  const size_t rank = attrs.Ints("shape").size();
  std::vector<Box> boxes;
  for (size_t i = 0; i < messages.size(); i += 2 + 3 * rank) {
    const int64_t *source = messages.data() + i + 2, *target = source + rank, *sizes = target + rank;
    boxes.push_back(
        {messages[i], messages[i + 1], Shape(source, target), Shape(target, sizes), Shape(sizes, sizes + rank)});
  }
  return boxes;
}

Status CheckPart(const Box& box, const Shape& at, const Shape& whole, const char* name) {
  for (size_t d = 0; d < whole.size(); ++d) {
    if (box.sizes[d] <= whole[d] && at[d] <= whole[d] - box.sizes[d]) continue;
    return absl::InvalidArgumentError(absl::StrCat("messages: a box of ", ToString(box.sizes), " at ", ToString(at),
                                                   " does not lie in ", name, " ", ToString(whole)));
  }
  return absl::OkStatus();
}

// A box between two ranks lies in the tensors of those, whose shapes are known to themselves alone: the kernel checks
// it (core/runtime/collective_kernel.h).
Status CheckBox(const Attrs& attrs, const Box& box, const Shape& x, const Shape& y) {
  const std::vector<int64_t>& group = attrs.Ints("group");
  for (const int64_t rank : {box.from, box.to}) {
    if (std::find(group.begin(), group.end(), rank) == group.end())
      return absl::InvalidArgumentError(
          absl::StrCat("messages: rank ", rank, " is not in the group ", AttrText(group)));
  }
  for (const Shape* numbers : {&box.source, &box.target, &box.sizes}) {
    for (const int64_t n : *numbers) {
      if (n < 0) return absl::InvalidArgumentError(absl::StrCat("messages: a box has the negative number ", n));
    }
  }
  if (HasTooManyElements(box.sizes))
    return absl::InvalidArgumentError(
        absl::StrCat("messages: a box of ", ToString(box.sizes), " has too many elements"));
  if (box.from != box.to) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPart(box, box.source, x, "x"));
  return CheckPart(box, box.target, y, "the result");
}

StatusOr<std::vector<TensorType>> ExchangedType(const Attrs& attrs, absl::Span<const TensorType> in) {
  const std::vector<int64_t>&shape = attrs.Ints("shape"), &messages = attrs.Ints("messages");
  if (static_cast<int64_t>(shape.size()) != in[0].rank() || messages.size() % (2 + 3 * shape.size()) != 0)
    return absl::InvalidArgumentError(absl::StrCat("a result of ", shape.size(), " dimensions from ", in[0].rank(),
                                                   ", and ", messages.size(), " numbers of messages"));
  const TensorType y = {in[0].dtype, Shape(shape.begin(), shape.end())};
  for (const Box& box : BoxesOf(attrs)) RETURN_IF_ERROR(CheckBox(attrs, box, in[0].shape, y.shape));
  return std::vector<TensorType>{y};
}

int64_t PlaceOf(const Shape& at, const Shape& strides) {
  int64_t place = 0;
  for (size_t d = 0; d < at.size(); ++d) place += at[d] * strides[d];
  return place;
}

// In a group of one rank all boxes change places within it. What no box gives is 0.
Status ExchangeInOne(const OpCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t size = SizeOf(x.type.dtype);
  const Shape from = RowMajorStrides(x.type.shape), to = RowMajorStrides(y.type.shape);
  std::memset(y.data, 0, static_cast<size_t>(y.type.bytes()));
  for (const Box& box : BoxesOf(call.attrs)) {
    if (NumElements(box.sizes) == 0) continue;
    StridedCopy(size, box.sizes, x.as<char>() + PlaceOf(box.source, from) * size, from,
                y.as<char>() + PlaceOf(box.target, to) * size, to);
  }
  return absl::OkStatus();
}

StatusOr<DeviceProgram> ExchangeInOneOnDevice(const OpSpec& spec) {
  if (GroupSize(spec.attrs) != 1) return absl::InternalError("a collective of several ranks has no kernel of its own");
  const Shape from = RowMajorStrides(spec.inputs[0].shape), to = RowMajorStrides(spec.outputs[0].shape);
  DeviceProgram program;
  program.steps.push_back(EachElement(spec.outputs[0].elements(), "  Set(y0[i], 0);"));
  for (const Box& box : BoxesOf(spec.attrs)) {
    const int64_t n = NumElements(box.sizes);
    if (n == 0) continue;
    program.steps.push_back(
        EachElement(n, absl::StrCat("  y0[", StridedIndex("i", box.sizes, to, PlaceOf(box.target, to)), "] = x0[",
                                    StridedIndex("i", box.sizes, from, PlaceOf(box.source, from)), "];")));
  }
  return program;
}

}  // namespace

// What the partitioner uses where no other collective brings each rank just what it lacks (core/sharding/reshard.h).
MSLUA_OPERATOR(exchange) {
  OpDef op =
      CollectiveOp("exchange", "", RankCall::kExchange,
                   "Boxes of the ranks' tensors change places: `messages` says, for each box, the rank that it "
                   "comes from, the rank that gets it, where it begins in x, where in the result, and its sizes. "
                   "The boxes that a rank gets make up its result. A rank's list has the boxes that it sends and gets, "
                   "in one order on all ranks.");
  op.Required("shape", AttrKind::kInts, "of the result")
      .Required("messages", AttrKind::kInts, "2 + 3 * rank numbers a box");
  const auto refused = op.reference;  // of several ranks
  op.Infer(ExchangedType).OnDevice(ExchangeInOneOnDevice).Reference([refused](const OpCall& call) {
    return GroupSize(call.attrs) == 1 ? ExchangeInOne(call) : refused(call);
  });
  op.AddSample({{{DType::kF32, {3, 5}}},
                {{"group", std::vector<int64_t>{0}},
                 {"shape", std::vector<int64_t>{3, 5}},
                 {"messages", std::vector<int64_t>{0, 0, 0, 0, 0, 0, 3, 5}}}});
  op.AddSample({{{DType::kF32, {3, 5}}},
                {{"group", std::vector<int64_t>{0}},
                 {"shape", std::vector<int64_t>{2, 4}},
                 {"messages", std::vector<int64_t>{0, 0, 1, 2, 0, 1, 2, 3}}}});
  return {op};
}

}  // namespace mslua
