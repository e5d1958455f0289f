// What a list of indices into a table says about its rows: which ones there are, and sums of what belongs to each. The
// training step updates tables of embeddings with these (core/passes/rows.cc).
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/wrapping.h"
#include "core/op/device_text.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// The first place of each number of a list, by open addressing. Memory: Entries(n) integers.
class FirstPlaces {
 public:
  static int64_t Entries(int64_t n) {
    int64_t size = 2;
    while (size < 2 * n) size *= 2;
    return size;
  }
  FirstPlaces(const TensorView& list, int64_t n, int32_t* memory)
      : list_(list), mask_(static_cast<uint64_t>(Entries(n)) - 1), places_(memory) {
    std::fill(places_, places_ + mask_ + 1, -1);
  }
  // The first place of the number at place i, which is i itself where it is new.
  int32_t Add(int64_t i) {
    int32_t& place = Entry(IndexAt(list_, i));
    if (place < 0) place = static_cast<int32_t>(i);
    return place;
  }
  // -1 where the list does not have the number.
  int32_t Find(int64_t number) { return Entry(number); }

 private:
  int32_t& Entry(int64_t number) {
    uint64_t at = (static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15u >> 20) & mask_;
    while (places_[at] >= 0 && IndexAt(list_, places_[at]) != number) at = (at + 1) & mask_;
    return places_[at];
  }

  const TensorView& list_;
  const uint64_t mask_;
  int32_t* const places_;
};

Status UniqueReference(const OpCall& c) {
  const TensorView& indices = c.inputs[0];
  const int64_t size = c.attrs.Int("size");
  for (int64_t i = 0; i < indices.type.elements(); ++i) {
    const int64_t own = IndexAt(indices, i);
    bool first = own >= 0 && own < size;
    for (int64_t k = 0; k < i && first; ++k) first = IndexAt(indices, k) != own;
    c.outputs[0].as<int32_t>()[i] = first ? static_cast<int32_t>(own) : -1;
  }
  return absl::OkStatus();
}

class UniqueRows : public Kernel {
 public:
  explicit UniqueRows(const OpSpec& s) : indices_(s.inputs[0]), size_(s.attrs.Int("size")) {}
  Status Run(const Buffers& b) override {
    const TensorView indices{indices_, const_cast<void*>(b.inputs[0])};
    const int64_t n = indices_.elements();
    FirstPlaces places(indices, n, static_cast<int32_t*>(b.scratch));
    auto* const rows = static_cast<int32_t*>(b.outputs[0]);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t own = IndexAt(indices, i);
      rows[i] = own >= 0 && own < size_ && places.Add(i) == i ? static_cast<int32_t>(own) : -1;
    }
    return absl::OkStatus();
  }
  int64_t scratch_bytes() const override {
    return FirstPlaces::Entries(indices_.elements()) * static_cast<int64_t>(sizeof(int32_t));
  }

 private:
  const TensorType indices_;
  const int64_t size_;
};

int64_t InnerOf(const TensorType& updates) { return NumElements(absl::MakeConstSpan(updates.shape).subspan(1)); }

Status SumsReference(const OpCall& c) {
  const int64_t rows = c.inputs[0].type.elements(), count = c.inputs[1].type.elements(),
                inner = InnerOf(c.inputs[2].type);
  DispatchDType(c.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      for (int64_t i = 0; i < rows * inner; ++i) {
        const int64_t own = IndexAt(c.inputs[0], i / inner);
        ComputeType<T> sum{0};
        for (int64_t j = 0; j < count && own >= 0; ++j) {
          if (IndexAt(c.inputs[1], j) == own)
            sum = Plus(sum, static_cast<ComputeType<T>>(c.inputs[2].as<T>()[j * inner + i % inner]));
        }
        c.outputs[0].as<T>()[i] = static_cast<T>(sum);
      }
    }
  });
  return absl::OkStatus();
}

// The updates of each row as a linked list in their order, so that sums do not depend on threads.
class RowSums : public Kernel {
 public:
  explicit RowSums(const OpSpec& s)
      : rows_(s.inputs[0]), indices_(s.inputs[1]), updates_(s.inputs[2]), inner_(InnerOf(s.inputs[2])) {}

