// Pieces of CUDA C++ text, of which operators make their device form.
#pragma once

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/op/device_form.h"
#include "core/op/device_scalars.h"

namespace mslua {

struct ScalarProgram;  // core/op/formula.h

// What stands before all kernels: element types, arithmetic on them, sums over the threads of a block.
const char* DevicePrelude();

// The body of a step of that node, as KernelSet takes it: the names of the operands, then the step's text. The pointers
// are those of the inputs, the outputs, the scratch memory and the fault.
std::string DeviceBody(const OpSpec& spec, const DeviceStep& step);
inline int DevicePointers(const OpSpec& spec) { return static_cast<int>(spec.inputs.size() + spec.outputs.size()) + 2; }

// "float", "bf16", ..: the type of elements in memory; and the type of arithmetic on them.
const char* DeviceType(DType t);
const char* DeviceComputeType(DType t);

// A loop over i in [0, n): each of n elements is one thread's. `statements` may use `i`.
DeviceStep EachElement(int64_t n, const std::string& statements);

// A loop over `row` in [0, rows): the threads of a team share a row, of `length` elements, and may add and compare what
// they found: team.Sum(v), team.Max(v), team.Min(v). A thread has the elements team.lane, team.lane + team.lanes, ... .
// Every thread of a team runs all statements.
DeviceStep EachRow(int64_t rows, int64_t length, const std::string& statements);

// "constexpr i64 shape[] = {2, 3};"; an empty list has one element, which is not used.
std::string Constant(const std::string& name, absl::Span<const int64_t> values);
std::string Constant(const std::string& name, int64_t value);
std::string Constant(const std::string& name, double value);

// The place in an operand of `from` of element `index` (the name of an integer) of a tensor of `shape`, which the
// operand is broadcast to: "index % 5", ...
std::string BroadcastIndex(const std::string& index, const Shape& shape, const Shape& from);

// Places of one tensor as a sum over coordinates of another: coordinate d of `shape` times strides[d], plus `offset`.
std::string StridedIndex(const std::string& index, absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                         int64_t offset = 0);

// One step that computes an elementwise program; operands broadcast to the outputs' shape.
DeviceProgram DeviceMap(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                        absl::Span<const TensorType> outputs);

// A step that looks for the first element of operand x<input>, `count` integers, outside [low, high), and reports it;
// `except` is right too.
DeviceStep CheckRange(int input, int64_t count, int64_t low, int64_t high, absl::optional<int64_t> except = {});

// Reductions: `outputs` results (rows), each over `length` elements, in a fixed order: the bits do not depend on the
// device's size.
struct DeviceReduction {
  int64_t outputs = 0, length = 0;
  // Of f32, bf16 and f16 operands "float", else "double", "int" or "i64": what is added.
  std::string type;
  // One for each accumulator: '+', '*', 'M' (maximum) or 'm' (minimum).
  std::string joins;
  // Statements that declare `const C a0 = ..;`, and `a1` where there are two accumulators: element `k` (i64) of output
  // `row` (i64). C is `type`.
  std::string element;
  // Statements that store what was reduced, `t0` and `t1`, of output `row`.
  std::string finish;
  // Element k of output row + 1 lies beside that of `row`: a thread reduces an output. Else the threads of a block do.
  bool adjacent = false;
};
DeviceProgram DeviceReduce(const DeviceReduction& reduction);

// The two loops of StridedIndex for a reduction of `shape` over the axes marked in `reduced`: places in the operand of
// output `row` and element `k`, and whether neighbouring outputs are neighbours there.
struct ReducedIndex {
  std::string row, k;
  int64_t outputs, length;
  bool adjacent;
};
ReducedIndex DeviceReducedIndex(const Shape& shape, const std::vector<bool>& reduced);

// A program of one step.
inline DeviceProgram OneStep(DeviceStep step) { return {{std::move(step)}, 0}; }

}  // namespace mslua
