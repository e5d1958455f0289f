#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/kernels/simd/tile_program.h"
#include "core/op/device_text.h"
#include "core/op/elementwise.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

StatusOr<std::vector<TensorType>> InferFused(const Attrs& attrs, absl::Span<const TensorType> inputs) {
  const auto& dims = attrs.Ints("shape");
  const Shape shape(dims.begin(), dims.end());
  ASSIGN_OR_RETURN(const ScalarProgram program, ParseScalarProgram(attrs.Str("program")));
  if (program.num_inputs != static_cast<int32_t>(inputs.size()))
    return absl::InvalidArgumentError("the program has another number of inputs");
  for (const TensorType& t : inputs) {
    const auto merged = BroadcastShape(t.shape, shape);
    if (!merged.ok() || *merged != shape)
      return absl::InvalidArgumentError(
          absl::StrCat("an input does not broadcast to ", ToString(absl::MakeConstSpan(shape))));
  }
  std::vector<TensorType> outputs;
  for (absl::string_view name : absl::StrSplit(attrs.Str("dtypes"), ',')) {
    const auto dtype = ParseDType(name);
    if (!dtype) return absl::InvalidArgumentError(absl::StrCat("unknown type ", name));
    outputs.push_back({*dtype, shape});
  }
  if (outputs.size() != program.results.size())
    return absl::InvalidArgumentError("the program has another number of results");
  return outputs;
}

// Each input shares the dimensions it does not repeat.
std::string FusedRule(const Attrs& attrs, absl::Span<const TensorType> inputs) {
  const auto& shape = attrs.Ints("shape");
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<std::string> left;
  std::string right;
  for (const TensorType& t : inputs) {
    std::string dims;
    for (int64_t d = 0; d < t.rank(); ++d) {
      const int64_t at = rank - t.rank() + d;
      absl::StrAppend(&dims, t.shape[d] == 1 && shape[at] != 1 ? "1" : absl::StrCat("d", at), " ");
    }
    left.push_back(std::move(dims));
  }
  for (int64_t d = 0; d < rank; ++d) absl::StrAppend(&right, "d", d, " ");
  const int64_t outputs =
      1 + static_cast<int64_t>(std::count(attrs.Str("dtypes").begin(), attrs.Str("dtypes").end(), ','));
  return absl::StrCat(absl::StrJoin(left, ", "), "-> ", absl::StrJoin(std::vector<std::string>(outputs, right), ", "));
}

// Told to kernels alone, by the executable (core/runtime/cpu_executable.cc).
constexpr char kKeptOutputs[] = "kept";

class FusedKernel : public Kernel {
 public:
  FusedKernel(const ScalarProgram& program, const OpSpec& spec)
      : program_(program, spec.inputs, spec.outputs,
                 spec.attrs.Has(kKeptOutputs) ? absl::MakeConstSpan(spec.attrs.Ints(kKeptOutputs))
                                              : absl::Span<const int64_t>()) {}
  Status Run(const Buffers& b) override {
    program_.Run(b.inputs, b.outputs, b.scratch);
    return absl::OkStatus();
  }
  int64_t scratch_bytes() const override { return program_.scratch_bytes(); }

 private:
  TileProgram program_;
};

// Types that vectors do not have (f64, integers alone): as the reference, with the program read once.
class EvaluatedKernel : public Kernel {
 public:
  EvaluatedKernel(ScalarProgram program, const OpSpec& spec)
      : program_(std::move(program)),
        inputs_(spec.inputs.begin(), spec.inputs.end()),
        outputs_(spec.outputs.begin(), spec.outputs.end()) {}
  Status Run(const Buffers& b) override {
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs.push_back({inputs_[i], const_cast<void*>(b.inputs[i])});
    for (size_t o = 0; o < outputs_.size(); ++o) outputs.push_back({outputs_[o], b.outputs[o]});
    return EvaluateElementwise(program_, inputs, outputs);
  }

