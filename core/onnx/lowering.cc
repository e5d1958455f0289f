#include "core/onnx/lowering.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype.h"

namespace mslua::onnx {
namespace {

std::map<std::string, Form>& Table() {
  static auto* const table = new std::map<std::string, Form>;
  return *table;
}

bool ChannelsLast(const Lowering& c) { return c.attrs().Has("data_format") && c.attrs().Str("data_format") == "NHWC"; }

}  // namespace

bool RegisterForm(const char* op, Form form) { return Table().emplace(op, form).second; }
const std::map<std::string, Form>& Forms() { return Table(); }

std::string Lowering::In(size_t i) const {
  const Value v = graph_.nodes[node_].inputs[i];
  return names_[v.node][v.output];
}

std::vector<std::string> Lowering::AllInputs() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < inputs(); ++i) all.push_back(In(i));
  return all;
}

Dim Lowering::Solve(int64_t first, int64_t second, const std::string& what) {
  if (first == second) return {first, 0};
  const int64_t rows = (second - first) / (rows_[1] - rows_[0]);
  if (rows * (rows_[1] - rows_[0]) != second - first) {
    Fail(absl::StrCat(what, " is ", first, " for a batch of ", rows_[0], " and ", second, " for a batch of ", rows_[1],
                      ", which is no multiple of the batch and a constant"));
  }
  if (first < rows * rows_[0])
    Fail(absl::StrCat(what, " is ", first, " for a batch of ", rows_[0], " and ", second, " for a batch of ", rows_[1],
                      ": it does not grow as the batch does"));
  return {first - rows * rows_[0], rows};
}

std::vector<Dim> Lowering::DimsOut(size_t i, const std::vector<std::string>& said_by) {
  said_.insert(said_.end(), said_by.begin(), said_by.end());
  const mslua::Shape& first = TypeOut(i).shape;
  const mslua::Shape& second = other_.nodes[node_].outputs[i].shape;
  std::vector<Dim> dims;
  for (size_t d = 0; d < first.size(); ++d)
    dims.push_back(Solve(first[d], second[d], absl::StrCat("dimension ", d + 1, " of its result")));
  return dims;
}

std::vector<Dim> Lowering::DimsOf(const std::string& attr) {
  said_.push_back(attr);
  const std::vector<int64_t>&first = attrs().Ints(attr), &second = other_.nodes[node_].attrs.Ints(attr);
  std::vector<Dim> dims;
  for (size_t d = 0; d < first.size() && d < second.size(); ++d) dims.push_back(Solve(first[d], second[d], attr));
  if (first.size() != second.size()) Fail(absl::StrCat(attr, " depends on the batch"));
  return dims;
}

bool Lowering::OtherFollows(const std::string& attr) {
  said_.push_back(attr);
  const std::string &first = attrs().Str(attr), &second = other_.nodes[node_].attrs.Str(attr);
  const size_t n = std::min(first.size(), second.size());
  return first.compare(0, n, second, 0, n) == 0;
}

std::string Lowering::NumberOfBatch(const std::string& attr, DType dtype) {
  const std::string* const bytes[] = {&attrs().Str(attr), &other_.nodes[node_].attrs.Str(attr)};
  for (const std::string* one : bytes) {
    if (one->size() != static_cast<size_t>(SizeOf(dtype))) return "";
  }
  const double v[] = {LoadAsDouble(dtype, bytes[0]->data(), 0), LoadAsDouble(dtype, bytes[1]->data(), 0)};
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); };
  if (v[0] == 0 || !std::isfinite(v[0]) || !std::isfinite(v[1])) return "";
  const auto rows = [&] { return Cast(batch_(), dtype); };
  if (near(v[0] * static_cast<double>(rows_[1]), v[1] * static_cast<double>(rows_[0])))
    return Op("Mul", {rows(), Number(v[0] / static_cast<double>(rows_[0]), dtype)});
  if (IsFloat(dtype) && near(v[0] * static_cast<double>(rows_[0]), v[1] * static_cast<double>(rows_[1])))
    return Op("Div", {Number(v[0] * static_cast<double>(rows_[0]), dtype), rows()});
  return "";
}

std::vector<std::string> Lowering::OpMulti(const std::string& op, std::vector<std::string> inputs, size_t outputs,
                                           NamedAttrs attrs) {
  OnnxNode node{op, absl::StrCat("_n", model_.nodes.size()), std::move(inputs), {}, std::move(attrs)};
  const auto& at = graph_.nodes[node_].location;
  if (at != nullptr && !at->scope.empty()) node.name = absl::StrCat(at->scope, "/", node.name);
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(absl::StrCat("_v", model_.nodes.size(), "_", i));
  model_.nodes.push_back(node);
  return node.outputs;
}

std::string Lowering::Op(const std::string& op, std::vector<std::string> inputs, NamedAttrs attrs) {
  return OpMulti(op, std::move(inputs), 1, std::move(attrs))[0];
}

std::string Lowering::Tensor(const TensorType& type, std::string bytes) {
  for (const Initializer& known : model_.initializers) {
    if (known.data == nullptr && known.type == type && known.bytes == bytes) return known.name;
  }
  model_.initializers.push_back({absl::StrCat("_c", model_.initializers.size()), type, std::move(bytes)});
  return model_.initializers.back().name;
}

