#include "core/onnx/model.h"

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/onnx/proto.h"

namespace mslua::onnx {
namespace {

constexpr int64_t kAlignment = 4096;  // of tensors in the file of external data
constexpr int kIrVersion = 8;

ProtoMessage AttributeOf(const std::string& name, const Attr& value) {
  enum { kFloat = 1, kInt = 2, kString = 3, kInts = 7, kStrings = 8 };
  ProtoMessage m;
  m.Bytes(1, name);
  if (const auto* f = std::get_if<float>(&value)) {
    m.Float(2, *f).Int(20, kFloat);
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    m.Int(3, *i).Int(20, kInt);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    m.Bytes(4, *s).Int(20, kString);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t n : *ints) m.Int(8, n);
    m.Int(20, kInts);
  } else {
    for (const std::string& text : std::get<std::vector<std::string>>(value)) m.Bytes(9, text);
    m.Int(20, kStrings);
  }
  return m;
}

ProtoMessage NodeOf(const OnnxNode& node) {
  ProtoMessage m;
  for (const std::string& input : node.inputs) m.Bytes(1, input);
  for (const std::string& output : node.outputs) m.Bytes(2, output);
  m.Bytes(3, node.name).Bytes(4, node.op);
  for (const auto& [name, value] : node.attrs) m.Message(5, AttributeOf(name, value));
  return m;
}

std::string DimText(const Dim& d) {
  std::string text = d.rows == 1 ? "batch" : absl::StrCat(d.rows, "*batch");
  if (d.fixed != 0) absl::StrAppend(&text, d.fixed > 0 ? "+" : "", d.fixed);
  return text;
}

ProtoMessage InfoOf(const ValueInfo& info) {
  ProtoMessage shape;
  for (const Dim& d : info.shape) {
    ProtoMessage dim;
    if (d.rows == 0)
      dim.Int(1, d.fixed);
    else
      dim.Bytes(2, DimText(d));
    shape.Message(1, dim);
  }
  ProtoMessage tensor, type, m;
  tensor.Int(1, ElementType(info.dtype)).Message(2, shape);
  type.Message(1, tensor);
  m.Bytes(1, info.name).Message(2, type);
  return m;
}

// A tensor with its bytes, or with their place in a file.
ProtoMessage TensorOf(const Initializer& t, const std::string& file, int64_t offset) {
  ProtoMessage m;
  for (const int64_t d : t.type.shape) m.Int(1, d);
  m.Int(2, ElementType(t.type.dtype)).Bytes(8, t.name);
  if (file.empty()) {
    m.Bytes(9, t.contents());
    return m;
  }
  const auto entry = [&](const char* key, const std::string& value) {
    ProtoMessage pair;
    pair.Bytes(1, key).Bytes(2, value);
    m.Message(13, pair);
  };
  entry("location", file);
  entry("offset", absl::StrCat(offset));
  entry("length", absl::StrCat(t.type.bytes()));
  m.Int(14, 1);
  return m;
}

// Writes the tensors one after another; gives where each begins.
StatusOr<std::vector<int64_t>> WriteTensors(const Model& model, AtomicFile& file) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const Initializer& t : model.initializers) {
    const std::string gap(static_cast<size_t>((kAlignment - at % kAlignment) % kAlignment), '\0');
    RETURN_IF_ERROR(file.Write(gap.data(), gap.size()));
    at += static_cast<int64_t>(gap.size());
    offsets.push_back(at);
    RETURN_IF_ERROR(file.Write(t.contents().data(), t.contents().size()));
    at += t.type.bytes();
  }
  return offsets;
}

// Everything but the initializers.
ProtoMessage GraphOf(const Model& model) {
  ProtoMessage graph;
  for (const OnnxNode& node : model.nodes) graph.Message(1, NodeOf(node));
  graph.Bytes(2, model.name);
  for (const ValueInfo& info : model.inputs) graph.Message(11, InfoOf(info));
  for (const ValueInfo& info : model.outputs) graph.Message(12, InfoOf(info));
  return graph;
}

}  // namespace

int ElementType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kU8:
      return 2;
    case DType::kI32:
      return 6;
    case DType::kI64:
      return 7;
    case DType::kBool:
      return 9;
    case DType::kF16:
      return 10;
    case DType::kF64:
      return 11;
    case DType::kBF16:
      return 16;
  }
  return 0;
}

Status WriteModel(const Model& model, const std::string& path, int64_t limit) {
  ProtoMessage graph = GraphOf(model);
  int64_t bytes = static_cast<int64_t>(graph.bytes().size());
  constexpr int64_t kHead = 64;  // of a tensor, beside its name
  for (const Initializer& t : model.initializers) bytes += t.type.bytes() + static_cast<int64_t>(t.name.size()) + kHead;
  const std::string beside = absl::StrCat(path, ".data");
  std::unique_ptr<AtomicFile> data;
  std::vector<int64_t> offsets(model.initializers.size());
  if (bytes > limit) {
    ASSIGN_OR_RETURN(data, AtomicFile::Create(beside));
    ASSIGN_OR_RETURN(offsets, WriteTensors(model, *data));
  }
  const std::string location = data == nullptr ? "" : beside.substr(beside.rfind('/') + 1);
  for (size_t i = 0; i < model.initializers.size(); ++i)
    graph.Message(5, TensorOf(model.initializers[i], location, offsets[i]));
  ProtoMessage m, opset;
  opset.Int(2, kOpset);
  m.Int(1, kIrVersion).Bytes(2, "mslua").Bytes(3, model.producer_version).Message(7, graph).Message(8, opset);
  for (const auto& [key, value] : model.metadata) {
    ProtoMessage pair;
    pair.Bytes(1, key).Bytes(2, value);
    m.Message(14, pair);
  }
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Write(m.bytes().data(), m.bytes().size()));
  if (data != nullptr) RETURN_IF_ERROR(data->Commit());
  return file->Commit();
}

}  // namespace mslua::onnx
