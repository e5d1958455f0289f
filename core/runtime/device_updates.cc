// The text of the kernel that makes all updates of a rule.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/op/device_scalars.h"
#include "core/op/device_text.h"
#include "core/op/elementwise.h"
#include "core/runtime/device_layout.h"

namespace mslua {
namespace {

constexpr int64_t kThreads = 256;

std::string PackOf(DType type, int64_t width) { return absl::StrCat("Pack<", DeviceType(type), ", ", width, ">"); }

}  // namespace

std::string DeviceMapOfPieces(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                              absl::Span<const TensorType> outputs) {
  const auto dense = [&](size_t i) { return inputs[i].shape == outputs[0].shape; };
  // A thread has 16 bytes of the widest operand at a time, or fewer where registers would not hold those of all.
  constexpr int64_t kMostHeld = 24;
  std::vector<TensorView> in, out;
  int64_t widest = 1, tensors = static_cast<int64_t>(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back({inputs[i], nullptr});
    if (!dense(i)) continue;
    ++tensors;
    widest = std::max(widest, SizeOf(inputs[i].dtype));
  }
  for (const TensorType& t : outputs) {
    out.push_back({t, nullptr});
    widest = std::max(widest, SizeOf(t.dtype));
  }
  const char* const compute = DeviceComputeType(ElementwiseComputeType(in, out));
  int64_t width = 16 / widest;
  while (width > 1 && width * tensors * std::max<int64_t>(1, widest / 4) > kMostHeld) width /= 2;
  std::string text = absl::StrCat(
      "  typedef ", compute, " C;\n  struct Piece { i64 count; char* at[", inputs.size() + outputs.size(),
      "]; };\n  struct Part { u32 piece, number; };\n  const Part part = ((const Part*)p.at[1])[blockIdx.x];\n",
      "  const Piece& piece = ((const Piece*)p.at[0])[part.piece];\n");
  const auto pointer = [](const char* type, size_t at) { return absl::StrCat("((", type, "*)piece.at[", at, "])"); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char* const type = DeviceType(inputs[i].dtype);
    if (!dense(i)) absl::StrAppend(&text, "  const ", type, " number", i, " = ", pointer(type, i), "[0];\n");
  }
  absl::StrAppend(&text, "  const i64 begin = (i64)part.number * ", kDevicePart, ";\n  const i64 end = begin + ",
                  kDevicePart, " < piece.count ? begin + ", kDevicePart, " : piece.count;\n",
                  "  for (i64 i = begin + threadIdx.x * ", width, "; i < end; i += ", kThreads * width,
                  ") {\n    const int left = end - i < ", width, " ? (int)(end - i) : ", width, ";\n");
  // Pointers are read where they are used: all of them at once would need more registers than there are.
  const auto declare = [&](char name, size_t i, const char* type, size_t at) {
    absl::StrAppend(&text, "    ", type, "* const ", std::string(1, name), i, " = ", pointer(type, at), ";\n");
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (dense(i)) declare('x', i, DeviceType(inputs[i].dtype), i);
  }
  // The last elements of a piece may be fewer.
  std::string whole, some;
  std::vector<std::string> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(dense(i) ? absl::StrCat("Get(a", i, ".v[k])") : absl::StrCat("Get(number", i, ")"));
    if (!dense(i)) continue;
    const std::string pack = PackOf(inputs[i].dtype, width);
    absl::StrAppend(&text, "    ", pack, " a", i, ";\n");
    absl::StrAppend(&whole, "      a", i, " = *(const ", pack, "*)(x", i, " + i);\n");
    absl::StrAppend(&some, "        a", i, ".v[k] = x", i, "[i + k];\n");
  }
  const std::string each = absl::StrCat("#pragma unroll\n      for (int k = 0; k < ", width, "; ++k) {\n");
  const std::string where = "        if (k >= left) continue;\n";
  absl::StrAppend(&text, "    if (left == ", width, ") {\n", whole, "    } else {\n", each, where, some,
                  "      }\n    }\n");
  whole.clear();
  some.clear();
  for (size_t o = 0; o < outputs.size(); ++o) {
    const std::string pack = PackOf(outputs[o].dtype, width);
    absl::StrAppend(&text, "    ", pack, " b", o, ";\n");
    absl::StrAppend(&whole, "      *(", pack, "*)(y", o, " + i) = b", o, ";\n");
    absl::StrAppend(&some, "        y", o, "[i + k] = b", o, ".v[k];\n");
  }
  absl::StrAppend(&text, each, where, DeviceScalars(program, operands));
  for (size_t o = 0; o < outputs.size(); ++o)
    absl::StrAppend(&text, "    Set(b", o, ".v[k], v", program.results[o], ");\n");
  text += "      }\n";
  for (size_t o = 0; o < outputs.size(); ++o) declare('y', o, DeviceType(outputs[o].dtype), inputs.size() + o);
  absl::StrAppend(&text, "    if (left == ", width, ") {\n", whole, "    } else {\n", each, where, some,
                  "      }\n    }\n  }\n");
  return text;
}

}  // namespace mslua