  Status Run(const Buffers& b) override {
    const TensorView rows{rows_, const_cast<void*>(b.inputs[0])}, indices{indices_, const_cast<void*>(b.inputs[1])};
    const int64_t m = rows_.elements(), n = indices_.elements();
    int32_t* const places = static_cast<int32_t*>(b.scratch);
    int32_t *const owner = places + FirstPlaces::Entries(m), *const head = owner + m, *const next = head + m;
    FirstPlaces first(rows, m, places);
    for (int64_t i = 0; i < m; ++i) {
      owner[i] = IndexAt(rows, i) < 0 ? -1 : first.Add(i);
      head[i] = -1;
    }
    for (int64_t j = n - 1; j >= 0; --j) {
      const int64_t number = IndexAt(indices, j);
      const int32_t at = number < 0 ? -1 : first.Find(number);
      if (at < 0) continue;
      next[j] = head[at];
      head[at] = static_cast<int32_t>(j);
    }
    DispatchDType(updates_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (!std::is_same_v<T, bool>) {
        ParallelFor(m, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, inner_)), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            Sum(owner[i] < 0 ? -1 : head[owner[i]], next, static_cast<const T*>(b.inputs[2]),
                static_cast<T*>(b.outputs[0]) + i * inner_);
        });
      }
    });
    return absl::OkStatus();
  }

  int64_t scratch_bytes() const override {
    const int64_t m = rows_.elements();
    return (FirstPlaces::Entries(m) + 2 * m + indices_.elements()) * static_cast<int64_t>(sizeof(int32_t));
  }

 private:
  template <class T>
  void Sum(int32_t from, const int32_t* next, const T* updates, T* y) const {
    constexpr int64_t kBlock = 64;
    ComputeType<T> sums[kBlock];
    for (int64_t k = 0; k < inner_; k += kBlock) {
      const int64_t size = std::min(kBlock, inner_ - k);
      std::fill(sums, sums + size, ComputeType<T>{0});
      for (int32_t j = from; j >= 0; j = next[j]) {
        const T* const row = updates + j * inner_ + k;
        for (int64_t e = 0; e < size; ++e) sums[e] = Plus(sums[e], static_cast<ComputeType<T>>(row[e]));
      }
      for (int64_t e = 0; e < size; ++e) y[k + e] = static_cast<T>(sums[e]);
    }
  }

  const TensorType rows_, indices_, updates_;
  const int64_t inner_;
};

template <class K>
FastKernel Hashed() {
  return {"hash", [](const OpSpec&) { return true; },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> { return std::unique_ptr<Kernel>(new K(s)); }};
}

DeviceProgram UniqueOnDevice(const OpSpec& spec) {
  return OneStep(EachElement(spec.inputs[0].elements(), absl::StrCat(Constant("size", spec.attrs.Int("size")), R"cuda(
  const i64 own = Get(x0[i]);
  bool first = own >= 0 && own < size;
  for (i64 k = 0; k < (i64)i && first; ++k) first = Get(x0[k]) != own;
  y0[i] = first ? (int)own : -1;
)cuda")));
}

DeviceProgram SumsOnDevice(const OpSpec& spec) {
  return OneStep(
      EachElement(spec.outputs[0].elements(),
                  absl::StrCat(Constant("inner", InnerOf(spec.inputs[2])), Constant("count", spec.inputs[1].elements()),
                               "  typedef ", DeviceComputeType(spec.outputs[0].dtype), R"cuda( C;
  const i64 own = Get(x0[i / inner]);
  C sum = 0;
  for (i64 j = 0; j < count && own >= 0; ++j) {
    if (Get(x1[j]) == own) sum += (C)Get(x2[j * inner + i % inner]);
  }
  Set(y0[i], sum);
)cuda")));
}

OpDef RowSumsOp() {
  OpDef op("row_sums");
  op.Doc(
      "Sums of rows of `updates` [n, ..], to each of which `indices` [n] gives a number: row i of the result [m, ..] "
      "is the sum of those whose number is rows[i], in their order. Where rows[i] is negative it is 0.");
  op.Input("rows", TypeClass::kIndex).Input("indices", TypeClass::kIndex).Input("updates").NumericTypes();
  op.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() == 1 && in[1].rank() == 1 && in[2].rank() > 0) return absl::OkStatus();
    return absl::InvalidArgumentError("rows and indices should have 1 dimension, and updates at least 1");
  });
  op.Rule([](const Attrs&, absl::Span<const TensorType> in) {
    std::string inner;
    for (int64_t d = 1; d < in[2].rank(); ++d) absl::StrAppend(&inner, " d", d);
    return absl::StrCat("m, n, n", inner, " -> m", inner);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    return {Value(), Value(), c.g.Op("row_sums", {c.x(1), c.x(0), c.dy[0]})};
  });
  op.Reference(SumsReference).Fast(Hashed<RowSums>()).OnDevice(SumsOnDevice);
  op.AddSample({{{DType::kI32, {3}}, {DType::kI32, {7}}, {DType::kF32, {7, 5}}}});
  op.AddSample({{{DType::kI32, {6}}, {DType::kI64, {4}}, {DType::kF32, {4}}}});
  op.AddSample({{{DType::kI64, {5}}, {DType::kI32, {9}}, {DType::kF32, {9, 2, 40}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(unique_rows) {
  OpDef op("unique_rows");
  op.Doc(
      "The indices [n] of rows of a table of `size` rows, each where it occurs first, as i32: -1 where it has occurred "
      "before, and where there is no such row.");
  op.Input("indices", TypeClass::kIndex).ZeroGrad();
  op.Required("size", AttrKind::kInt, "rows of the table");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const int64_t size = a.Int("size");
    if (size < 0 || size >= int64_t{1} << 31)
      return absl::InvalidArgumentError(absl::StrCat("size is ", size, ", expected 0 to 2147483647"));
    return in[0].rank() == 1 ? absl::OkStatus() : absl::InvalidArgumentError("indices should have 1 dimension");
  });
  op.Rule("!n -> !n");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kI32, in[0].shape}};
  });
  op.Reference(UniqueReference).Fast(Hashed<UniqueRows>()).OnDevice(UniqueOnDevice);
  op.AddSample({{{DType::kI32, {9}}}, {{"size", int64_t{3}}}});
  op.AddSample({{{DType::kI64, {5}}}, {{"size", int64_t{4}}}});
  return {op, RowSumsOp()};
}

}  // namespace mslua
