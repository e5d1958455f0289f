#include "absl/strings/str_cat.h"
#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

// What the partitioner uses where no other collective brings each rank just what it lacks (core/sharding/reshard.h).
MSLUA_OPERATOR(exchange) {
  OpDef op =
      CollectiveOp("exchange", "", RankCall::kExchange,
                   "Boxes of the ranks' tensors change places: `messages` says, for each box, the rank that it "
                   "comes from, the rank that gets it, where it begins in x, where in the result, and its sizes. "
                   "A rank's list has the boxes that it sends and gets, in one order on all ranks.");
  op.Required("shape", AttrKind::kInts, "of the result")
      .Required("messages", AttrKind::kInts, "2 + 3 * rank numbers a box");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const std::vector<int64_t>& shape = a.Ints("shape");
    if (static_cast<int64_t>(shape.size()) != in[0].rank() || a.Ints("messages").size() % (2 + 3 * shape.size()) != 0)
      return absl::InvalidArgumentError(absl::StrCat("a result of ", shape.size(), " dimensions from ", in[0].rank(),
                                                     ", and ", a.Ints("messages").size(), " numbers of messages"));
    return std::vector<TensorType>{{in[0].dtype, Shape(shape.begin(), shape.end())}};
  });
  op.AddSample({{{DType::kF32, {3, 5}}},
                {{"group", std::vector<int64_t>{0}},
                 {"shape", std::vector<int64_t>{3, 5}},
                 {"messages", std::vector<int64_t>{0, 0, 0, 0, 0, 0, 3, 5}}}});
  return {op};
}

}  // namespace mslua
