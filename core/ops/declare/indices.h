// Operands of indices, i32 or i64: what gather, gather_d and their gradients read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/op/attrs.h"
#include "core/op/device_form.h"

namespace mslua {

// Element `i` in row-major order of a dense tensor of i32 or i64.
inline int64_t IndexAt(const TensorView& indices, int64_t i) {
  return indices.type.dtype == DType::kI64 ? indices.as<int64_t>()[i] : indices.as<int32_t>()[i];
}

// DataLoss where one is not in [0, size): names the first one, of the operand `name`, with its place from 1.
Status CheckIndices(const TensorView& indices, int64_t size, absl::string_view name);

// The same of a value that a kernel on a device has found.
DeviceFaultFn IndexFault(int operand, std::function<int64_t(const OpSpec&)> size, std::string name);

// The attributes of an operator on a rank that holds a part of a table: its first row, and all rows of the table, among
// which indices count.
Attrs WithPart(Attrs attrs, int64_t first_row, int64_t rows);

}  // namespace mslua
