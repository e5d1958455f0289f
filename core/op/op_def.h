// The definition of an operator: one value that holds everything the rest of mslua knows about it.
//
// From a definition are derived, with nothing else to edit: type checks and their messages, the Lua
// function and its help, sharding propagation, cost, and the generated tests (core/ops/ops_test.cc).
// docs/howto/add_an_operator.md walks through one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/attrs.h"
#include "core/op/device_form.h"
#include "core/op/factor_rule.h"
#include "core/op/kernel.h"

namespace mslua {

class GraphBuilder;
struct GradContext;
struct ScalarProgram;  // core/op/formula.h
struct Value;

// Which element types an input takes. kT inputs share one type, the operator's T.
enum class TypeClass : uint8_t { kT, kIndex /* i32 i64 */, kBool, kFloat, kAny };

struct InputDef {
  std::string name;
  TypeClass type = TypeClass::kT;
  bool variadic = false;  // last input only: one or more
};

// How Lua's binder treats a value: axes and subscripts count from 1 there and from 0 here.
enum class AttrKind : uint8_t { kBool, kInt, kFloat, kString, kInts, kDType, kAxis, kAxes };

struct AttrDef {
  std::string name;
  AttrKind kind = AttrKind::kInt;
  AttrValue fallback;     // the default
  bool required = false;  // no default
  std::string doc;
  std::vector<std::string> choices;  // kString: the legal values, when they are few
};

// Which operands an operator takes under mixed precision (core/step/mixed_precision.h).
enum class Precision : uint8_t {
  kAsGiven,     // what comes; f32 where operands differ
  kNarrow,      // 16 bits: its time is multiplication of two operands or more. Its result has 16 bits too
  kNarrowBF16,  // the same in bf16; else what comes
  kWide,        // f32: it loses too much in 16 bits
};

// How a reduction over the batch is a rank's own part of it, for a call with the attribute cross_batch.
enum class OwnBatch : uint8_t {
  kNone,  // the attribute has no effect
  kSum,   // the result of the part
  kMean,  // the result of the part, scaled by the whole batch's size divided by the part's
};

// Types for a test run of the operator: gradient check, rule check, device check, benchmark row.
struct Sample {
  std::vector<TensorType> inputs;  // T inputs are given as f32 and are tried in other types too
  Attrs attrs = {};
  double low = -1, high = 1;  // range of float values; integers of index inputs are in [0, index_limit)
  int64_t index_limit = 4;
  bool positive() const { return low > 0; }
};

using RuleFn = std::function<std::string(const Attrs&, absl::Span<const TensorType>)>;
using InferFn = std::function<StatusOr<std::vector<TensorType>>(const Attrs&, absl::Span<const TensorType>)>;
using CheckFn = std::function<Status(const Attrs&, absl::Span<const TensorType>)>;
// Gradients of the inputs, in order; an invalid Value where there is none. Emits graph through g.
using GradFn = std::function<std::vector<Value>(GradContext&)>;
// What a composite stands for, in other operators. Type checks of its own come from `check`.
using BodyFn = std::function<std::vector<Value>(GraphBuilder&, absl::Span<const Value> inputs, const Attrs&)>;
// The attributes of one device's part, where the operator on a part is not the same operator on a smaller
// shape (iota, slice, reshape, random): `local_inputs` and `local_outputs` are the part's types, `begin[o]` is
// where the part of output `o` starts in the whole.
struct LocalizeCall {
  const Attrs& attrs;
  absl::Span<const TensorType> global_inputs, global_outputs, local_inputs, local_outputs;
  absl::Span<const Shape> input_begin, output_begin;
};
using LocalizeFn = std::function<StatusOr<Attrs>(const LocalizeCall&)>;
// Floating-point operations of one run; the default counts one for each output element.
using FlopsFn =
    std::function<double(const Attrs&, absl::Span<const TensorType> inputs, absl::Span<const TensorType> outputs)>;

struct OpDef {
  explicit OpDef(std::string op_name) : name(std::move(op_name)) {}

  std::string name;        // the IR's name and Lua's function: "reduce_sum"
  std::string class_name;  // Lua's class, when users make one: "ReduceSum"
  std::string doc;         // first line: what it computes; then shapes, units, source
  std::vector<InputDef> inputs;
  std::vector<AttrDef> attrs;
  std::vector<std::string> outputs = {"y"};
  std::vector<DType> types;  // what T may be; empty: every float type

  RuleFn rule;
  InferFn infer;               // empty: shapes from the rule, element types T
  CheckFn check;               // further conditions, before infer
  BodyFn body;                 // a composite: the builder puts this in its place, and nothing below is needed
  GradFn grad;                 // empty: asking for this gradient is an error that names the operator
  bool zero_gradient = false;  // comparisons, argmax: the gradient is zero everywhere
  LocalizeFn localize;
  FlopsFn flops;

  std::vector<std::string> formula;  // elementwise: one expression an output, over inputs and attributes
  ReferenceKernel reference;         // made from the formula when there is one
  std::vector<FastKernel> fast;
  DeviceFn device;             // its kernels on an accelerator; made from the formula when there is one
  DeviceFaultFn device_fault;  // what a fault of these kernels means

