#include "core/kernels/select/float16_kernels.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/conversions.h"

namespace mslua {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGrain = 1 << 14;  // numbers that are worth a thread

// A tensor of f16 that the kernel sees in f32.
struct Widened {
  size_t operand;
  int64_t elements;
  int64_t at;  // of scratch: bytes
};

class Float16Kernel : public Kernel {
 public:
  // `kernel`: that of the same call in f32.
  Float16Kernel(const OpSpec& spec, std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {
    scratch_ = RoundUp(kernel_->scratch_bytes(), kAlignment);
    inputs_ = FindNarrow(spec.inputs);
    outputs_ = FindNarrow(spec.outputs);
    in_.resize(spec.inputs.size());
    out_.resize(spec.outputs.size());
  }

  int64_t scratch_bytes() const override { return scratch_; }

  Status Run(const Buffers& b) override {
    char* const scratch = static_cast<char*>(b.scratch);
    std::copy_n(b.inputs, in_.size(), in_.begin());
    std::copy_n(b.outputs, out_.size(), out_.begin());
    for (const Widened& w : inputs_) {
      const auto* const from = static_cast<const F16*>(b.inputs[w.operand]);
      auto* const to = reinterpret_cast<float*>(scratch + w.at);
      ParallelFor(w.elements, kGrain,
                  [&](int64_t begin, int64_t end) { ToFloats(from + begin, end - begin, to + begin); });
      in_[w.operand] = to;
    }
    for (const Widened& w : outputs_) out_[w.operand] = scratch + w.at;
    RETURN_IF_ERROR(kernel_->Run({in_.data(), out_.data(), scratch}));
    for (const Widened& w : outputs_) {
      const auto* const from = static_cast<const float*>(out_[w.operand]);
      auto* const to = static_cast<F16*>(b.outputs[w.operand]);
      ParallelFor(w.elements, kGrain,
                  [&](int64_t begin, int64_t end) { FromFloats(from + begin, end - begin, to + begin); });
    }
    return absl::OkStatus();
  }

 private:
  std::vector<Widened> FindNarrow(absl::Span<const TensorType> types) {
    std::vector<Widened> widened;
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].dtype != DType::kF16) continue;
      widened.push_back({i, types[i].elements(), scratch_});
      scratch_ += RoundUp(types[i].elements() * SizeOf(DType::kF32), kAlignment);
    }
    return widened;
  }

  const std::unique_ptr<Kernel> kernel_;
  int64_t scratch_ = 0;  // bytes: the kernel's, then what is widened
  std::vector<Widened> inputs_, outputs_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

// A call in f32, and the operator's first kernel for it; null where there is none.
struct WideCall {
  std::vector<TensorType> inputs, outputs;
  const FastKernel* kernel = nullptr;
};

// Whether there was an f16.
bool Widen(std::vector<TensorType>* types) {
  bool any = false;
  for (TensorType& t : *types) {
    if (t.dtype != DType::kF16) continue;
    t.dtype = DType::kF32;
    any = true;
  }
  return any;
}

WideCall InFloat32(const OpDef& op, bool bf16_tiles, const OpSpec& spec) {
  WideCall call{{spec.inputs.begin(), spec.inputs.end()}, {spec.outputs.begin(), spec.outputs.end()}};
  const bool any_in = Widen(&call.inputs), any_out = Widen(&call.outputs);
  if (!any_in && !any_out) return call;
  Attrs attrs = spec.attrs;
  const auto results = CheckCall(op, call.inputs, attrs);
  if (!results.ok() || *results != call.outputs) return call;
  for (const FastKernel& fast : op.fast) {
    if ((fast.bf16_tiles && !bf16_tiles) || !fast.supports({spec.attrs, call.inputs, call.outputs})) continue;
    call.kernel = &fast;
    break;
  }
  return call;
}

}  // namespace

void AddFloat16Kernels(OpDef* op) {
  const auto allows = [op](DType t) {
    return op->types.empty() || std::find(op->types.begin(), op->types.end(), t) != op->types.end();
  };
  if (op->fast.empty() || !allows(DType::kF16) || !allows(DType::kF32)) return;
  const auto own = std::make_shared<const OpDef>(*op);
  for (const bool bf16_tiles : {true, false}) {
    const auto supports = [own, bf16_tiles](const OpSpec& spec) {
      return InFloat32(*own, bf16_tiles, spec).kernel != nullptr;
    };
    const auto make = [own, bf16_tiles](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
      const WideCall call = InFloat32(*own, bf16_tiles, spec);
      ASSIGN_OR_RETURN(auto kernel, call.kernel->make({spec.attrs, call.inputs, call.outputs}));
      return std::make_unique<Float16Kernel>(spec, std::move(kernel));
    };
    op->Fast({"float32", supports, make, bf16_tiles});
  }
}

}  // namespace mslua
