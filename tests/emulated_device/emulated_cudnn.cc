// The functions of cuDNN's backend API on the CPU, beside emulated_cuda.cc in one object: graphs of descriptors are
// interpreted operation by operation, in float64, and rounded where the graph has a type.
//
// It is stricter than the library. An attribute has to be of its type and of its descriptor, memory has to be the
// device's, aligned and as long as the strides say. Its first proposals are engines that mslua must not take:
//
//   0  adds in another order each time (note: nondeterministic)
//   1  of float32, rounds operands to 10 bits (note: tensor core); else adds in 16 bits (note: reduced reduction)
//   2  needs more memory than there is
//   3  is right; of float32 it is proposed as a fallback only
//
// EMULATED_CUDNN_ENGINE=N: it has engine N alone. What it does not have (status 3000): head sizes that are no multiple
// of 8, float32 attention, and convolutions whose dilations differ, so that tests meet calls that are left to text.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/dtype.h"
#include "core/device/cudnn_api.h"
#include "tests/emulated_device/emulated_cuda.h"

namespace mslua::cuda {

struct DnnHandleTag {
  StreamHandle stream = nullptr;
};

namespace {

constexpr int64_t kNever = int64_t{1} << 50;

struct Content;
using Shared = std::shared_ptr<Content>;

struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<Shared> descriptors;
};

// What a descriptor holds, which outlives it where another one refers to it.
struct Content {
  int type = 0;
  bool final = false;
  std::map<int, Attribute> attributes;
  int engine = 0;  // of an engine and of its configuration

