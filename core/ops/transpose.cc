#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {

// rows_highway.cc
void HighwayCopyRuns(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t bytes, int64_t runs);
// transpose_highway.cc
void HighwayTransposeStrip(int64_t element_size, const void* x, int64_t x_stride, void* y, int64_t y_stride,
                           int64_t rows, int64_t columns, bool stream);

namespace {

constexpr int64_t kGrain = 65536;  // bytes that are worth a thread

template <class T>
void Move(const T* x, const Shape& from, const std::vector<int64_t>& perm, T* y) {
  const Shape own = RowMajorStrides(from);
  Shape to, strides;  // strides: of the input along each output dimension
  for (const int64_t p : perm) {
    to.push_back(from[static_cast<size_t>(p)]);
    strides.push_back(own[static_cast<size_t>(p)]);
  }
  for (int64_t i = 0; i < NumElements(to); ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = to.size(); d-- > 0;) {
      at += rest % to[d] * strides[d];
      rest /= to[d];
    }
    y[i] = x[at];
  }
}

Status Run(const Attrs& attrs, const TensorType& type, const void* x, void* y) {
  const auto& perm = attrs.Ints("perm");
  switch (SizeOf(type.dtype)) {
    case 1:
      Move(static_cast<const uint8_t*>(x), type.shape, perm, static_cast<uint8_t*>(y));
      break;
    case 2:
      Move(static_cast<const uint16_t*>(x), type.shape, perm, static_cast<uint16_t*>(y));
      break;
    case 4:
      Move(static_cast<const uint32_t*>(x), type.shape, perm, static_cast<uint32_t*>(y));
      break;
    default:
      Move(static_cast<const uint64_t*>(x), type.shape, perm, static_cast<uint64_t*>(y));
      break;
  }
  return absl::OkStatus();
}

// A dimension of the result: its size, and the steps between its neighbours in the input and in the result, in
// elements.
struct Dimension {
  int64_t size = 1, from = 0, to = 0;
};

// What a permutation moves: dimensions of size 1 are left out, those that stay neighbours are one, and a short
// innermost one that stays where it is becomes part of a larger element.
struct Movement {
  int64_t element_size = 0, elements = 0;
  std::vector<Dimension> dimensions;  // of the result, outermost first
};

Movement MovementOf(const TensorType& x, const std::vector<int64_t>& perm) {
  constexpr int64_t kLargest = 8;  // bytes of an element
  Movement m;
  m.element_size = SizeOf(x.dtype);
  m.elements = x.elements();
  if (m.elements == 0) return m;
  const Shape own = RowMajorStrides(x.shape);
  for (const int64_t p : perm) {
    const int64_t size = x.shape[static_cast<size_t>(p)], from = own[static_cast<size_t>(p)];
    if (size == 1) continue;
    if (!m.dimensions.empty() && m.dimensions.back().from == from * size) {
      m.dimensions.back() = {m.dimensions.back().size * size, from, 0};
    } else {
      m.dimensions.push_back({size, from, 0});
    }
  }
  if (m.dimensions.size() > 1) {
    const Dimension last = m.dimensions.back();
    const int64_t bytes = last.size * m.element_size;
    if (last.from == 1 && bytes <= kLargest && (bytes & (bytes - 1)) == 0) {
      m.dimensions.pop_back();
      for (Dimension& d : m.dimensions) d.from /= last.size;
      m.element_size = bytes;
      m.elements /= last.size;
    }
  }
  int64_t step = 1;
  for (size_t d = m.dimensions.size(); d-- > 0;) {
    m.dimensions[d].to = step;
    step *= m.dimensions[d].size;
  }
  return m;
}

// Where element `number` of the product of these dimensions lies in the input and in the result.
std::pair<int64_t, int64_t> PlaceOf(const std::vector<Dimension>& dimensions, int64_t number) {
  int64_t from = 0, to = 0;
  for (size_t d = dimensions.size(); d-- > 0;) {
    from += number % dimensions[d].size * dimensions[d].from;
    to += number % dimensions[d].size * dimensions[d].to;
    number /= dimensions[d].size;
  }
  return {from, to};
}

