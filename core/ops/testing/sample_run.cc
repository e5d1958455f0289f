#include "core/ops/testing/sample_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/rng.h"
#include "core/op/marks.h"

namespace mslua::testing {
namespace {

constexpr int64_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xA5;

const InputDef& InputAt(const OpDef& op, size_t i) { return op.inputs[std::min(i, op.inputs.size() - 1)]; }

}  // namespace

Memory::Memory(const TensorType& type) : type_(type) {
  const int64_t size = type.bytes() + kGuard;
  data_ = AllocateAligned(size);
  std::memset(data_.get(), kGuardByte, static_cast<size_t>(size));
}

bool Memory::intact() const {
  const uint8_t* end = static_cast<const uint8_t*>(data()) + type_.bytes();
  return std::all_of(end, end + kGuard, [](uint8_t b) { return b == kGuardByte; });
}

bool IsData(const OpDef& op, size_t input, const TensorType& type) {
  const TypeClass c = InputAt(op, input).type;
  return IsFloat(type.dtype) && (c == TypeClass::kT || c == TypeClass::kFloat);
}

std::vector<TensorType> InputTypes(const OpDef& op, const Sample& sample, DType dtype) {
  std::vector<TensorType> types = sample.inputs;
  // Statistics and rates beside data of 16 bits are f32.
  const bool has_t =
      std::any_of(op.inputs.begin(), op.inputs.end(), [](const InputDef& d) { return d.type == TypeClass::kT; });
  for (size_t i = 0; i < types.size(); ++i) {
    const bool beside = has_t && SizeOf(dtype) == 2 && InputAt(op, i).type == TypeClass::kFloat;
    if (IsData(op, i, types[i]) && !beside) types[i].dtype = dtype;
  }
  return types;
}

StatusOr<Call> MakeCall(const OpDef& op, std::vector<TensorType> inputs, const Attrs& attrs) {
  Call call;
  call.op = &op;
  call.attrs = attrs;
  call.inputs = std::move(inputs);
  if (op.random && !mark::kRng.Has(call.attrs)) mark::kRng.Set(call.attrs, int64_t{12345});
  ASSIGN_OR_RETURN(call.outputs, CheckCall(op, call.inputs, call.attrs));
  return call;
}

Memory MakeInput(const OpDef& op, const Sample& sample, size_t input, const TensorType& type) {
  Memory m(type);
  const uint64_t stream = StreamOf(op.name, input);
  const bool index = InputAt(op, input).type == TypeClass::kIndex;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const uint64_t at = static_cast<uint64_t>(i);
    const double u = UniformAt(1, stream, at);
    double v = sample.low + (sample.high - sample.low) * u;
    if (index)
      v = static_cast<double>(UniformIntAt(1, stream, at, static_cast<uint64_t>(sample.index_limit)));
    else if (type.dtype == DType::kBool)
      v = u < 0.5;
    else if (!IsFloat(type.dtype))
      v = sample.positive() || type.dtype == DType::kU8 ? 1 + std::floor(4 * u) : std::floor(9 * u) - 4;
    StoreDouble(type.dtype, m.data(), i, v);
  }
  return m;
}

std::vector<Memory> MakeInputs(const Call& call, const Sample& sample) {
  std::vector<Memory> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(MakeInput(*call.op, sample, i, call.inputs[i]));
  return inputs;
}

Memory Convert(const Memory& from, DType dtype) {
  TensorType type = from.type();
  type.dtype = dtype;
  Memory to(type);
  for (int64_t i = 0; i < type.elements(); ++i) StoreDouble(dtype, to.data(), i, from.at(i));
  return to;
}

StatusOr<std::vector<Memory>> RunReference(const Call& call, const std::vector<Memory>& inputs) {
  if (!call.op->reference) return absl::InternalError(absl::StrCat(call.op->name, ": no reference kernel"));
  std::vector<Memory> outputs;
  for (const TensorType& t : call.outputs) outputs.emplace_back(t);
  std::vector<TensorView> in, out;
  for (const Memory& m : inputs) in.push_back(m.view());
  for (const Memory& m : outputs) out.push_back(m.view());
  RETURN_IF_ERROR(call.op->reference({call.attrs, in, out}));
  for (const Memory& m : outputs) {
    if (!m.intact()) return absl::InternalError("the reference kernel wrote past the end of an output");
  }
  return outputs;
}

Status RunFastKernel(const Call& call, absl::string_view name, const void* const* inputs, void* const* outputs) {
  const OpSpec spec{call.attrs, call.inputs, call.outputs};
  for (const FastKernel& fast : call.op->fast) {
    if (!fast.supports(spec) || (!name.empty() && name != fast.name)) continue;
    ASSIGN_OR_RETURN(const auto kernel, fast.make(spec));
    const AlignedMemory scratch = AllocateAligned(kernel->scratch_bytes());
    return kernel->Run({inputs, outputs, scratch.get()});
  }
  return absl::NotFoundError(absl::StrCat(call.op->name, " has no fast kernel ", name, " for these types"));
}

std::vector<float> NormalNumbers(int64_t count, int exponents, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (float& x : v) x = std::ldexp(normal(random), exponents == 0 ? 0 : static_cast<int>(random() % exponents));
  return v;
}

Status ExpectNear(const Memory& got, const Memory& want, double tolerance) {
  if (got.type().shape != want.type().shape) {
    return absl::InternalError(absl::StrCat("got ", ToString(got.type()), ", expected ", ToString(want.type())));
  }
  double scale = 1;
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    if (std::isfinite(want.at(i))) scale = std::max(scale, std::fabs(want.at(i)));
  }
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    const double g = got.at(i), w = want.at(i);
    if (std::isnan(g) ? std::isnan(w) : g == w || std::fabs(g - w) <= tolerance * scale) continue;
    return absl::InternalError(absl::StrCat("element ", i, " of ", ToString(got.type()), " is ", g, ", expected ", w,
                                            " within ", tolerance * scale));
  }
  return absl::OkStatus();
}

}  // namespace mslua::testing
