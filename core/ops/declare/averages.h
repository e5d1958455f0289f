// What operators that are a linear map of averages (core/kernels/simd/average_pool.h) say of themselves.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/kernels/simd/average_pool.h"

namespace mslua {

// Of an operator with one tensor of images and an attribute data_format: the rule, the result's type and the kernels.
void DeclareAverages(OpDef& op, const AverageMap& map);

// The map between images of x's size and those of the size that attribute `size` says: from x, or, of "input_size",
// the gradient's, to x. `axis` gives the map of one axis.
StatusOr<AveragePooling> AveragesBySize(const Attrs& attrs, const TensorType& x, absl::string_view size,
                                        const std::function<AverageAxis(int64_t size, int64_t results)>& axis);

// The gradient of such an operator: operator `back`, with x's size as its attribute `size`, and the same `kept` ones.
GradFn GradBySize(std::string back, std::string size, std::vector<std::string> kept);

}  // namespace mslua
