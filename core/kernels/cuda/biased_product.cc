// What calls of matmul_bias and matmul_bias_add are to cuBLASLt.
#include "core/kernels/cuda/library_kernel.h"

namespace mslua {

MatmulShape BiasedProductOf(const OpSpec& spec) {
  MatmulShape s;
  const Shape &a = spec.inputs[0].shape, &y = spec.outputs[0].shape;
  s.type = spec.inputs[0].dtype;
  s.transpose_a = spec.attrs.Bool("transpose_a");
  s.transpose_b = spec.attrs.Bool("transpose_b");
  s.m = y[0];
  s.n = y[1];
  s.k = a[s.transpose_a ? 0 : 1];
  s.wide = spec.outputs[0].dtype != s.type;
  s.bias = true;
  s.z = spec.inputs.size() > 3;
  s.gelu = spec.attrs.Str("activation") != "none";
  s.h = spec.outputs.size() > 1;
  return s;
}

int64_t MovedBiasBytes(const OpSpec& spec) {
  const DType result = spec.outputs[0].dtype;
  return spec.inputs[2].dtype == result ? 0 : spec.inputs[2].elements() * SizeOf(result);
}

}  // namespace mslua
