// An ONNX model while it is made: nodes, initializers, inputs and outputs by name (onnx.ai/onnx/repo-docs/IR.html).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua::onnx {

inline constexpr int kOpset = 17;

// TensorProto.DataType.
int ElementType(DType dtype);

// A dimension: `rows` times the rows of a batch, and `fixed` more.
struct Dim {
  int64_t fixed = 0, rows = 0;
  bool operator==(const Dim& o) const { return fixed == o.fixed && rows == o.rows; }
};

using Attr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<std::string>>;
using NamedAttrs = std::vector<std::pair<std::string, Attr>>;

struct OnnxNode {
  std::string op, name;
  std::vector<std::string> inputs, outputs;
  NamedAttrs attrs;
};

// A tensor of the file. Its bytes come from `bytes`, or else from memory that outlives the model.
struct Initializer {
  std::string name;
  TensorType type;
  std::string bytes = {};
  const void* data = nullptr;
  absl::string_view contents() const {
    return data == nullptr ? absl::string_view(bytes)
                           : absl::string_view(static_cast<const char*>(data), static_cast<size_t>(type.bytes()));
  }
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Dim> shape;
};

struct Model {
  std::string name, producer_version;
  std::vector<OnnxNode> nodes;
  std::vector<Initializer> initializers;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Writes the model to `path`. Where the file would be larger than `limit` bytes, the tensors lie in `path`.data beside
// it (external data): a message of protocol buffers has less than 2 GiB.
Status WriteModel(const Model& model, const std::string& path, int64_t limit = (int64_t{1} << 31) - (1 << 20));

}  // namespace mslua::onnx
