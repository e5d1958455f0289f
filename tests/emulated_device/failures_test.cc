// Every function of the driver and of the libraries fails at each of its calls in turn while a graph is prepared, runs
// three times and its results are read: one error each that names the function, nothing held afterwards.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/device.h"
#include "core/graph/builder.h"
#include "core/passes/decisions.h"
#include "core/runtime/device_run.h"
#include "core/runtime/executable.h"
#include "core/runtime/store_snapshot.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

#define NAME_OF(name, parameters) #name,
constexpr const char* kFunctions[] = {MSLUA_CUDA_DRIVER(NAME_OF) MSLUA_CUDA_NVRTC(NAME_OF) MSLUA_CUBLAS_LT(NAME_OF)
                                          MSLUA_CUDNN(NAME_OF)};
#undef NAME_OF

// What a failure of these leaves behind is theirs: they release things, or are called before something is released.
const std::set<std::string>& Releases() {
  static const auto* const names = new std::set<std::string>{"cuCtxSetCurrent",
                                                             "cuStreamSynchronize",
                                                             "cuMemFree_v2",
                                                             "cuMemFreeHost",
                                                             "cuStreamDestroy_v2",
                                                             "cuEventDestroy_v2",
                                                             "cuGraphExecDestroy",
                                                             "cuGraphDestroy",
                                                             "cuStreamEndCapture",
                                                             "cuModuleUnload",
                                                             "nvrtcDestroyProgram",
                                                             "cublasLtDestroy",
                                                             "cublasLtMatmulDescDestroy",
                                                             "cublasLtMatrixLayoutDestroy",
                                                             "cublasLtMatmulPreferenceDestroy",
                                                             "cudnnBackendDestroyDescriptor"};
  return *names;
}

constexpr int64_t kRows = 160;

// w moves against a part of itself, beside a loss of x w and a convolution.
Graph Step() {
  GraphBuilder g;
  // x is large enough to be copied ahead of its step.
  const Value x = g.Input("x", kData, {DType::kF32, {kRows, 8}}), w = g.Input("w", kParameter, {DType::kF32, {8, 8}}),
              labels = g.Input("labels", kData, {DType::kI32, {kRows}}), lr = g.Input("lr", kScalar, {DType::kF32, {}});
  const Value y = g.Op("matmul", {x, w}, {});
  const std::vector<Value> loss = g.OpMulti("sparse_softmax_cross_entropy", {y, labels}, {});
  const Value moved = Sub(g, w, Mul(g, w, lr));
  const Value image = Reshape(g, x, {kRows / 4, 4, 4, 2}), filter = Reshape(g, w, {8, 2, 2, 2});
  const Value convolved = g.Op("conv2d", {image, filter}, {{"data_format", "NHWC"}});
  Graph graph = g.graph();
  graph.outputs.push_back({"loss", loss[0], ""});
  graph.outputs.push_back({"convolved", convolved, ""});
  graph.outputs.push_back({"w", moved, "w"});
  return graph;
}

// `decisions`: of the run before, so that libraries are asked for what they chose.
Status RunAll(Device* device, Decisions* decisions) {
  RETURN_IF_ERROR(ListDevices().status());
  Store store;
  ASSIGN_OR_RETURN(const TensorView w, store.Add("w", kParameter, {DType::kF32, {8, 8}}));
  for (int i = 0; i < 64; ++i) w.as<float>()[i] = 1;
  CompileOptions options;
  options.device = device;
  options.decisions = decisions;
  ASSIGN_OR_RETURN(const auto executable, Executable::Compile(Step(), &store, options));
  const std::vector<float> x(kRows * 8, 0.5f);
  const std::vector<int32_t> labels(kRows, 2);
  RETURN_IF_ERROR(executable->BindInput("x", x.data()));
  RETURN_IF_ERROR(executable->BindInput("labels", labels.data()));
  RETURN_IF_ERROR(executable->SetScalar("lr", 0.5));
  DeviceRun* const run = DeviceRunOf(executable.get());
  // The convolution by cuDNN of the run that was finished last, in which w was this.
  const auto convolved = [&](float w_was) -> Status {
    const float value = executable->Output(1).as<float>()[0];
    return value == 4 * w_was ? absl::OkStatus() : absl::DataLossError("a wrong convolution");
  };
  // Two on their way, of which the second is captured, and one that is timed launch by launch.
  RETURN_IF_ERROR(run->Start());
  RETURN_IF_ERROR(run->Start());
  RETURN_IF_ERROR(run->Finish());
  RETURN_IF_ERROR(convolved(1));
  RETURN_IF_ERROR(run->Finish());
  RETURN_IF_ERROR(convolved(0.5f));
  std::vector<int64_t> timeline;
  executable->SetTimeline(&timeline);
  RETURN_IF_ERROR(executable->Run());
  executable->SetTimeline(nullptr);
  RETURN_IF_ERROR(convolved(0.25f));
  // A snapshot that is read when another step has run.
  RETURN_IF_ERROR(SnapshotsOf(store)->Reserve({store.Find("w")}).status());
  ASSIGN_OR_RETURN(const auto snapshot, SnapshotsOf(store)->Take());
  RETURN_IF_ERROR(executable->Run());
  float then[64] = {};
  RETURN_IF_ERROR(snapshot->Read(0, then));
  if (then[63] != 0.125f) return absl::DataLossError("a wrong snapshot");
  RETURN_IF_ERROR(store.Read(*store.Find("w")).status());
  if (w.as<float>()[0] != 0.0625f) return absl::DataLossError("a wrong result");
  RETURN_IF_ERROR(device->FreeBytes().status());
  return absl::OkStatus();
}

TEST(DeviceFailures, AreErrorsThatNameTheFunction) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto emulation = testing::FindEmulation();
  ASSERT_TRUE(emulation.ok()) << emulation.status();
  emulation->fail("", 0);
  Decisions decisions;
  const Status undisturbed = RunAll(*device, &decisions);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed;
  int pairs = 0, called = 0, checked = 0;
  for (const char* name : kFunctions) {
    for (int call = 1;; ++call) {
      // Kernels that are kept would not be compiled again.
      const std::string kept = absl::StrCat(std::getenv("TEST_TMPDIR"), "/kept/", name, call);
      setenv("XDG_CACHE_HOME", absl::StartsWith(name, "nvrtc") ? kept.c_str() : std::getenv("TEST_TMPDIR"), 1);
      const int before = emulation->held();
      emulation->fail(name, call);
      // What is recorded takes the place of cuBLASLt's heuristics, which other functions are asked without.
      const bool checks = std::string(name) == "cublasLtMatmulAlgoCheck";
      Decisions again = checks || absl::StartsWith(name, "cudnn") ? decisions : Decisions();
      const Status status = RunAll(*device, &again);
      const bool failed = emulation->failed();
      emulation->fail("", 0);
      if (!failed) {
        called += call > 1 ? 1 : 0;
        break;
      }
      ++pairs;
      if (checks) {  // a refusal: the library's first choice is taken
        ++checked;
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      if (Releases().count(name) > 0) continue;  // nobody is told, or there is nothing to release it with
      EXPECT_FALSE(status.ok()) << name << ", call " << call;
      EXPECT_TRUE(absl::StrContains(status.message(), name)) << name << ", call " << call << ": " << status;
      EXPECT_EQ(emulation->held(), before) << name << ", call " << call;
    }
  }
  std::printf("%d pairs of function and call, of %d functions\n", pairs, called);
  EXPECT_GT(pairs, 100);
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace mslua
