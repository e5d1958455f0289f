#include "core/kernels/onednn/onednn.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"

namespace mslua::onednn {
namespace {

constexpr int64_t kAlign = 64;

int64_t Align(int64_t bytes) { return RoundUp(bytes, kAlign); }

Status Check(dnnl_status_t s, const char* what) {
  if (s == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("oneDNN: ", what, " failed with status ", static_cast<int>(s)));
}

dnnl_data_type_t TypeOf(DType t) {
  if (t == DType::kF32) return dnnl_f32;
  return t == DType::kBF16 ? dnnl_bf16 : dnnl_data_type_undef;
}

StatusOr<Memory> NewMemory(const Desc& desc) {
  dnnl_memory_t m = nullptr;
  RETURN_IF_ERROR(Check(dnnl_memory_create(&m, &desc, Engine(), DNNL_MEMORY_NONE), "creating a memory object"));
  return Memory(m);
}

StatusOr<Primitive> NewPrimitive(const_dnnl_primitive_desc_t desc) {
  dnnl_primitive_t p = nullptr;
  RETURN_IF_ERROR(Check(dnnl_primitive_create(&p, desc), "creating a primitive"));
  return Primitive(p);
}

class PrimitiveKernel : public Kernel {
 public:
  Status Init(PrimitiveDesc desc, absl::Span<const Operand> operands) {
    ASSIGN_OR_RETURN(primitive_, NewPrimitive(desc.get()));
    for (const Operand& o : operands) {
      const Desc& wanted = *dnnl_primitive_desc_query_md(desc.get(), dnnl_query_exec_arg_md, o.arg);
      Bound b;
      b.output = o.output;
      b.index = o.index;
      ASSIGN_OR_RETURN(b.memory, NewMemory(wanted));
      args_.push_back({o.arg, b.memory.get()});
      if (!dnnl_memory_desc_equal(&wanted, &o.desc)) {
        ASSIGN_OR_RETURN(b.plain, NewMemory(o.desc));
        RETURN_IF_ERROR(AddReorder(o.output ? wanted : o.desc, o.output ? o.desc : wanted,
                                   o.output ? b.memory.get() : b.plain.get(), o.output ? b.plain.get() : b.memory.get(),
                                   o.output ? &after_ : &before_));
        b.offset = scratch_;
        scratch_ += Align(static_cast<int64_t>(dnnl_memory_desc_get_size(&wanted)));
      }
      bound_.push_back(std::move(b));
    }
    // A reorder's own scratch memory and the primitive's are never needed at the same time.
    const int64_t own = BytesOfScratchpad(desc.get());
    for (const std::vector<Step>* steps : {&before_, &after_}) {
      for (const Step& s : *steps) scratchpad_bytes_ = std::max(scratchpad_bytes_, s.scratchpad_bytes);
    }
    scratchpad_bytes_ = std::max(scratchpad_bytes_, own);
    const Desc* pad = dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
    ASSIGN_OR_RETURN(scratchpad_, NewMemory(*pad));
    args_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad_.get()});
    return absl::OkStatus();
  }

  int64_t scratch_bytes() const override { return scratch_ + Align(scratchpad_bytes_); }

  Status Run(const Buffers& buffers) override {
    char* scratch = static_cast<char*>(buffers.scratch);
    const dnnl_stream_t stream = Stream();
    for (Bound& b : bound_) {
      void* user = b.output ? buffers.outputs[b.index] : const_cast<void*>(buffers.inputs[b.index]);
      const bool reordered = b.plain != nullptr;
      dnnl_memory_set_data_handle(b.memory.get(), reordered ? scratch + b.offset : user);
      if (reordered) dnnl_memory_set_data_handle(b.plain.get(), user);
    }
    void* pad = scratch + scratch_;
    dnnl_memory_set_data_handle(scratchpad_.get(), pad);
    for (Step& s : before_) RETURN_IF_ERROR(s.Run(stream, pad));
    RETURN_IF_ERROR(
        Check(dnnl_primitive_execute(primitive_.get(), stream, static_cast<int>(args_.size()), args_.data()),
              "running a primitive"));
    for (Step& s : after_) RETURN_IF_ERROR(s.Run(stream, pad));
    return absl::OkStatus();
  }

 private:
  struct Bound {
    bool output = false;
    int index = 0;
    Memory memory;       // what the primitive reads or writes
    Memory plain;        // the kernel's operand, when that is something else
    int64_t offset = 0;  // of `memory` in scratch, then
  };
  struct Step {
    Primitive primitive;
    Memory scratchpad;
    int64_t scratchpad_bytes = 0;
    dnnl_exec_arg_t args[3];