  bool view = false;         // the output is the first input's memory under another type
  bool random = false;       // carries an attribute _rng, its stream of random numbers
  bool side_effect = false;  // not removed as dead, not merged as common
  bool any_layout = false;   // as fast for "NCHW" as for "NHWC": alone it is no reason for channels-last images
  bool elementwise = false;  // any output may lie over any input of its type: set where there is a formula
  Precision precision = Precision::kAsGiven;
  OwnBatch own_batch = OwnBatch::kNone;
  // Outputs that may be written over an input's memory: pairs (output, input).
  std::vector<std::pair<int, int>> in_place;
  std::vector<Sample> samples;

  // Chained setters, so that a definition reads from top to bottom.
  OpDef& Class(std::string v) {
    class_name = std::move(v);
    return *this;
  }
  OpDef& Doc(std::string v) {
    doc = std::move(v);
    return *this;
  }
  OpDef& Input(std::string n, TypeClass t = TypeClass::kT) {
    inputs.push_back({std::move(n), t, false});
    return *this;
  }
  OpDef& Variadic(std::string n, TypeClass t = TypeClass::kT) {
    inputs.push_back({std::move(n), t, true});
    return *this;
  }
  OpDef& Attr(std::string n, AttrKind k, AttrValue fallback, std::string d = "") {
    attrs.push_back({std::move(n), k, std::move(fallback), false, std::move(d), {}});
    return *this;
  }
  OpDef& Required(std::string n, AttrKind k, std::string d = "") {
    attrs.push_back({std::move(n), k, AttrValue(), true, std::move(d), {}});
    return *this;
  }
  OpDef& Choice(std::string n, std::vector<std::string> choices, std::string d = "") {
    const std::string first = choices[0];
    attrs.push_back({std::move(n), AttrKind::kString, first, false, std::move(d), std::move(choices)});
    return *this;
  }
  OpDef& Outputs(std::vector<std::string> v) {
    outputs = std::move(v);
    return *this;
  }
  OpDef& Types(std::vector<DType> v) {
    types = std::move(v);
    return *this;
  }
  OpDef& AllTypes() {
    return Types(
        {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8, DType::kBool});
  }
  OpDef& NumericTypes() {
    return Types({DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8});
  }
  OpDef& Rule(std::string v) {
    rule = [v](const Attrs&, absl::Span<const TensorType>) { return v; };
    return *this;
  }
  OpDef& Rule(RuleFn v) {
    rule = std::move(v);
    return *this;
  }
  OpDef& Infer(InferFn v) {
    infer = std::move(v);
    return *this;
  }
  OpDef& Check(CheckFn v) {
    check = std::move(v);
    return *this;
  }
  OpDef& Body(BodyFn v) {
    body = std::move(v);
    return *this;
  }
  OpDef& Grad(GradFn v) {
    grad = std::move(v);
    return *this;
  }
  OpDef& ZeroGrad() {
    zero_gradient = true;
    return *this;
  }
  OpDef& Localize(LocalizeFn v) {
    localize = std::move(v);
    return *this;
  }
  OpDef& Flops(FlopsFn v) {
    flops = std::move(v);
    return *this;
  }
  OpDef& Reference(ReferenceKernel v) {
    reference = std::move(v);
    return *this;
  }
  OpDef& Fast(FastKernel v) {
    fast.push_back(std::move(v));
    return *this;
  }
  OpDef& OnDevice(DeviceFn v, DeviceFaultFn fault = nullptr) {
    device = std::move(v);
    device_fault = std::move(fault);
    return *this;
  }
  OpDef& View() {
    view = true;
    return *this;
  }
  OpDef& Random() {
    random = true;
    return *this;
  }
  OpDef& SideEffect() {
    side_effect = true;
    return *this;
  }
  OpDef& AnyLayout() {
    any_layout = true;
    return *this;
  }
  OpDef& Computes(Precision v) {
    precision = v;
    return *this;
  }
  OpDef& Reduces(OwnBatch v) {
    own_batch = v;
    return *this;
  }
  OpDef& InPlace(int output, int input) {
    in_place.emplace_back(output, input);
    return *this;
  }
  OpDef& AddSample(Sample v) {
    samples.push_back(std::move(v));
    return *this;
  }
};

// The program of an elementwise operator for these attributes (numbers in them are constants of the
// formula; true is 1).
StatusOr<ScalarProgram> FormulaProgram(const OpDef& op, const Attrs& attrs);

// Checks the inputs and attributes of a call and fills in defaults; then the outputs' types. The messages
// name operands and values, not the place: the caller adds that.
//   "x is f32[8,32] and w is f32[16,16]: size of 'k' differs: dimension 2 of x is 32, dimension 1 of w is 16"
StatusOr<std::vector<TensorType>> CheckCall(const OpDef& op, absl::Span<const TensorType> inputs, Attrs& attrs);

// The checks of CheckCall that need no output types: for composites.
Status CheckOperands(const OpDef& op, absl::Span<const TensorType> inputs, Attrs& attrs);

// The message about an axis, from 0 or from the end, that there is not; users count from 1:
//   "axis 3 is out of range for 2 dimensions"
std::string AxisOutOfRange(absl::string_view name, int64_t axis, absl::string_view dimensions);

// The rule of this call. An operator without one gets whole, unrelated dimensions: it replicates.
StatusOr<FactorRule> RuleOf(const OpDef& op, const Attrs& attrs, absl::Span<const TensorType> inputs,
                            absl::Span<const TensorType> outputs);

}  // namespace mslua
