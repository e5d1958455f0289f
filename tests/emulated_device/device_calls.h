// The calls of all operators that tests of kernels make.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/op/device_text.h"
#include "core/ops/testing/op_checks.h"

namespace mslua::testing {

// A call of an operator with inputs, and its kernels on a device.
struct DeviceCall {
  std::string name;  // "add(f32[3,4], f32[3,4])"
  Call call;
  std::vector<Memory> inputs;
  DeviceProgram program;
  std::vector<int> kernels;  // numbers in a KernelSet

  OpSpec spec() const { return {call.attrs, call.inputs, call.outputs}; }
};

// The samples of every operator that is launched, in every element type that it allows, in f32 larger ones too.
// `missing`: the operators without a kernel; `operators`: how many there are. MSLUA_OPERATOR in the environment names
// one alone.
std::vector<DeviceCall> AllDeviceCalls(std::set<std::string>* missing, int* operators);

// Makes the program of each call and adds its kernels to `kernels`.
template <class Kernels>
Status AddKernels(std::vector<DeviceCall>* calls, Kernels* kernels) {
  for (DeviceCall& c : *calls) {
    auto program = c.call.op->device(c.spec());
    if (!program.ok()) return Annotate(program.status(), c.name);
    c.program = *std::move(program);
    for (const DeviceStep& step : c.program.steps)
      c.kernels.push_back(kernels->Add(DeviceBody(c.spec(), step), DevicePointers(c.spec())));
  }
  return absl::OkStatus();
}

}  // namespace mslua::testing
