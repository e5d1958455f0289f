// The C functions of NVIDIA's driver and of NVRTC that mslua calls, declared here so that a build needs no toolkit. The
// declarations are those of CUDA 12.0's headers; cuda_api_test.cc compares them with the toolkit's where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mslua::cuda {

using Result = int;                  // CUresult; 0 is success
using Ordinal = int;                 // CUdevice
using Address = unsigned long long;  // CUdeviceptr
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
inline constexpr int kMultiprocessorCount = 16, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;

// Every function of the driver: the exported name, and its parameters.
#define MSLUA_CUDA_DRIVER(F)                                                                                   \
  F(cuInit, (unsigned flags))                                                                                  \
  F(cuDriverGetVersion, (int* version))                                                                        \
  F(cuGetErrorName, (Result error, const char** name))                                                         \
  F(cuDeviceGetCount, (int* count))                                                                            \
  F(cuDeviceGet, (Ordinal * device, int ordinal))                                                              \
  F(cuDeviceGetName, (char* name, int length, Ordinal device))                                                 \
  F(cuDeviceTotalMem_v2, (size_t * bytes, Ordinal device))                                                     \
  F(cuDeviceGetAttribute, (int* value, int attribute, Ordinal device))                                         \
  F(cuDevicePrimaryCtxRetain, (Context * context, Ordinal device))                                             \
  F(cuDevicePrimaryCtxRelease_v2, (Ordinal device))                                                            \
  F(cuCtxSetCurrent, (Context context))                                                                        \
  F(cuMemGetInfo_v2, (size_t * free, size_t * total))                                                          \
  F(cuMemAlloc_v2, (Address * address, size_t bytes))                                                          \
  F(cuMemFree_v2, (Address address))                                                                           \
  F(cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                                             \
  F(cuMemFreeHost, (void* memory))                                                                             \
  F(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, StreamHandle stream))                   \
  F(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, StreamHandle stream))                         \
  F(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, StreamHandle stream))                       \
  F(cuMemsetD8Async, (Address to, unsigned char value, size_t bytes, StreamHandle stream))                     \
  F(cuStreamCreate, (StreamHandle * stream, unsigned flags))                                                   \
  F(cuStreamDestroy_v2, (StreamHandle stream))                                                                 \
  F(cuStreamSynchronize, (StreamHandle stream))                                                                \
  F(cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))                               \
  F(cuEventCreate, (EventHandle * event, unsigned flags))                                                      \
  F(cuEventDestroy_v2, (EventHandle event))                                                                    \
  F(cuEventRecord, (EventHandle event, StreamHandle stream))                                                   \
  F(cuEventSynchronize, (EventHandle event))                                                                   \
  F(cuEventElapsedTime, (float* milliseconds, EventHandle begin, EventHandle end))                             \
  F(cuModuleLoadData, (Module * module, const void* image))                                                    \
  F(cuModuleUnload, (Module module))                                                                           \
  F(cuModuleGetFunction, (Function * function, Module module, const char* name))                               \
  F(cuLaunchKernel,                                                                                            \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra))           \
  F(cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                                                  \
  F(cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                                            \
  F(cuGraphInstantiateWithFlags, (GraphExec * exec, GraphHandle graph, unsigned long long flags))              \
  F(cuGraphLaunch, (GraphExec exec, StreamHandle stream))                                                      \
  F(cuGraphExecDestroy, (GraphExec exec))                                                                      \
  F(cuGraphDestroy, (GraphHandle graph))

using Program = struct ProgramTag*;  // nvrtcProgram

#define MSLUA_CUDA_NVRTC(F)                                                                  \
  F(nvrtcVersion, (int* major, int* minor))                                                  \
  F(nvrtcCreateProgram, (Program * program, const char* text, const char* name, int headers, \
                         const char* const* header_texts, const char* const* header_names))  \
  F(nvrtcDestroyProgram, (Program * program))                                                \
  F(nvrtcCompileProgram, (Program program, int options, const char* const* option_texts))    \
  F(nvrtcGetCUBINSize, (Program program, size_t * bytes))                                    \
  F(nvrtcGetCUBIN, (Program program, char* cubin))                                           \
  F(nvrtcGetProgramLogSize, (Program program, size_t * bytes))                               \
  F(nvrtcGetProgramLog, (Program program, char* log))

using BlasHandle = struct BlasHandleTag*;          // cublasLtHandle_t
using BlasMatmul = struct BlasMatmulTag*;          // cublasLtMatmulDesc_t
using BlasLayout = struct BlasLayoutTag*;          // cublasLtMatrixLayout_t
using BlasPreference = struct BlasPreferenceTag*;  // cublasLtMatmulPreference_t
struct BlasAlgorithm {                             // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct BlasHeuristic {  // cublasLtMatmulHeuristicResult_t
  BlasAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
inline constexpr int kReal32 = 0, kReal64 = 1, kReal16 = 2, kRealB16 = 14, kCompute32 = 68, kCompute64 = 70;
inline constexpr int kTransposeA = 3, kTransposeB = 4;   // of a matmul
inline constexpr int kBatchCount = 5, kBatchStride = 6;  // of a layout
inline constexpr int kMaxWorkspace = 1, kReductionSchemes = 3, kMinAlignmentA = 5,
                     kMinAlignmentD = 8;  // of a preference
inline constexpr uint32_t kReductionInPlace = 1, kReductionMask = 7;

#define MSLUA_CUBLAS_LT(F)                                                                                             \
  F(cublasLtCreate, (BlasHandle * handle))                                                                             \
  F(cublasLtDestroy, (BlasHandle handle))                                                                              \
  F(cublasLtMatmulDescCreate, (BlasMatmul * matmul, int compute_type, int scale_type))                                 \
  F(cublasLtMatmulDescDestroy, (BlasMatmul matmul))                                                                    \
  F(cublasLtMatmulDescSetAttribute, (BlasMatmul matmul, int attribute, const void* value, size_t bytes))               \
  F(cublasLtMatrixLayoutCreate, (BlasLayout * layout, int type, uint64_t rows, uint64_t columns, int64_t stride))      \
  F(cublasLtMatrixLayoutDestroy, (BlasLayout layout))                                                                  \
  F(cublasLtMatrixLayoutSetAttribute, (BlasLayout layout, int attribute, const void* value, size_t bytes))             \
  F(cublasLtMatmulPreferenceCreate, (BlasPreference * preference))                                                     \
  F(cublasLtMatmulPreferenceDestroy, (BlasPreference preference))                                                      \
  F(cublasLtMatmulPreferenceSetAttribute, (BlasPreference preference, int attribute, const void* value, size_t bytes)) \
  F(cublasLtMatmulAlgoGetHeuristic,                                                                                    \
    (BlasHandle handle, BlasMatmul matmul, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d,                     \
     BlasPreference preference, int asked, BlasHeuristic* results, int* given))                                        \
  F(cublasLtMatmul,                                                                                                    \
    (BlasHandle handle, BlasMatmul matmul, const void* alpha, const void* a, BlasLayout a_layout, const void* b,       \
     BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout, void* d, BlasLayout d_layout,          \
     const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes, StreamHandle stream))

#define MSLUA_CUDA_POINTER(name, parameters) Result(*name) parameters = nullptr;
struct Driver {
  MSLUA_CUDA_DRIVER(MSLUA_CUDA_POINTER)
};
struct Nvrtc {
  MSLUA_CUDA_NVRTC(MSLUA_CUDA_POINTER)
};
struct CublasLt {
  MSLUA_CUBLAS_LT(MSLUA_CUDA_POINTER)
};
#undef MSLUA_CUDA_POINTER

}  // namespace mslua::cuda
