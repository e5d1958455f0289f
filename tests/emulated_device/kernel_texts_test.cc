// The text of every operator's kernels goes through NVRTC for each architecture, where the toolkit is: it compiles, and
// nothing is spilled from registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/libraries.h"
#include "core/graph/builder.h"
#include "core/op/device_text.h"
#include "core/op/formula.h"
#include "core/op/registry.h"
#include "core/passes/passes.h"
#include "core/runtime/device_layout.h"
#include "tests/emulated_device/device_calls.h"

namespace mslua {
namespace {

// As --config=cuda sets it: the toolkit must be there, and all kernels are compiled.
bool Required() {
  const char* const required = std::getenv("MSLUA_REQUIRE_CUDA");
  return required != nullptr && std::string(required) == "1";
}

// Kernels as text alone: one function each.
struct Texts {
  std::set<std::string> bodies;
  std::vector<std::string> functions;
  int Add(const std::string& body, int pointers) {
    const int number = static_cast<int>(functions.size());
    if (bodies.insert(body).second)
      functions.push_back(absl::StrCat("MSLUA_KERNEL(mslua_", number, ", ", pointers, ") {\n", body, "}\n"));
    return number;
  }
};

struct Compiled {
  bool ok = false;
  std::string log;
  int most_registers = 0, kernels = 0;
  std::vector<int> spilled;  // numbers of kernels
};

Compiled Compile(const cuda::Nvrtc& call, const std::string& text, const std::string& architecture) {
  Compiled out;
  cuda::Program program = nullptr;
  if (call.nvrtcCreateProgram(&program, text.c_str(), "mslua.cu", 0, nullptr, nullptr) != 0) return out;
  const std::string target = absl::StrCat("--gpu-architecture=", architecture);
  const char* const options[] = {target.c_str(), "--std=c++17", "--ftz=true", "--ptxas-options=-v"};
  out.ok = call.nvrtcCompileProgram(program, 4, options) == 0;
  size_t bytes = 0;
  call.nvrtcGetProgramLogSize(program, &bytes);
  out.log.resize(bytes);
  call.nvrtcGetProgramLog(program, out.log.data());
  call.nvrtcDestroyProgram(&program);
  const std::regex line("entry function 'mslua_([0-9]+)'|Used ([0-9]+) registers|([1-9][0-9]*) bytes spill stores");
  int now = 0;
  for (std::sregex_iterator at(out.log.begin(), out.log.end(), line), end; at != end; ++at) {
    if ((*at)[1].matched) now = std::stoi((*at)[1]);
    if ((*at)[3].matched) out.spilled.push_back(now);
    if (!(*at)[2].matched) continue;
    ++out.kernels;
    out.most_registers = std::max(out.most_registers, std::stoi((*at)[2]));
  }
  return out;
}

// The kernels that make all updates of a rule: of every optimizer's elementwise rules.
int AddUpdates(Texts* texts) {
  int rules = 0;
  for (const OpDef& op : Operators().all()) {
    for (const Sample& sample : op.samples) {
      if (!absl::StartsWith(op.name, "apply_")) break;
      for (const DType type : {DType::kF32, DType::kBF16}) {
        GraphBuilder g;
        std::vector<Value> in;
        for (size_t i = 0; i < sample.inputs.size(); ++i) {
          TensorType t = sample.inputs[i];
          if (i < 2 && !t.shape.empty()) t.dtype = type;
          in.push_back(g.Input(absl::StrCat("x", i), i == 0 ? kParameter : kState, t));
        }
        for (Value v : g.OpMulti(op.name, in, sample.attrs)) g.Output("next", v);
        const auto graph = g.Finish();
        if (!graph.ok()) continue;  // a gradient in another type than it may have
        const Graph fused = FuseForDevice(EliminateDeadNodes(Simplify(*graph)));
        for (int32_t i = 0; i < static_cast<int32_t>(fused.nodes.size()); ++i) {
          const Node& n = fused.nodes[i];
          if (n.op->name != "fused" || n.outputs[0].shape != sample.inputs[0].shape) continue;
          std::vector<TensorType> inputs;
          const OpSpec spec = SpecOf(fused, i, &inputs);
          const auto fits = [&](const TensorType& t) { return t.shape == n.outputs[0].shape || t.elements() == 1; };
          if (!std::all_of(inputs.begin(), inputs.end(), fits)) continue;
          texts->Add(DeviceMapOfPieces(*ParseScalarProgram(n.attrs.Str("program")), spec.inputs, spec.outputs), 2);
          ++rules;
        }
      }
    }
  }
  return rules;
}

TEST(KernelTexts, CompileForEveryArchitecture) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) {
    ASSERT_FALSE(Required()) << nvrtc.status().message();
    GTEST_SKIP() << nvrtc.status().message();
  }
  std::set<std::string> missing;
  int operators = 0;
  std::vector<testing::DeviceCall> calls = testing::AllDeviceCalls(&missing, &operators);
  // Of every operator the first sample in each type; all samples where they have different texts.
  const std::set<std::string> all = {"fused_rows", "matmul_bias", "matmul_bias_add"};
  std::set<std::pair<std::string, DType>> seen;
  std::vector<testing::DeviceCall> first;
  for (testing::DeviceCall& c : calls) {
    const DType type = c.call.inputs.empty() ? c.call.outputs[0].dtype : c.call.inputs[0].dtype;
    if (all.count(c.call.op->name) > 0 || seen.emplace(c.call.op->name, type).second) first.push_back(std::move(c));
  }
  Texts texts;
  const Status added = testing::AddKernels(&first, &texts);
  ASSERT_TRUE(added.ok()) << added;
  const int updates = AddUpdates(&texts);
  EXPECT_GE(updates, 29);
  // Every so many: compiling takes some 40 ms each.
  const size_t stride = Required() ? 1 : 16;
  std::printf("%d operators, %zu calls in each type, %d updates, %zu kernels, every %zu compiled\n", operators,
              first.size(), updates, texts.functions.size(), stride);
  for (const std::string architecture : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
    // The oldest and the newest, or all.
    if (!Required() && architecture != "sm_80" && architecture != "sm_120") continue;
    std::string program = DevicePrelude();
    for (size_t i = 0; i < texts.functions.size(); i += stride) program += texts.functions[i];
    const Compiled compiled = Compile((*nvrtc)->call, program, architecture);
    ASSERT_TRUE(compiled.ok) << architecture << ": " << compiled.log;
    for (const int number : compiled.spilled)
      ADD_FAILURE() << architecture << ": spills: " << texts.functions[static_cast<size_t>(number)];
    EXPECT_LE(compiled.most_registers, 64) << architecture;
    std::printf("%s: %d kernels, %d with spills, at most %d registers\n", architecture.c_str(), compiled.kernels,
                static_cast<int>(compiled.spilled.size()), compiled.most_registers);
  }
}

}  // namespace
}  // namespace mslua
