// oneDNN (2.6, its C interface: no exceptions, a light header) as kernels of this project.
//
// A primitive may ask for formats other than plain row-major ones; a kernel made here then reorders its operands
// into scratch memory before, and its results out of it after.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/kernel.h"
#include "oneapi/dnnl/dnnl.h"

namespace mslua::onednn {

using Desc = dnnl_memory_desc_t;

struct Destroy {
  void operator()(dnnl_primitive_desc_t p) const { dnnl_primitive_desc_destroy(p); }
  void operator()(dnnl_primitive_t p) const { dnnl_primitive_destroy(p); }
  void operator()(dnnl_memory_t p) const { dnnl_memory_destroy(p); }
  void operator()(dnnl_primitive_attr_t p) const { dnnl_primitive_attr_destroy(p); }
};
using PrimitiveDesc = std::unique_ptr<dnnl_primitive_desc, Destroy>;
using Primitive = std::unique_ptr<dnnl_primitive, Destroy>;
using Memory = std::unique_ptr<dnnl_memory, Destroy>;
using PrimitiveAttr = std::unique_ptr<dnnl_primitive_attr, Destroy>;

// Whether oneDNN computes with this element type on a CPU: f32 and bf16.
bool Supports(DType t);
// Whether the processor has instructions for products in bf16, and oneDNN may use them.
bool MultipliesBF16();
// Whether the processor has AVX-512, and oneDNN may use it.
bool HasVectorsOf512();
// The CPU, for the whole process.
dnnl_engine_t Engine();
// The calling thread's queue.
dnnl_stream_t Stream();

// A tensor with these dimensions at these strides (in elements; empty: row-major).
Desc Strided(DType t, absl::Span<const int64_t> dims, absl::Span<const int64_t> strides = {});
// The format is the primitive's choice.
Desc AnyFormat(DType t, absl::Span<const int64_t> dims);

// The implementation that oneDNN chooses for an operation descriptor (dnnl_convolution_desc_t and so on), with
// scratch memory provided by the caller; null when it has none.
PrimitiveDesc Describe(const_dnnl_op_desc_t op, const_dnnl_primitive_desc_t forward_hint = nullptr,
                       PrimitiveAttr attr = nullptr);

// An operand of a primitive: DNNL_ARG_* and where the kernel finds it, in the format it has there.
struct Operand {
  int arg;
  bool output;
  int index;
  Desc desc;
};

// A kernel of one primitive; a null `desc` is an error that names `what`.
StatusOr<std::unique_ptr<Kernel>> MakeKernel(const char* what, PrimitiveDesc desc, absl::Span<const Operand> operands);

}  // namespace mslua::onednn