  template <class T>
  std::vector<T> Values(int name) const {
    const auto at = attributes.find(name);
    if (at == attributes.end()) return {};
    std::vector<T> values(static_cast<size_t>(at->second.count));
    std::memcpy(values.data(), at->second.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  T Value(int name, T fallback = {}) const {
    const std::vector<T> values = Values<T>(name);
    return values.empty() ? fallback : values[0];
  }
  Shared Descriptor(int name) const {
    const auto at = attributes.find(name);
    return at == attributes.end() || at->second.descriptors.empty() ? nullptr : at->second.descriptors[0];
  }
};

Shared& Of(DnnDescriptor descriptor) { return *static_cast<Shared*>(descriptor); }

size_t BytesOf(int type) {
  switch (type) {
    case kDnnTypeHandle:
    case kDnnTypePointer:
    case kDnnTypeDescriptor:
    case kDnnTypeI64:
    case kDnnTypeF64:
      return 8;
    case kDnnTypeBool:
    case kDnnTypeChar:
      return 1;
    default:
      return 4;
  }
}

struct Known {
  int descriptor, type;
};
// The attributes that can be set.
const std::map<int, Known>& KnownAttributes() {
  static const auto* const known = new std::map<int, Known>{
      {kDnnPointwiseMode, {kDnnPointwise, kDnnTypePointwiseMode}},
      {kDnnPointwiseType, {kDnnPointwise, kDnnTypeDataType}},
      {kDnnPointwiseAxis, {kDnnPointwise, kDnnTypeI64}},
      {kDnnConvolutionType, {kDnnConvolution, kDnnTypeDataType}},
      {kDnnConvolutionMode, {kDnnConvolution, kDnnTypeConvolutionMode}},
      {kDnnConvolutionDilations, {kDnnConvolution, kDnnTypeI64}},
      {kDnnConvolutionStrides, {kDnnConvolution, kDnnTypeI64}},
      {kDnnConvolutionAfter, {kDnnConvolution, kDnnTypeI64}},
      {kDnnConvolutionBefore, {kDnnConvolution, kDnnTypeI64}},
      {kDnnConvolutionSpatial, {kDnnConvolution, kDnnTypeI64}},
      {kDnnHeuristicsMode, {kDnnHeuristics, kDnnTypeHeuristicMode}},
      {kDnnHeuristicsGraph, {kDnnHeuristics, kDnnTypeDescriptor}},
      {kDnnPlanHandle, {kDnnPlan, kDnnTypeHandle}},
      {kDnnPlanConfig, {kDnnPlan, kDnnTypeDescriptor}},
      {kDnnForwardAlpha, {kDnnConvolutionForward, kDnnTypeF64}},
      {kDnnForwardBeta, {kDnnConvolutionForward, kDnnTypeF64}},
      {kDnnForwardConvolution, {kDnnConvolutionForward, kDnnTypeDescriptor}},
      {kDnnForwardW, {kDnnConvolutionForward, kDnnTypeDescriptor}},
      {kDnnForwardX, {kDnnConvolutionForward, kDnnTypeDescriptor}},
      {kDnnForwardY, {kDnnConvolutionForward, kDnnTypeDescriptor}},
      {kDnnDataAlpha, {kDnnConvolutionData, kDnnTypeF64}},
      {kDnnDataBeta, {kDnnConvolutionData, kDnnTypeF64}},
      {kDnnDataConvolution, {kDnnConvolutionData, kDnnTypeDescriptor}},
      {kDnnDataW, {kDnnConvolutionData, kDnnTypeDescriptor}},
      {kDnnDataDx, {kDnnConvolutionData, kDnnTypeDescriptor}},
      {kDnnDataDy, {kDnnConvolutionData, kDnnTypeDescriptor}},
      {kDnnFilterAlpha, {kDnnConvolutionFilter, kDnnTypeF64}},
      {kDnnFilterBeta, {kDnnConvolutionFilter, kDnnTypeF64}},
      {kDnnFilterConvolution, {kDnnConvolutionFilter, kDnnTypeDescriptor}},
      {kDnnFilterDw, {kDnnConvolutionFilter, kDnnTypeDescriptor}},
      {kDnnFilterX, {kDnnConvolutionFilter, kDnnTypeDescriptor}},
      {kDnnFilterDy, {kDnnConvolutionFilter, kDnnTypeDescriptor}},
      {kDnnPointwiseDescriptor, {kDnnPointwiseOperation, kDnnTypeDescriptor}},
      {kDnnPointwiseX, {kDnnPointwiseOperation, kDnnTypeDescriptor}},
      {kDnnPointwiseB, {kDnnPointwiseOperation, kDnnTypeDescriptor}},
      {kDnnPointwiseY, {kDnnPointwiseOperation, kDnnTypeDescriptor}},
      {kDnnPointwiseT, {kDnnPointwiseOperation, kDnnTypeDescriptor}},
      {kDnnGraphHandle, {kDnnGraph, kDnnTypeHandle}},
      {kDnnGraphOperations, {kDnnGraph, kDnnTypeDescriptor}},
      {kDnnTensorAlignment, {kDnnTensor, kDnnTypeI64}},
      {kDnnTensorType, {kDnnTensor, kDnnTypeDataType}},
      {kDnnTensorSizes, {kDnnTensor, kDnnTypeI64}},
      {kDnnTensorStrides, {kDnnTensor, kDnnTypeI64}},
      {kDnnTensorId, {kDnnTensor, kDnnTypeI64}},
      {kDnnTensorVirtual, {kDnnTensor, kDnnTypeBool}},
      {kDnnTensorByValue, {kDnnTensor, kDnnTypeBool}},
      {kDnnPackIds, {kDnnVariantPack, kDnnTypeI64}},
      {kDnnPackPointers, {kDnnVariantPack, kDnnTypePointer}},
      {kDnnPackWorkspace, {kDnnVariantPack, kDnnTypePointer}},
      {kDnnMatmulType, {kDnnMatmul, kDnnTypeDataType}},
      {kDnnMatmulA, {kDnnMatmulOperation, kDnnTypeDescriptor}},
      {kDnnMatmulB, {kDnnMatmulOperation, kDnnTypeDescriptor}},
      {kDnnMatmulC, {kDnnMatmulOperation, kDnnTypeDescriptor}},
      {kDnnMatmulDescriptor, {kDnnMatmulOperation, kDnnTypeDescriptor}},
      {kDnnReductionMode, {kDnnReduction, kDnnTypeReduction}},
      {kDnnReductionType, {kDnnReduction, kDnnTypeDataType}},
      {kDnnReductionX, {kDnnReductionOperation, kDnnTypeDescriptor}},
      {kDnnReductionY, {kDnnReductionOperation, kDnnTypeDescriptor}},
      {kDnnReductionDescriptor, {kDnnReductionOperation, kDnnTypeDescriptor}},
      {kDnnReshapeX, {kDnnReshape, kDnnTypeDescriptor}},
      {kDnnReshapeY, {kDnnReshape, kDnnTypeDescriptor}},
  };
  return *known;
}

DType TypeOf(const Content& tensor) {
  switch (tensor.Value<int>(kDnnTensorType)) {
    case kDnnF16:
      return DType::kF16;
    case kDnnBF16:
      return DType::kBF16;
    case kDnnI32:
      return DType::kI32;
    case kDnnBool:
      return DType::kBool;
    default:
      return DType::kF32;
  }
}

// ---------------------------------------------------------------------------------------------------- interpreter

// A tensor while a graph runs: the elements by their place in memory, rounded to the tensor's type.
struct Tensor {
  std::vector<int64_t> sizes, strides;
  DType type = DType::kF32;
  bool is_virtual = false, by_value = false;
  void* memory = nullptr;  // of an operand
  std::vector<double> values;

  int64_t extent() const {
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
    return last + 1;
  }
  // Of an index of a tensor that this one is broadcast to.
  int64_t Place(const std::vector<int64_t>& index) const {
    int64_t at = 0;
    for (size_t d = 0; d < sizes.size(); ++d) at += sizes[d] == 1 ? 0 : index[d] * strides[d];
    return at;
  }
};

Tensor TensorOf(const Content& c) {
  Tensor t;
  t.sizes = c.Values<int64_t>(kDnnTensorSizes);
  t.strides = c.Values<int64_t>(kDnnTensorStrides);
  t.type = TypeOf(c);
  t.is_virtual = c.Value<char>(kDnnTensorVirtual) != 0;
  t.by_value = c.Value<char>(kDnnTensorByValue) != 0;
  return t;
}

double Rounded(DType type, double value) {
  char element[8] = {};
  StoreDouble(type, element, 0, value);
  return LoadAsDouble(type, element, 0);
}

template <typename F>
void ForEach(const std::vector<int64_t>& sizes, const F& f) {
  std::vector<int64_t> index(sizes.size(), 0);
  for (;;) {
    f(index);
    size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

class Run {
 public:
  Run(Shared graph, int engine, std::map<int64_t, void*> memory, std::map<int64_t, float> numbers)
      : graph_(std::move(graph)), engine_(engine), memory_(std::move(memory)), numbers_(std::move(numbers)) {}

  void operator()() {
    for (const Shared& op : graph_->attributes.at(kDnnGraphOperations).descriptors) Operation(*op);
  }

 private:
  Tensor& Get(const Content& op, int name) {
    const Shared tensor = op.Descriptor(name);
    const int64_t id = tensor->Value<int64_t>(kDnnTensorId);
    const auto [at, fresh] = tensors_.try_emplace(id);
    Tensor& t = at->second;
    if (!fresh) return t;
    t = TensorOf(*tensor);
    t.values.assign(static_cast<size_t>(t.extent()), std::numeric_limits<double>::quiet_NaN());
    if (t.by_value) {
      t.values[0] = static_cast<double>(numbers_.at(id));
    } else if (!t.is_virtual) {
      t.memory = memory_.at(id);
      ForEach(t.sizes, [&](const std::vector<int64_t>& i) {
        const int64_t place = t.Place(i);
        t.values[static_cast<size_t>(place)] = LoadAsDouble(t.type, t.memory, place);
      });
    }
    return t;
  }
  static double At(const Tensor& t, const std::vector<int64_t>& index) {
    return t.values[static_cast<size_t>(t.Place(index))];
  }
  static void Put(Tensor& t, const std::vector<int64_t>& index, double value) { PutAt(t, t.Place(index), value); }
  static void PutAt(Tensor& t, int64_t place, double value) {
    const double rounded = Rounded(t.type, value);
    t.values[static_cast<size_t>(place)] = rounded;
    if (t.memory != nullptr) StoreDouble(t.type, t.memory, place, rounded);
  }

  // A sum of products as the engine makes it.
  struct Sum {
    int engine;
    bool float32;
    double total = 0;
    bool exact() const { return engine != 1 && engine != 4; }
    void Add(double a, double b) {
      if (engine == 1 && float32) {
        total += Tf32(a) * Tf32(b);
      } else if (engine == 1) {
        total = Rounded(DType::kBF16, total + a * b);
      } else if (engine == 4) {
        total = Rounded(DType::kF32, total + a * b);
      } else {
        total += a * b;
      }
    }
    double Result() const {
      static int runs = 0;
      return engine == 0 ? total * (1 + 1e-4 * (++runs % 7)) : total;
    }
  };
  Sum NewSum(const Tensor& a) const { return {engine_, a.type == DType::kF32, 0}; }

  void Operation(const Content& op) {
    switch (op.type) {
      case kDnnConvolutionForward:
        return Convolve(op, kDnnForwardConvolution, kDnnForwardX, kDnnForwardW, kDnnForwardY, kDnnForwardY);
      case kDnnConvolutionData:
        return Convolve(op, kDnnDataConvolution, kDnnDataDx, kDnnDataW, kDnnDataDy, kDnnDataDx);
      case kDnnConvolutionFilter:
        return Convolve(op, kDnnFilterConvolution, kDnnFilterX, kDnnFilterDw, kDnnFilterDy, kDnnFilterDw);
      case kDnnPointwiseOperation:
        return Pointwise(op);
      case kDnnReductionOperation:
        return Reduce(op);
      case kDnnMatmulOperation:
        return Multiply(op);
      default:
        return Reshape(op);
    }
  }

  // A convolution over copies of x and y whose channels lie side by side, x with zeros around each image, and of w with
  // the channels of y side by side.
  void Convolve(const Content& op, int shape_name, int x_name, int w_name, int y_name, int result_name) {
    const Shared shape = op.Descriptor(shape_name);
    const auto stride = shape->Values<int64_t>(kDnnConvolutionStrides),
               dilation = shape->Values<int64_t>(kDnnConvolutionDilations),
               before = shape->Values<int64_t>(kDnnConvolutionBefore),
               after = shape->Values<int64_t>(kDnnConvolutionAfter);
    Tensor &x = Get(op, x_name), &w = Get(op, w_name), &y = Get(op, y_name), &result = Get(op, result_name);
    const int64_t channels = x.sizes[1], in = w.sizes[1], out_all = w.sizes[0], out = out_all / (channels / in),
                  height = x.sizes[2] + before[0] + after[0], width = x.sizes[3] + before[1] + after[1];
    // Calls visit(place in the tensor, element of the copy) for all elements.
    std::vector<double> xs(static_cast<size_t>(x.sizes[0] * height * width * channels)),
        ws(static_cast<size_t>(in * out_all * w.sizes[2] * w.sizes[3])),
        ys(static_cast<size_t>(y.sizes[0] * y.sizes[2] * y.sizes[3] * out_all));
    const auto each = [](const Tensor& t, double* copy, int64_t rows, int64_t columns, const auto& visit) {
      for (int64_t n = 0; n < t.sizes[0]; ++n) {
        for (int64_t h = 0; h < t.sizes[2]; ++h) {
          for (int64_t v = 0; v < t.sizes[3]; ++v) {
            double* const to = copy + ((n * rows + h) * columns + v) * t.sizes[1];
            const int64_t at = n * t.strides[0] + h * t.strides[2] + v * t.strides[3];
            for (int64_t c = 0; c < t.sizes[1]; ++c) visit(static_cast<size_t>(at + c * t.strides[1]), to + c);
          }
        }
      }
    };
    // w by rows, columns and channels of the window, then the channels of y.
    const auto each_weight = [&](const auto& visit) {
      double* to = ws.data();
      for (int64_t a = 0; a < w.sizes[2]; ++a) {
        for (int64_t b = 0; b < w.sizes[3]; ++b) {
          for (int64_t c = 0; c < in; ++c) {
            for (int64_t o = 0; o < out_all; ++o)
              visit(static_cast<size_t>(o * w.strides[0] + c * w.strides[1] + a * w.strides[2] + b * w.strides[3]),
                    to++);
          }
        }
      }
    };
    double* const image = xs.data() + (before[0] * width + before[1]) * channels;
    const auto load = [](const Tensor& t) { return [&t](size_t at, double* element) { *element = t.values[at]; }; };
    if (&result != &x) each(x, image, height, width, load(x));
    if (&result != &w) each_weight(load(w));
    if (&result != &y) each(y, ys.data(), y.sizes[2], y.sizes[3], load(y));
    const auto multiply = [&](auto add) {
      double* of_y = ys.data();
      for (int64_t n = 0; n < y.sizes[0]; ++n) {
        for (int64_t p = 0; p < y.sizes[2]; ++p) {
          for (int64_t q = 0; q < y.sizes[3]; ++q, of_y += out_all) {
            for (int64_t k = 0; k < w.sizes[2] * w.sizes[3]; ++k) {
              const int64_t h = n * height + p * stride[0] + k / w.sizes[3] * dilation[0],
                            v = q * stride[1] + k % w.sizes[3] * dilation[1];
              double *const of_x = &xs[static_cast<size_t>((h * width + v) * channels)],
                            *const of_w = &ws[static_cast<size_t>(k * in * out_all)];
              for (int64_t g = 0; g < channels / in; ++g) {
                double* const to_y = of_y + g * out;
                for (int64_t c = 0; c < in; ++c) {
                  double *const one = of_x + g * in + c, *const row = of_w + c * out_all + g * out;
                  if (&result == &x) {
                    for (int64_t o = 0; o < out; ++o) add(one, to_y[o], row[o]);
                  } else if (&result == &w) {
                    for (int64_t o = 0; o < out; ++o) add(&row[o], *one, to_y[o]);
                  } else {
                    for (int64_t o = 0; o < out; ++o) add(&to_y[o], *one, row[o]);
                  }
                }
              }
            }
          }
        }
      }
    };
    Sum sum = NewSum(x);
    if (sum.exact()) {
      multiply([](double* total, double one, double two) { *total += one * two; });
    } else {
      multiply([&sum](double* total, double one, double two) {
        sum.total = *total;
        sum.Add(one, two);
        *total = sum.total;
      });
    }
    const auto store = [&](size_t at, const double* element) {
      sum.total = *element;
      PutAt(result, static_cast<int64_t>(at), sum.Result());
    };
    if (&result == &x)
      each(x, image, height, width, store);
    else if (&result == &w)
      each_weight(store);
    else
      each(y, ys.data(), y.sizes[2], y.sizes[3], store);
  }

  void Pointwise(const Content& op) {
    const Shared function = op.Descriptor(kDnnPointwiseDescriptor);
    const int mode = function->Value<int>(kDnnPointwiseMode);
    const auto axis = static_cast<size_t>(function->Value<int64_t>(kDnnPointwiseAxis));
    Tensor &y = Get(op, kDnnPointwiseY), &x = Get(op, kDnnPointwiseX);
    const bool has_b = op.Descriptor(kDnnPointwiseB) != nullptr, has_t = op.Descriptor(kDnnPointwiseT) != nullptr;
    Tensor &b = has_b ? Get(op, kDnnPointwiseB) : x, &t = has_t ? Get(op, kDnnPointwiseT) : x;
    ForEach(y.sizes, [&](const std::vector<int64_t>& i) {
      const auto of = [&](const Tensor& from) { return At(from, i); };
      double value = 0;
      switch (mode) {
        case kDnnAdd:
          value = of(x) + of(b);
          break;
        case kDnnMul:
          value = of(x) * of(b);
          break;
        case kDnnDiv:
          value = of(x) / of(b);
          break;
        case kDnnSub:
          value = of(x) - of(b);
          break;
        case kDnnExp:
          value = std::exp(of(x));
          break;
        case kDnnLog:
          value = std::log(of(x));
          break;
        case kDnnGreaterEqual:
          value = of(x) >= of(b) ? 1 : 0;
          break;
        case kDnnIndex:
          value = static_cast<double>(i[axis]);
          break;
        default:
          value = of(t) != 0 ? of(x) : of(b);
      }
      Put(y, i, value);
    });
  }

  void Reduce(const Content& op) {
    const int mode = op.Descriptor(kDnnReductionDescriptor)->Value<int>(kDnnReductionMode);
    Tensor &x = Get(op, kDnnReductionX), &y = Get(op, kDnnReductionY);
    std::map<int64_t, double> totals;
    ForEach(x.sizes, [&](const std::vector<int64_t>& i) {
      const auto [at, fresh] = totals.try_emplace(y.Place(i), At(x, i));
      if (fresh) return;
      at->second = mode == kDnnReduceMax ? std::max(at->second, At(x, i)) : at->second + At(x, i);
    });
    ForEach(y.sizes, [&](const std::vector<int64_t>& i) { Put(y, i, totals.at(y.Place(i))); });
  }

  void Multiply(const Content& op) {
    Tensor &a = Get(op, kDnnMatmulA), &b = Get(op, kDnnMatmulB), &c = Get(op, kDnnMatmulC);
    const size_t rank = c.sizes.size();
    ForEach(c.sizes, [&](const std::vector<int64_t>& i) {
      std::vector<int64_t> left = i, right = i;
      Sum sum = NewSum(a);
      for (int64_t k = 0; k < a.sizes[rank - 1]; ++k) {
        left[rank - 1] = right[rank - 2] = k;
        sum.Add(At(a, left), At(b, right));
      }
      Put(c, i, sum.Result());
    });
  }

  // Another view of the same memory.
  void Reshape(const Content& op) {
    Tensor &x = Get(op, kDnnReshapeX), &y = Get(op, kDnnReshapeY);
    ForEach(y.sizes, [&](const std::vector<int64_t>& i) { Put(y, i, x.values.at(static_cast<size_t>(y.Place(i)))); });
  }

  Shared graph_;
  int engine_;
  std::map<int64_t, void*> memory_;
  std::map<int64_t, float> numbers_;
  std::map<int64_t, Tensor> tensors_;
};

// --------------------------------------------------------------------------------------------------------- graphs

std::vector<Shared> TensorsOf(const Content& graph) {
  std::vector<Shared> tensors;
  for (const Shared& op : graph.attributes.at(kDnnGraphOperations).descriptors) {
    for (const auto& [name, attribute] : op->attributes) {
      for (const Shared& d : attribute.descriptors) {
        if (d->type == kDnnTensor) tensors.push_back(d);
      }
    }
  }
  return tensors;
}

bool IsConvolution(const Content& op) { return op.type >= kDnnConvolutionForward && op.type <= kDnnConvolutionData; }

// Whether the elements of a row follow one another in every operand, and images and weights have one format.
Result CheckConvolution(const Content& op) {
  const int first = op.type == kDnnConvolutionForward ? kDnnForwardAlpha
                    : op.type == kDnnConvolutionData  ? kDnnDataAlpha
                                                      : kDnnFilterAlpha;
  if (op.Value<double>(first) != 1 || op.Value<double>(first + 1, 1) != 0) return kDnnBadParameter;
  const Shared shape = op.Descriptor(first + 2);
  if (shape == nullptr || !shape->final) return kDnnBadParameter;
  const auto dilations = shape->Values<int64_t>(kDnnConvolutionDilations);
  if (shape->Value<int64_t>(kDnnConvolutionSpatial) != 2 || dilations.size() != 2) return kDnnBadParameter;
  if (shape->Value<int>(kDnnConvolutionMode) != kDnnCrossCorrelation) return kDnnNotSupported;
  if (dilations[0] != dilations[1]) return kDnnNotSupported;
  int last = 0, planes = 0;
  for (int i = 3; i < 6; ++i) {
    const Shared tensor = op.Descriptor(first + i);
    if (tensor == nullptr) return kDnnBadParameter;
    const Tensor t = TensorOf(*tensor);
    if (t.sizes.size() != 4) return kDnnBadParameter;
    last += t.strides[1] == 1 ? 1 : 0;
    planes += t.strides[3] == 1 ? 1 : 0;
  }
  return last == 3 || planes == 3 ? kSuccess : kDnnNotSupported;
}

Result CheckGraph(const Content& graph) {
  const auto at = graph.attributes.find(kDnnGraphOperations);
  if (at == graph.attributes.end() || graph.Value<DnnHandle>(kDnnGraphHandle) == nullptr) return kDnnBadParameter;
  const std::vector<Shared>& ops = at->second.descriptors;
  const bool convolution = IsConvolution(*ops[0]);
  for (const Shared& op : ops) {
    if (!op->final || IsConvolution(*op) != convolution) return kDnnBadParameter;
  }
  if (convolution) return ops.size() == 1 ? CheckConvolution(*ops[0]) : kDnnNotSupported;
  for (const Shared& op : ops) {
    if (op->type != kDnnMatmulOperation) continue;
    for (const int name : {kDnnMatmulA, kDnnMatmulB}) {
      const Shared tensor = op->Descriptor(name);
      const Tensor t = TensorOf(*tensor);
      // Not of scores, which are virtual.
      if (!t.is_virtual && (t.type == DType::kF32 || (t.sizes[2] % 8 != 0 && t.sizes[3] % 8 != 0)))
        return kDnnNotSupported;
      if (!t.is_virtual && t.strides[2] != 1 && t.strides[3] != 1) return kDnnNotSupported;
      if (t.is_virtual && name == kDnnMatmulA && t.sizes[3] < 1) return kDnnNotSupported;
    }
  }
  return kSuccess;
}

// The operand that results are made of, which tells float32 graphs from others.
bool IsFloat32(const Content& graph) {
  const std::vector<Shared> tensors = TensorsOf(graph);
  return std::all_of(tensors.begin(), tensors.end(), [](const Shared& t) { return TypeOf(*t) == DType::kF32; });
}

std::vector<int> EnginesOf(const Content& heuristics) {
  if (const char* const only = std::getenv("EMULATED_CUDNN_ENGINE")) return {std::atoi(only)};
  const bool float32 = IsFloat32(*heuristics.Descriptor(kDnnHeuristicsGraph));
  // What another version of the library, or another machine's, would propose first.
  if (const char* const first = std::getenv("EMULATED_CUDNN_FIRST")) return {std::atoi(first), 3};
  if (heuristics.Value<int>(kDnnHeuristicsMode) == kDnnHeuristicFallback) return {2, 3, 4};
  return float32 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2, 3};
}

std::vector<int> NotesOf(int engine, bool float32) {
  switch (engine) {
    case 0:
      return {kDnnNondeterministic};
    case 1:
      return {float32 ? kDnnTensorCore : kDnnReducedReduction};
    default:
      return float32 ? std::vector<int>{} : std::vector<int>{kDnnTensorCore};
  }
}

// Of the gradient of attention, the scores in 16 bits.
int64_t WorkspaceOf(const Content& graph, int engine) {
  if (engine == 2) return kNever;
  const auto& ops = graph.attributes.at(kDnnGraphOperations).descriptors;
  if (ops.size() < 16) return 512;
  for (const Shared& op : ops) {
    if (op->type != kDnnMatmulOperation) continue;
    const Tensor scores = TensorOf(*op->Descriptor(kDnnMatmulC));
    return 2 * scores.sizes[0] * scores.sizes[1] * scores.sizes[2] * scores.sizes[3];
  }
  return 512;
}

Result CheckTensor(const Content& c) {
  const Tensor t = TensorOf(c);
  if (c.attributes.count(kDnnTensorId) == 0 || c.attributes.count(kDnnTensorType) == 0) return kDnnBadParameter;
  if (t.sizes.empty() || t.sizes.size() != t.strides.size() || t.sizes.size() > 8) return kDnnBadParameter;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] < 1 || t.strides[d] < 1) return kDnnBadParameter;
  }
  return kSuccess;
}

std::recursive_mutex& Mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

// The memory of a pack for a graph: 0 where all of it is the device's, aligned and long enough.
Result Bind(const Content& plan, const Content& pack, std::map<int64_t, void*>* memory,
            std::map<int64_t, float>* numbers, void** workspace) {
  const auto ids = pack.Values<int64_t>(kDnnPackIds);
  const auto pointers = pack.Values<void*>(kDnnPackPointers);
  if (ids.size() != pointers.size()) return kDnnBadParameter;
  std::map<int64_t, void*> given;
  for (size_t i = 0; i < ids.size(); ++i) given[ids[i]] = pointers[i];
  const Content& graph = *plan.Descriptor(kDnnPlanConfig)->Descriptor(kDnnHeuristicsGraph);
  for (const Shared& tensor : TensorsOf(graph)) {
    const Tensor t = TensorOf(*tensor);
    if (t.is_virtual) continue;
    const int64_t id = tensor->Value<int64_t>(kDnnTensorId);
    const auto at = given.find(id);
    if (at == given.end()) return kDnnBadParameter;
    if (t.by_value) {
      std::memcpy(&(*numbers)[id], at->second, sizeof(float));
      continue;
    }
    const int64_t alignment = tensor->Value<int64_t>(kDnnTensorAlignment, 1);
    if (reinterpret_cast<uintptr_t>(at->second) % static_cast<uintptr_t>(alignment) != 0) return kDnnBadParameter;
    if (!InDeviceMemory(at->second, static_cast<size_t>(t.extent() * SizeOf(t.type)))) return kDnnBadParameter;
    (*memory)[id] = at->second;
  }
  *workspace = pack.Value<void*>(kDnnPackWorkspace);
  const auto bytes = static_cast<size_t>(WorkspaceOf(graph, plan.engine));
  return InDeviceMemory(*workspace, bytes) ? kSuccess : kDnnBadParameter;
}

}  // namespace