// The innermost dimension stays where it is: runs of bytes.
class RunsKernel : public Kernel {
 public:
  explicit RunsKernel(Movement m) : size_(m.element_size), outer_(std::move(m.dimensions)) {
    if (m.elements == 0) return;
    bytes_ = size_;
    if (!outer_.empty()) {
      bytes_ *= outer_.back().size;
      outer_.pop_back();
    }
    if (!outer_.empty()) {
      runs_ = outer_.back();
      outer_.pop_back();
    }
    for (const Dimension& d : outer_) blocks_ *= d.size;
  }
  Status Run(const Buffers& b) override {
    const char* const x = static_cast<const char*>(b.inputs[0]);
    char* const y = static_cast<char*>(b.outputs[0]);
    if (runs_.size == 1) {
      ParallelFor(bytes_, kGrain,
                  [&](int64_t begin, int64_t end) { HighwayCopyRuns(x + begin, 0, y + begin, 0, end - begin, 1); });
      return absl::OkStatus();
    }
    ParallelFor(blocks_ * runs_.size, std::max<int64_t>(1, kGrain / bytes_), [&](int64_t begin, int64_t end) {
      for (int64_t run = begin; run < end;) {
        const int64_t first = run % runs_.size, n = std::min(end - run, runs_.size - first);
        const auto [from, to] = PlaceOf(outer_, run / runs_.size);
        HighwayCopyRuns(x + (from + first * runs_.from) * size_, runs_.from * size_,
                        y + (to + first * runs_.to) * size_, runs_.to * size_, bytes_, n);
        run += n;
      }
    });
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  std::vector<Dimension> outer_;  // around the runs
  Dimension runs_;
  int64_t bytes_ = 0, blocks_ = 1;
};

// The innermost dimension comes from another place: strips of the matrix of it and of what was innermost, each as wide
// as a cache line.
class StripsKernel : public Kernel {
 public:
  explicit StripsKernel(Movement m) : size_(m.element_size), outer_(std::move(m.dimensions)) {
    rows_ = outer_.back();
    outer_.pop_back();
    const auto is_inner = [](const Dimension& d) { return d.from == 1; };
    const auto inner = std::find_if(outer_.begin(), outer_.end(), is_inner);
    columns_ = *inner;
    outer_.erase(inner);
    for (const Dimension& d : outer_) matrices_ *= d.size;
  }
  Status Run(const Buffers& b) override {
    const char* const x = static_cast<const char*>(b.inputs[0]);
    char* const y = static_cast<char*>(b.outputs[0]);
    const int64_t width = kLine / size_, strips = CeilDiv(columns_.size, width);
    const int64_t heights = CeilDiv(rows_.size, kRows), pieces = strips * heights;
    const bool stream = matrices_ * rows_.size * columns_.size * size_ >= kPastCaches;
    const int64_t largest = std::min(kRows, rows_.size) * std::min(width, columns_.size) * size_;
    ParallelFor(matrices_ * pieces, std::max<int64_t>(1, kGrain / largest), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const auto [from, to] = PlaceOf(outer_, task / pieces);
        const int64_t column = task % pieces / heights * width, row = task % heights * kRows;
        HighwayTransposeStrip(size_, x + (from + column + row * rows_.from) * size_, rows_.from,
                              y + (to + column * columns_.to + row) * size_, columns_.to,
                              std::min(kRows, rows_.size - row), std::min(width, columns_.size - column), stream);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kLine = 64, kRows = 1024;
  // From this size of the result on, it costs less to read it from memory than to make place for it in the caches.
  static constexpr int64_t kPastCaches = 8 << 20;

  const int64_t size_;
  std::vector<Dimension> outer_;
  Dimension rows_, columns_;
  int64_t matrices_ = 1;
};

FastKernel Blocks() {
  return {"blocks", [](const OpSpec&) { return true; },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            Movement m = MovementOf(s.inputs[0], s.attrs.Ints("perm"));
            if (m.dimensions.empty() || m.dimensions.back().from == 1)
              return std::make_unique<RunsKernel>(std::move(m));
            return std::make_unique<StripsKernel>(std::move(m));
          }};
}

}  // namespace

MSLUA_OPERATOR(transpose) {
  OpDef op("transpose");
  op.Class("Transpose").Doc("Dimensions in another order: dimension d of the result is dimension perm[d] of x.");
  op.Input("x").AllTypes().Required("perm", AttrKind::kAxes, "every axis of x once");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) {
    if (static_cast<int64_t>(a.Ints("perm").size()) == in[0].rank()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("perm names ", a.Ints("perm").size(), " axes, expected ", in[0].rank()));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    std::string left, right;
    for (int64_t d = 0; d < in[0].rank(); ++d) {
      absl::StrAppend(&left, "d", d, " ");
      absl::StrAppend(&right, "d", a.Ints("perm")[d], " ");
    }
    return absl::StrCat(left, "-> ", right);
  });
  op.Grad([](GradContext& c) {
    const auto& perm = c.attrs.Ints("perm");
    std::vector<int64_t> inverse(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) inverse[perm[d]] = static_cast<int64_t>(d);
    return std::vector<Value>{Transpose(c.g, c.dy[0], inverse)};
  });
  op.Reference([](const OpCall& c) { return Run(c.attrs, c.inputs[0].type, c.inputs[0].data, c.outputs[0].data); });
  op.Fast(Blocks());
  op.OnDevice([](const OpSpec& spec) {
    const Shape own = RowMajorStrides(spec.inputs[0].shape);
    std::vector<int64_t> strides;
    for (int64_t d : spec.attrs.Ints("perm")) strides.push_back(own[static_cast<size_t>(d)]);
    const std::string from = StridedIndex("i", spec.outputs[0].shape, strides);
    return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  op.AddSample({{{DType::kF32, {3, 4}}}, {{"perm", std::vector<int64_t>{1, 0}}}});
  op.AddSample({{{DType::kF32, {2, 3, 4, 5}}}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}}});
  return {op};
}

MSLUA_ONNX(transpose) { c.Result(c.Transpose(c.In(0), c.attrs().Ints("perm"))); }

}  // namespace mslua