 private:
  const ScalarProgram program_;
  const std::vector<TensorType> inputs_, outputs_;
};

}  // namespace

MSLUA_OPERATOR(fused) {
  OpDef op("fused");
  op.Doc(
      "A chain of elementwise operators as one pass over memory. Inputs broadcast to `shape`; made by the fusion "
      "pass.");
  op.Variadic("x", TypeClass::kAny);
  op.Required("program", AttrKind::kString, "a ScalarProgram")
      .Required("shape", AttrKind::kInts, "of the outputs")
      .Required("dtypes", AttrKind::kString, "of the outputs: f32,bf16");
  op.Rule(FusedRule).Infer(InferFused);
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    const Shape& shape = c.local_outputs[0].shape;
    return attrs.Set("shape", std::vector<int64_t>(shape.begin(), shape.end()));
  });
  op.Flops([](const Attrs& attrs, absl::Span<const TensorType>, absl::Span<const TensorType> outputs) {
    const auto program = ParseScalarProgram(attrs.Str("program"));
    return program.ok() ? static_cast<double>(program->code.size()) * static_cast<double>(outputs[0].elements()) : 0.0;
  });
  op.Reference([](const OpCall& c) -> Status {
    ASSIGN_OR_RETURN(const ScalarProgram program, ParseScalarProgram(c.attrs.Str("program")));
    return EvaluateElementwise(program, c.inputs, c.outputs);
  });
  op.OnDevice([](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const ScalarProgram program, ParseScalarProgram(spec.attrs.Str("program")));
    return DeviceMap(program, spec.inputs, spec.outputs);
  });
  // Whether the program can be read, and vectors have its types or have not.
  const auto reads = [](const OpSpec& spec, bool vectors) {
    const auto program = ParseScalarProgram(spec.attrs.Str("program"));
    return program.ok() && TileProgram::Supports(*program, spec.inputs, spec.outputs) == vectors;
  };
  op.Fast({"highway", [reads](const OpSpec& spec) { return reads(spec, true); },
           [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
             ASSIGN_OR_RETURN(const ScalarProgram program, ParseScalarProgram(spec.attrs.Str("program")));
             return std::unique_ptr<Kernel>(new FusedKernel(program, spec));
           }});
  op.Fast({"scalar", [reads](const OpSpec& spec) { return reads(spec, false); },
           [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
             ASSIGN_OR_RETURN(ScalarProgram program, ParseScalarProgram(spec.attrs.Str("program")));
             return std::unique_ptr<Kernel>(new EvaluatedKernel(std::move(program), spec));
           }});
  op.elementwise = true;
  op.AddSample({{{DType::kF32, {3, 4}}, {DType::kF32, {4}}, {DType::kF32, {3, 1}}, {DType::kF32, {}}},
                {{"program", std::string("4: i0; i1; mul(0,1); i2; add(2,3); i3; sub(4,5) -> 4,6")},
                 {"shape", std::vector<int64_t>{3, 4}},
                 {"dtypes", std::string("f32,f32")}}});
  op.AddSample({{{DType::kI32, {300, 2}}, {DType::kI32, {}}, {DType::kI32, {2}}},
                {{"program", std::string("3: i0; i1; not_equal(0,1); i2; add(0,3) -> 2,4")},
                 {"shape", std::vector<int64_t>{300, 2}},
                 {"dtypes", std::string("bool,i32")}}});
  // Rows that tiles begin anywhere in, that divide a tile, and that are longer than one.
  for (const int64_t row : {6, 128, 768}) {
    const Shape shape = {2400 / row + 1, row};
    op.AddSample({{{DType::kF32, shape}, {DType::kF32, {row}}, {DType::kBool, shape}},
                  {{"program", std::string("3: i0; i1; i2; mul(0,1); greater(3,1); add(3,2) -> 4,5")},
                   {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                   {"dtypes", std::string("bool,f32")}}});
  }
  return {op};
}

}  // namespace mslua
