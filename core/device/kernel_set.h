// Compiles kernels from their text for the device at hand (NVRTC) and keeps what it compiled.
//
// A kernel is a body, the statements between the braces of a function that finds its memory in `p.at[0..n)`, arrays of
// bytes (core/op/device_text.h makes bodies). Equal bodies are compiled once. Compiled modules are kept in
// "kernels" of the user's cache folder, under a name made from the text, the compiler and the architecture; a file of
// another user, or one whose checksum differs, is not used.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/status.h"
#include "core/device/device.h"

namespace mslua {

class KernelSet {
 public:
  // `prelude` stands before the kernels. `folder` of kept modules; empty: nothing is kept. `of_a_program`: so many
  // kernels are compiled together.
  KernelSet(Device* device, std::string prelude, std::string folder, int of_a_program = 16)
      : device_(device), prelude_(std::move(prelude)), folder_(std::move(folder)), of_a_program_(of_a_program) {}
  static std::string UserFolder();

  // Adds a kernel of `pointers` pointers; the number under which Compile makes it available.
  int Add(const std::string& body, int pointers);
  // Compiles what was added, in as many threads as the machine has cores. An error has the compiler's lines: a bug of
  // mslua.
  Status Compile();
  DeviceFunction function(int number) const { return functions_[static_cast<size_t>(number)]; }
  int size() const { return static_cast<int>(texts_.size()); }

 private:
  StatusOr<std::string> Cubin(const std::string& text) const;

  Device* device_;
  std::string prelude_, folder_;
  const int of_a_program_;
  std::vector<std::string> texts_;  // of every kernel, as a whole function
  absl::flat_hash_map<std::string, int> numbers_;
  std::vector<DeviceFunction> functions_;
};

// The machine code of `text` for that architecture ("sm_90").
StatusOr<std::string> CompileKernels(const std::string& text, const std::string& architecture);

}  // namespace mslua