    Status Run(dnnl_stream_t stream, void* pad) {
      dnnl_memory_set_data_handle(scratchpad.get(), pad);
      return Check(dnnl_primitive_execute(primitive.get(), stream, 3, args), "reordering");
    }
  };

  static int64_t BytesOfScratchpad(const_dnnl_primitive_desc_t desc) {
    return static_cast<int64_t>(
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)));
  }

  Status AddReorder(const Desc& from, const Desc& to, dnnl_memory_t source, dnnl_memory_t target,
                    std::vector<Step>* steps) {
    dnnl_primitive_attr_t attr = nullptr;
    RETURN_IF_ERROR(Check(dnnl_primitive_attr_create(&attr), "creating attributes"));
    const PrimitiveAttr owned(attr);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_primitive_desc_t desc = nullptr;
    RETURN_IF_ERROR(
        Check(dnnl_reorder_primitive_desc_create(&desc, &from, Engine(), &to, Engine(), attr), "describing a reorder"));
    const PrimitiveDesc owned_desc(desc);
    Step step;
    ASSIGN_OR_RETURN(step.primitive, NewPrimitive(desc));
    step.scratchpad_bytes = BytesOfScratchpad(desc);
    ASSIGN_OR_RETURN(step.scratchpad, NewMemory(*dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)));
    step.args[0] = {DNNL_ARG_FROM, source};
    step.args[1] = {DNNL_ARG_TO, target};
    step.args[2] = {DNNL_ARG_SCRATCHPAD, step.scratchpad.get()};
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }

  Primitive primitive_;
  std::vector<Bound> bound_;
  std::vector<dnnl_exec_arg_t> args_;
  std::vector<Step> before_, after_;
  Memory scratchpad_;
  int64_t scratch_ = 0, scratchpad_bytes_ = 0;
};

}  // namespace

bool Supports(DType t) { return TypeOf(t) != dnnl_data_type_undef; }

bool MultipliesBF16() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

bool HasVectorsOf512() { return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core; }

dnnl_engine_t Engine() {
  // Never destroyed: kernels may outlive every static object.
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t e = nullptr;
    dnnl_engine_create(&e, dnnl_cpu, 0);
    return e;
  }();
  return engine;
}

dnnl_stream_t Stream() {
  struct Owned {
    dnnl_stream_t stream = nullptr;
    Owned() { dnnl_stream_create(&stream, Engine(), dnnl_stream_default_flags); }
    ~Owned() { dnnl_stream_destroy(stream); }
  };
  thread_local const Owned owned;
  return owned.stream;
}

Desc Strided(DType t, absl::Span<const int64_t> dims, absl::Span<const int64_t> strides) {
  const Shape row_major = RowMajorStrides(dims);
  if (strides.empty()) strides = row_major;
  Desc d = {};
  dnnl_memory_desc_init_by_strides(&d, static_cast<int>(dims.size()), dims.data(), TypeOf(t), strides.data());
  return d;
}

Desc AnyFormat(DType t, absl::Span<const int64_t> dims) {
  Desc d = {};
  dnnl_memory_desc_init_by_tag(&d, static_cast<int>(dims.size()), dims.data(), TypeOf(t), dnnl_format_tag_any);
  return d;
}

PrimitiveDesc Describe(const_dnnl_op_desc_t op, const_dnnl_primitive_desc_t forward_hint, PrimitiveAttr attr) {
  if (attr == nullptr) {
    dnnl_primitive_attr_t a = nullptr;
    if (dnnl_primitive_attr_create(&a) != dnnl_success) return nullptr;
    attr.reset(a);
  }
  dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user);
  dnnl_primitive_desc_t desc = nullptr;
  if (dnnl_primitive_desc_create(&desc, op, attr.get(), Engine(), forward_hint) != dnnl_success) return nullptr;
  return PrimitiveDesc(desc);
}

StatusOr<std::unique_ptr<Kernel>> MakeKernel(const char* what, PrimitiveDesc desc, absl::Span<const Operand> operands) {
  if (desc == nullptr) return absl::InternalError(absl::StrCat("oneDNN has no ", what, " for these types"));
  auto kernel = std::make_unique<PrimitiveKernel>();
  RETURN_IF_ERROR(kernel->Init(std::move(desc), operands));
  return kernel;
}

}  // namespace mslua::onednn
