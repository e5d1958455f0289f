// Opens the libraries of a device at run time: NVIDIA's driver, NVRTC, cuBLASLt, cuDNN and NCCL. They are looked for in
// the folders of MSLUA_CUDA_LIBRARIES (separated by colons; when it is set, nowhere else), then where the loader looks,
// then in $CUDA_HOME/lib64 and /usr/local/cuda*/lib64.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/device/cuda_api.h"
#include "core/device/cudnn_api.h"

namespace mslua::cuda {

template <class Functions>
struct Library {
  Functions call;
  std::string path;  // of the file that was opened
};

// Opened once a process; the error names the file that is missing and how to get it. Exit code kExitEnvironment.
StatusOr<const Library<Driver>*> OpenDriver();
StatusOr<const Library<Nvrtc>*> OpenNvrtc();
StatusOr<const Library<CublasLt>*> OpenCublasLt();
StatusOr<const Library<Cudnn>*> OpenCudnn();
StatusOr<const Library<Nccl>*> OpenNccl();

// "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY" where `result` is an error.
Status Check(Result result, const char* function);

// "ncclAllReduce: unhandled system error" where `result` is an error of NCCL's.
Status CheckNccl(const Library<Nccl>& library, Result result, const char* function);
// "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1001)" where `result` is an error of cuDNN's, with what the library says
// of it. Unimplemented where the library does not have what it was asked for.
Status CheckCudnn(const Library<Cudnn>& library, Result result, const char* function);
// " with NVRTC 13.0, cuBLASLt 13.0.2, cuDNN 9.19.0", of those that are found.
std::string LibrariesText();
// "13.0.2", of what cublasLtGetVersion gives.
std::string CublasVersionText(size_t version);
// "9.19.0", of what cudnnGetVersion gives.
std::string CudnnVersionText(size_t version);
// "2.28.9", of what ncclGetVersion gives.
std::string NcclVersionText(int version);

}  // namespace mslua::cuda

// Calls a function of the driver and leaves the function with an error that names it.
#define RETURN_IF_CUDA_ERROR(driver, name, ...) \
  RETURN_IF_ERROR(::mslua::cuda::Check((driver).call.name(__VA_ARGS__), #name))