std::string Lowering::Ints(const std::vector<int64_t>& values) {
  return Tensor({DType::kI64, {static_cast<int64_t>(values.size())}},
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
}

std::string Lowering::Number(double value, DType dtype) {
  std::string bytes(static_cast<size_t>(SizeOf(dtype)), '\0');
  DispatchDType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T number = static_cast<T>(static_cast<ComputeType<T>>(value));
    std::memcpy(bytes.data(), &number, sizeof number);
  });
  return Tensor({dtype, {}}, std::move(bytes));
}

std::string Lowering::Shape(const std::vector<Dim>& dims) {
  std::vector<std::string> parts;
  std::vector<int64_t> known;
  const auto flush = [&] {
    if (!known.empty()) parts.push_back(Ints(known));
    known.clear();
  };
  for (const Dim& d : dims) {
    if (d.rows == 0) {
      known.push_back(d.fixed);
      continue;
    }
    flush();
    std::string size = batch_();
    if (d.rows != 1) size = Op("Mul", {size, Ints({d.rows})});
    if (d.fixed != 0) size = Op("Add", {size, Ints({d.fixed})});
    parts.push_back(size);
  }
  if (parts.empty() || !known.empty()) parts.push_back(Ints(known));
  return parts.size() == 1 ? parts[0] : Op("Concat", parts, {{"axis", int64_t{0}}});
}

std::string Lowering::Cast(const std::string& x, DType dtype) {
  return Op("Cast", {x}, {{"to", int64_t{ElementType(dtype)}}});
}

std::string Lowering::Transpose(const std::string& x, const std::vector<int64_t>& perm) {
  return Op("Transpose", {x}, {{"perm", perm}});
}

std::string Lowering::Reshape(const std::string& x, const std::vector<Dim>& dims) {
  std::vector<int64_t> sizes;
  int open = 0;
  bool empty = false;
  for (const Dim& d : dims) {
    open += d.rows != 0 ? 1 : 0;
    empty = empty || (d.rows == 0 && d.fixed == 0);
    sizes.push_back(d.rows != 0 ? -1 : d.fixed);
  }
  // One open dimension follows from the others.
  const bool known = open <= 1 && !empty;
  return Op("Reshape", {x, known ? Ints(sizes) : Shape(dims)},
            empty ? NamedAttrs{{"allowzero", int64_t{1}}} : NamedAttrs{});
}

void Lowering::Result(const std::string& name, size_t i) { names_[node_][i] = name; }

void Lowering::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(what);
}

Status Lowering::Finish() {
  RETURN_IF_ERROR(status_);
  for (const auto& [name, value] : attrs().items()) {
    if (name[0] == '_' || std::count(said_.begin(), said_.end(), name) > 0) continue;
    const AttrValue* other = other_.nodes[node_].attrs.Find(name);
    if (other == nullptr || !(*other == value))
      return absl::InvalidArgumentError(absl::StrCat("its ", name, " depends on the batch"));
  }
  return absl::OkStatus();
}

std::string ToChannelsFirst(Lowering& c, const std::string& x) {
  return ChannelsLast(c) ? c.Transpose(x, {0, 3, 1, 2}) : x;
}
std::string FromChannelsFirst(Lowering& c, const std::string& x) {
  return ChannelsLast(c) ? c.Transpose(x, {0, 2, 3, 1}) : x;
}

void LowerImageProducts(Lowering& c, std::vector<float> left, std::vector<float> right) {
  const TensorType& x = c.TypeIn();
  const int64_t height = x.shape[ChannelsLast(c) ? 1 : 2], width = x.shape[ChannelsLast(c) ? 2 : 3];
  const auto matrix = [&](const std::vector<float>& m, Shape shape) {
    return c.Tensor({DType::kF32, std::move(shape)},
                    std::string(reinterpret_cast<const char*>(m.data()), m.size() * sizeof(float)));
  };
  const std::string l = matrix(left, {static_cast<int64_t>(left.size()) / height, height});
  const std::string r = matrix(right, {width, static_cast<int64_t>(right.size()) / width});
  std::string v = ToChannelsFirst(c, x.dtype == DType::kF32 ? c.In(0) : c.Cast(c.In(0), DType::kF32));
  v = FromChannelsFirst(c, c.Op("MatMul", {c.Op("MatMul", {l, v}), r}));
  c.Result(x.dtype == DType::kF32 ? v : c.Cast(v, x.dtype));
}

void LowerReduction(Lowering& c, const std::string& op) {
  std::vector<int64_t> axes = c.attrs().Ints("axis");
  if (axes.empty()) {
    for (int64_t i = 0; i < c.TypeIn().rank(); ++i) axes.push_back(i);
  }
  const int64_t keep = c.attrs().Bool("keep_dims") ? 1 : 0;
  if (axes.empty()) return c.Result(c.Op("Identity", {c.In(0)}));
  // 16-bit floats are added in f32.
  const DType type = c.TypeIn().dtype;
  const bool wide = IsFloat(type) && SizeOf(type) == 2;
  const std::string x = wide ? c.Cast(c.In(0), DType::kF32) : c.In(0);
  // Axes are an input of ReduceSum alone, up to opset 17.
  const std::string y = op == "ReduceSum" ? c.Op(op, {x, c.Ints(axes)}, {{"keepdims", keep}})
                                          : c.Op(op, {x}, {{"axes", axes}, {"keepdims", keep}});
  c.Result(wide ? c.Cast(y, type) : y);
}

}  // namespace mslua::onnx
