// The text of every operator's kernels goes through NVRTC for each architecture, where the toolkit is: it compiles, and
// nothing is spilled from registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/device/libraries.h"
#include "core/op/device_text.h"
#include "tests/emulated_device/device_calls.h"

namespace mslua {
namespace {

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
  int most_registers = 0, kernels = 0, spills = 0;
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
  const std::regex registers("Used ([0-9]+) registers"), spills("([1-9][0-9]*) bytes spill");
  for (std::sregex_iterator at(out.log.begin(), out.log.end(), registers), end; at != end; ++at) {
    ++out.kernels;
    out.most_registers = std::max(out.most_registers, std::stoi((*at)[1]));
  }
  for (std::sregex_iterator at(out.log.begin(), out.log.end(), spills), end; at != end; ++at) ++out.spills;
  return out;
}

TEST(KernelTexts, CompileForEveryArchitecture) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
  std::set<std::string> missing;
  int operators = 0;
  std::vector<testing::DeviceCall> calls = testing::AllDeviceCalls(&missing, &operators);
  // Of every operator the first sample in each type.
  std::set<std::pair<std::string, DType>> seen;
  std::vector<testing::DeviceCall> first;
  for (testing::DeviceCall& c : calls) {
    const DType type = c.call.inputs.empty() ? c.call.outputs[0].dtype : c.call.inputs[0].dtype;
    if (seen.emplace(c.call.op->name, type).second) first.push_back(std::move(c));
  }
  Texts texts;
  const Status added = testing::AddKernels(&first, &texts);
  ASSERT_TRUE(added.ok()) << added;
  for (const char* architecture : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
    // All of them for one architecture, every eighth for the others.
    const size_t stride = std::string(architecture) == "sm_90" ? 1 : 8;
    int kernels = 0, spills = 0, most = 0;
    std::string program = DevicePrelude();
    for (size_t i = 0; i < texts.functions.size(); i += stride) program += texts.functions[i];
    const Compiled compiled = Compile((*nvrtc)->call, program, architecture);
    ASSERT_TRUE(compiled.ok) << architecture << ": " << compiled.log;
    kernels += compiled.kernels;
    spills += compiled.spills;
    most = std::max(most, compiled.most_registers);
    EXPECT_EQ(spills, 0) << architecture << ": " << compiled.log;
    std::printf("%s: %d kernels, %d spills, at most %d registers\n", architecture, kernels, spills, most);
  }
}

}  // namespace
}  // namespace mslua