#define ENTER(name)                                          \
  const std::lock_guard<std::recursive_mutex> lock(Mutex()); \
  if (Fails(#name)) return kFaked

extern "C" {

size_t cudnnGetVersion() {
  const char* const version = std::getenv("EMULATED_CUDNN_VERSION");
  return version != nullptr ? static_cast<size_t>(std::atoi(version)) : 91900;
}
const char* cudnnGetErrorString(Result result) {
  return result == kDnnBadParameter   ? "CUDNN_STATUS_BAD_PARAM"
         : result == kDnnNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED"
                                      : "CUDNN_STATUS_INTERNAL_ERROR";
}
void cudnnGetLastErrorString(char* text, size_t) { *text = '\0'; }

Result cudnnCreate(DnnHandle* handle) {
  ENTER(cudnnCreate);
  *handle = new DnnHandleTag;
  return kSuccess;
}
Result cudnnSetStream(DnnHandle handle, StreamHandle stream) {
  ENTER(cudnnSetStream);
  handle->stream = stream;
  return kSuccess;
}
Result cudnnBackendCreateDescriptor(int type, DnnDescriptor* descriptor) {
  ENTER(cudnnBackendCreateDescriptor);
  if (type == kDnnDeviceProperties) return kDnnNotSupported;
  auto content = std::make_shared<Content>();
  content->type = type;
  *descriptor = new Shared(std::move(content));
  CountDescriptors(1);
  return kSuccess;
}
Result cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  ENTER(cudnnBackendDestroyDescriptor);
  delete static_cast<Shared*>(descriptor);
  CountDescriptors(-1);
  return kSuccess;
}
Result cudnnBackendSetAttribute(DnnDescriptor descriptor, int name, int type, int64_t count, const void* values) {
  ENTER(cudnnBackendSetAttribute);
  Content& content = *Of(descriptor);
  const auto known = KnownAttributes().find(name);
  if (content.final || known == KnownAttributes().end() || known->second.descriptor != content.type ||
      known->second.type != type || count < 1 || values == nullptr)
    return kDnnBadParameter;
  Attribute attribute;
  attribute.type = type;
  attribute.count = count;
  const auto* const bytes = static_cast<const char*>(values);
  attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * BytesOf(type));
  for (int64_t i = 0; type == kDnnTypeDescriptor && i < count; ++i) {
    const Shared& other = Of(static_cast<const DnnDescriptor*>(values)[i]);
    if (!other->final) return kDnnBadParameter;
    attribute.descriptors.push_back(other);
  }
  content.attributes[name] = std::move(attribute);
  return kSuccess;
}
Result cudnnBackendFinalize(DnnDescriptor descriptor) {
  ENTER(cudnnBackendFinalize);
  Content& content = *Of(descriptor);
  if (content.final) return kDnnBadParameter;
  Result result = kSuccess;
  if (content.type == kDnnTensor) result = CheckTensor(content);
  if (content.type == kDnnGraph) result = CheckGraph(content);
  if (content.type == kDnnPlan) {
    const Shared config = content.Descriptor(kDnnPlanConfig);
    if (config == nullptr || content.Value<DnnHandle>(kDnnPlanHandle) == nullptr) return kDnnBadParameter;
    content.engine = config->engine;
  }
  content.final = result == kSuccess;
  return result;
}
Result cudnnBackendGetAttribute(DnnDescriptor descriptor, int name, int, int64_t asked, int64_t* given, void* values) {
  ENTER(cudnnBackendGetAttribute);
  Content& content = *Of(descriptor);
  const auto graph_of = [](const Content& c) { return c.Descriptor(kDnnHeuristicsGraph); };
  *given = 1;
  if (content.type == kDnnHeuristics && name == kDnnHeuristicsResults) {
    const std::vector<int> engines = EnginesOf(content);
    *given = static_cast<int64_t>(engines.size());
    for (int64_t i = 0; i < std::min<int64_t>(asked, *given); ++i) {
      Content& config = *Of(static_cast<DnnDescriptor*>(values)[i]);
      config.engine = engines[static_cast<size_t>(i)];
      config.attributes[kDnnHeuristicsGraph] = content.attributes.at(kDnnHeuristicsGraph);
      config.final = true;
    }
  } else if (content.type == kDnnEngineConfig && name == kDnnConfigEngine) {
    Content& engine = *Of(*static_cast<DnnDescriptor*>(values));
    engine.engine = content.engine;
    engine.attributes[kDnnHeuristicsGraph] = content.attributes.at(kDnnHeuristicsGraph);
    engine.final = true;
  } else if (content.type == kDnnEngineConfig && name == kDnnConfigKnobs) {
    // Engine 4 has two knobs, given with the higher number first.
    // The library does not say how many there are when it is asked for none.
    *given = content.engine == 4 && asked > 0 ? 2 : 0;
    for (int64_t i = 0; i < std::min<int64_t>(asked, *given); ++i) {
      Content& knob = *Of(static_cast<DnnDescriptor*>(values)[i]);
      knob.engine = static_cast<int>(14 - 12 * i);
      knob.final = true;
    }
  } else if (content.type == kDnnKnobChoice && name == kDnnKnobType) {
    *static_cast<int*>(values) = content.engine;
  } else if (content.type == kDnnKnobChoice && name == kDnnKnobValue) {
    *static_cast<int64_t*>(values) = content.engine * 10;
  } else if (content.type == kDnnEngine && name == kDnnEngineNotes) {
    const std::vector<int> notes = NotesOf(content.engine, IsFloat32(*graph_of(content)));
    *given = static_cast<int64_t>(notes.size());
    std::copy_n(notes.begin(), std::min<int64_t>(asked, *given), static_cast<int*>(values));
  } else if (content.type == kDnnEngine && name == kDnnEngineNumber) {
    *static_cast<int64_t*>(values) = content.engine;
  } else if (content.type == kDnnPlan && name == kDnnPlanWorkspace) {
    *static_cast<int64_t*>(values) = WorkspaceOf(*graph_of(*content.Descriptor(kDnnPlanConfig)), content.engine);
  } else {
    return kDnnBadParameter;
  }
  return kSuccess;
}
Result cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack) {
  ENTER(cudnnBackendExecute);
  if (handle == nullptr || handle->stream == nullptr || !Of(plan)->final || !Of(pack)->final) return kDnnBadParameter;
  std::map<int64_t, void*> memory;
  std::map<int64_t, float> numbers;
  void* workspace = nullptr;
  const Result bound = Bind(*Of(plan), *Of(pack), &memory, &numbers, &workspace);
  if (bound != kSuccess) return bound;
  const Shared graph = Of(plan)->Descriptor(kDnnPlanConfig)->Descriptor(kDnnHeuristicsGraph);
  const int engine = Of(plan)->engine;
  return EnqueueKernel(handle->stream, [=] {
    std::memset(workspace, 0x5a, static_cast<size_t>(WorkspaceOf(*graph, engine)));
    Run(graph, engine, memory, numbers)();
    return kSuccess;
  });
}

}  // extern "C"
}  // namespace mslua::cuda
