// One call of an operator on made-up inputs: types, attributes, memory.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "core/base/aligned_memory.h"
#include "core/graph/graph.h"
#include "core/op/op_def.h"

namespace mslua::testing {

// Memory of a tensor, aligned as the runtime aligns it, with bytes after its end that nobody may write.
class Memory {
 public:
  explicit Memory(const TensorType& type);
  const TensorType& type() const { return type_; }
  void* data() const { return data_.get(); }
  TensorView view() const { return {type_, data_.get()}; }
  // Whether the bytes after the end are as they were.
  bool intact() const;
  double at(int64_t i) const { return LoadAsDouble(type_.dtype, data_.get(), i); }
  std::string bytes() const {
    return std::string(static_cast<const char*>(data()), static_cast<size_t>(type_.bytes()));
  }

 private:
  TensorType type_;
  AlignedMemory data_;
};

// A checked call: what CheckCall gives for these inputs and attributes.
struct Call {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> inputs, outputs;
};

// Whether a sample's input takes part in a change of element type.
bool IsData(const OpDef& op, size_t input, const TensorType& type);
// The sample's input types with float data in `dtype`.
std::vector<TensorType> InputTypes(const OpDef& op, const Sample& sample, DType dtype);
StatusOr<Call> MakeCall(const OpDef& op, std::vector<TensorType> inputs, const Attrs& attrs);

// Repeatable values of an input, in the sample's ranges: a function of the operator's name, the input and the place.
Memory MakeInput(const OpDef& op, const Sample& sample, size_t input, const TensorType& type);
std::vector<Memory> MakeInputs(const Call& call, const Sample& sample);
// The same values in another element type (f64: exactly, for every float type).
Memory Convert(const Memory& from, DType dtype);

// Runs the reference kernel.
StatusOr<std::vector<Memory>> RunReference(const Call& call, const std::vector<Memory>& inputs);
// Runs the fast kernel of that name, or where `name` is empty the first that supports the call, with scratch memory
// aligned as the runtime aligns it.
Status RunFastKernel(const Call& call, absl::string_view name, const void* const* inputs, void* const* outputs);
// Normal numbers, each times a power of two below 2^exponents; 0: as they are.
std::vector<float> NormalNumbers(int64_t count, int exponents, std::mt19937& random);
// The largest difference allowed is `tolerance` times the greater of 1 and the largest value wanted; infinities and
// NaNs must agree.
Status ExpectNear(const Memory& got, const Memory& want, double tolerance);

}  // namespace mslua::testing
