// Kernels of a device's libraries (cuBLASLt, cuDNN), which run in place of an operator's text where the library is on
// the machine and has one for the call:
//
//   MSLUA_LIBRARY_KERNEL(matmul) { return LibraryProgram{...}; }   in core/ops/matmul_cublas.cc
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/device/cublas_matmul.h"
#include "core/device/device.h"
#include "core/op/device_form.h"

namespace mslua {

class LibraryKernel {
 public:
  virtual ~LibraryKernel() = default;
  // What `mslua prof` calls it: "cudnn".
  virtual const char* name() const = 0;
  virtual int64_t workspace_bytes() const = 0;
  // Which of the library's ways it is, in one line: a decision of the plan.
  virtual std::string choice() const = 0;
  // `operands`: of the inputs, the outputs, and the scratch memory of the program's text; 64-byte aligned. Enqueues
  // only, and may be called again with others.
  virtual Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const = 0;
};

// The kernel of a call, and text that runs before and after it, to lay its operands out.
struct LibraryProgram {
  std::shared_ptr<const LibraryKernel> kernel;
  std::vector<DeviceStep> before, after;
  int64_t scratch_bytes = 0;  // of the text
};

// How a kernel may be made.
struct LibraryOptions {
  Tf32 tf32;
  std::string choice;  // of an earlier compile: taken where the library has it; empty: the library's first
};

// Unimplemented where the library has no kernel for the call, NotFound where it is not on this machine.
using LibraryFn = StatusOr<LibraryProgram> (*)(const OpSpec& spec, const LibraryOptions& options);

// What a call of matmul_bias or matmul_bias_add is to cuBLASLt, and the bytes of its bias in the type of the result; 0:
// it is given so.
MatmulShape BiasedProductOf(const OpSpec& spec);
int64_t MovedBiasBytes(const OpSpec& spec);

// Called by MSLUA_LIBRARY_KERNEL.
bool RegisterLibraryKernel(const char* op, LibraryFn make);

// That of a call of `op` on the device of this process. Without a kernel where text has to do.
StatusOr<LibraryProgram> FindLibraryKernel(const std::string& op, const OpSpec& spec, const LibraryOptions& options);

}  // namespace mslua

#define MSLUA_LIBRARY_KERNEL(name)                                                                                \
  static ::mslua::StatusOr<::mslua::LibraryProgram> LibraryKernel_##name(const ::mslua::OpSpec& spec,             \
                                                                         const ::mslua::LibraryOptions& options); \
  [[maybe_unused]] static const bool kLibraryKernel_##name =                                                      \
      ::mslua::RegisterLibraryKernel(#name, LibraryKernel_##name);                                                \
  static ::mslua::StatusOr<::mslua::LibraryProgram> LibraryKernel_##name(const ::mslua::OpSpec& spec,             \
                                                                         const ::mslua::LibraryOptions& options)
