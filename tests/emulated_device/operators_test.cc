// Every operator on the emulated device: each sample in each element type that the operator allows, and on larger
// tensors, against the reference in f64: by its text, and by a library's kernel where there is one.
// MSLUA_TEST_EVERY=N: every N-th call alone, for sanitizers. MSLUA_TEST_ONLY=TEXT: calls whose names have this text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/device/device.h"
#include "core/device/kernel_set.h"
#include "core/op/device_text.h"
#include "tests/emulated_device/device_calls.h"
#include "tests/emulated_device/library_calls.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

using testing::DeviceCall;
using testing::Memory;

StatusOr<std::vector<Memory>> RunOn(Device* device, DeviceStream& stream, const KernelSet& kernels,
                                    const DeviceCall& c) {
  std::vector<DeviceMemory> memory;
  std::vector<void*> pointers;
  const auto add = [&](int64_t bytes) -> Status {
    ASSIGN_OR_RETURN(DeviceMemory m, device->Allocate(bytes));
    pointers.push_back(m.data());
    memory.push_back(std::move(m));
    return absl::OkStatus();
  };
  for (const Memory& m : c.inputs) {
    RETURN_IF_ERROR(add(m.type().bytes()));
    RETURN_IF_ERROR(stream.CopyIn(pointers.back(), m.data(), m.type().bytes()));
  }
  for (const TensorType& t : c.call.outputs) RETURN_IF_ERROR(add(t.bytes()));
  RETURN_IF_ERROR(add(c.program.scratch_bytes));
  RETURN_IF_ERROR(add(sizeof(DeviceFault)));
  RETURN_IF_ERROR(stream.Fill(pointers.back(), 0, sizeof(DeviceFault)));
  for (size_t s = 0; s < c.kernels.size(); ++s) {
    const DeviceStep& step = c.program.steps[s];
    RETURN_IF_ERROR(stream.Launch(kernels.function(c.kernels[s]), step.blocks, step.threads, pointers));
  }
  std::vector<Memory> outputs;
  for (size_t o = 0; o < c.call.outputs.size(); ++o) {
    outputs.emplace_back(c.call.outputs[o]);
    RETURN_IF_ERROR(stream.CopyOut(outputs[o].data(), pointers[c.inputs.size() + o], c.call.outputs[o].bytes()));
  }
  DeviceFault fault;
  RETURN_IF_ERROR(stream.CopyOut(&fault, pointers.back(), sizeof fault));
  RETURN_IF_ERROR(stream.Wait());
  if (fault.set != 0)
    return c.call.op->device_fault ? c.call.op->device_fault(c.spec(), fault) : absl::InternalError("an unnamed fault");
  return outputs;
}

std::vector<DeviceCall> SomeOf(std::vector<DeviceCall> calls) {
  if (const char* const only = getenv("MSLUA_TEST_ONLY")) {
    const auto other = [only](const DeviceCall& c) { return !absl::StrContains(c.name, only); };
    calls.erase(std::remove_if(calls.begin(), calls.end(), other), calls.end());
  }
  const char* const every = getenv("MSLUA_TEST_EVERY");
  int n = 1;
  if (every == nullptr || !absl::SimpleAtoi(every, &n) || n < 2) return calls;
  std::vector<DeviceCall> some;
  for (size_t i = 0; i < calls.size(); i += n) some.push_back(std::move(calls[i]));
  return some;
}

TEST(DeviceOperators, AreAsTheReference) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->MakeStream();
  ASSERT_TRUE(stream.ok());
  std::set<std::string> missing;
  int operators = 0;
  std::vector<DeviceCall> calls = testing::AllDeviceCalls(&missing, &operators);
  EXPECT_TRUE(missing.empty()) << "no kernel for a device: " << absl::StrJoin(missing, " ");
  calls = SomeOf(std::move(calls));
  KernelSet kernels(*device, DevicePrelude(), "", 64);  // most of g++'s time is the prelude's
  const Status added = testing::AddKernels(&calls, &kernels);
  ASSERT_TRUE(added.ok()) << added;
  const Status compiled = kernels.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled;
  // On the emulated device the threads of a block run in other orders too: the bits stay the same.
  testing::Emulation emulation = {};
  if (!testing::OnRealDevice()) {
    const auto found = testing::FindEmulation();
    ASSERT_TRUE(found.ok()) << found.status();
    emulation = *found;
  }
  const auto same_in = [&](const DeviceCall& c, const std::vector<Memory>& wanted, const char* order) {
    emulation.order(order, 5);
    const auto got = RunOn(*device, *stream, kernels, c);
    emulation.order("forward", 1);
    if (!got.ok()) return false;
    for (size_t o = 0; o < wanted.size(); ++o) {
      if (std::memcmp((*got)[o].data(), wanted[o].data(), static_cast<size_t>(wanted[o].type().bytes())) != 0)
        return false;
    }
    return true;
  };
  int failures = 0, reordered = 0;
  for (const DeviceCall& c : calls) {
    const auto got = RunOn(*device, *stream, kernels, c);
    for (const char* order : {"backward", "random"}) {
      if (!got.ok() || emulation.order == nullptr) break;
      const bool same = same_in(c, *got, order);
      EXPECT_TRUE(same) << c.name << ": other bits in the order " << order;
      reordered += same;
    }
    if (!got.ok()) {
      ADD_FAILURE() << c.name << ": " << got.status();
      ++failures;
      continue;
    }
    auto want = testing::Truth(c.call, c.inputs);
    const bool floats =
        std::all_of(c.call.outputs.begin(), c.call.outputs.end(), [](const TensorType& t) { return IsFloat(t.dtype); });
    if (!want.ok() || !floats) want = testing::RunReference(c.call, c.inputs);
    ASSERT_TRUE(want.ok()) << c.name << ": " << want.status();
    const Status near = testing::ExpectTruth(*got, *want);
    if (near.ok()) continue;
    ADD_FAILURE() << c.name << ": " << near;
    if (++failures > 60) break;
  }
  std::printf(
      "%d operators, %d without a kernel, %d calls, %d kernels, %d failures; %d runs in other orders of threads\n",
      operators, static_cast<int>(missing.size()), static_cast<int>(calls.size()), kernels.size(), failures, reordered);
}

TEST(DeviceOperators, ByLibrariesAreAsTheReference) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->MakeStream();
  ASSERT_TRUE(stream.ok());
  std::set<std::string> missing;
  int operators = 0, failures = 0;
  std::map<std::string, int> count;
  for (const DeviceCall& c : SomeOf(testing::AllDeviceCalls(&missing, &operators))) {
    const auto program = FindLibraryKernel(c.call.op->name, c.spec(), {});
    ASSERT_TRUE(program.ok()) << c.name << ": " << program.status();
    if (program->kernel == nullptr) continue;
    ++count[program->kernel->name()];
    const auto got = testing::RunLibraryProgram(*device, *stream, c.call, c.inputs, *program);
    const auto want = testing::Truth(c.call, c.inputs);
    ASSERT_TRUE(want.ok()) << c.name << ": " << want.status();
    const Status near = got.ok() ? testing::ExpectTruth(*got, *want) : got.status();
    EXPECT_TRUE(near.ok()) << c.name << ": " << near;
    failures += near.ok() ? 0 : 1;
  }
  for (const auto& [library, calls] : count) std::printf("%s: %d calls\n", library.c_str(), calls);
  std::printf("by libraries: %d failures\n", failures);
}

}  // namespace
}  // namespace mslua
