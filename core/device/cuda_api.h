// The C functions of NVIDIA's driver, NVRTC, cuBLASLt and NCCL that mslua calls, declared here so that a build needs no
// toolkit. The declarations are those of CUDA 12.0's and NCCL 2.14's headers; tests/emulated_device/api_test.sh
// compares them with the installed ones where there are any.
#pragma once

#include <climits>
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

struct Uuid {  // CUuuid
  char bytes[16];
};
struct Copy2D {  // CUDA_MEMCPY2D; memory type 2 is the device's
  size_t from_x, from_y;
  int from_type;
  const void* from_host;
  Address from;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void* to_host;
  Address to;
  void* to_array;
  size_t to_pitch;
  size_t width, height;  // bytes of a row, rows
};

inline constexpr int kOnDevice = 2;  // of a Copy2D
inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
inline constexpr int kMultiprocessorCount = 16, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
inline constexpr int kFunctionShared = 1, kFunctionLocal = 3, kFunctionRegisters = 4;  // bytes, bytes of a thread
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kEventRecordExternal = 1;

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
  F(cuDeviceGetUuid_v2, (Uuid * uuid, Ordinal device))                                                         \
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
  F(cuMemcpy2DAsync_v2, (const Copy2D* copy, StreamHandle stream))                                             \
  F(cuMemsetD8Async, (Address to, unsigned char value, size_t bytes, StreamHandle stream))                     \
  F(cuStreamCreate, (StreamHandle * stream, unsigned flags))                                                   \
  F(cuStreamDestroy_v2, (StreamHandle stream))                                                                 \
  F(cuStreamSynchronize, (StreamHandle stream))                                                                \
  F(cuStreamQuery, (StreamHandle stream))                                                                      \
  F(cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))                               \
  F(cuEventCreate, (EventHandle * event, unsigned flags))                                                      \
  F(cuEventDestroy_v2, (EventHandle event))                                                                    \
  F(cuEventRecord, (EventHandle event, StreamHandle stream))                                                   \
  F(cuEventRecordWithFlags, (EventHandle event, StreamHandle stream, unsigned flags))                          \
  F(cuEventQuery, (EventHandle event))                                                                         \
  F(cuEventSynchronize, (EventHandle event))                                                                   \
  F(cuEventElapsedTime, (float* milliseconds, EventHandle begin, EventHandle end))                             \
  F(cuModuleLoadData, (Module * module, const void* image))                                                    \
  F(cuModuleUnload, (Module module))                                                                           \
  F(cuModuleGetFunction, (Function * function, Module module, const char* name))                               \
  F(cuFuncGetAttribute, (int* value, int attribute, Function function))                                        \
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
inline constexpr int kReal32 = 0, kReal64 = 1, kReal16 = 2, kRealB16 = 14;
inline constexpr Result kBlasInvalid = 7, kBlasNotSupported = 15;  // cublasStatus_t
inline constexpr int kCompute32 = 68, kCompute64 = 70, kComputeTf32 = 77;
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8, kAuxPointer = 11,
                     kAuxStride = 12;  // of a matmul
inline constexpr uint32_t kNoEpilogue = 1, kBias = 4, kGeluBias = 36, kGeluAuxBias = 164;
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
  F(cublasLtMatmulAlgoCheck, (BlasHandle handle, BlasMatmul matmul, BlasLayout a, BlasLayout b, BlasLayout c,          \
                              BlasLayout d, const BlasAlgorithm* algorithm, BlasHeuristic* result))                    \
  F(cublasLtMatmul,                                                                                                    \
    (BlasHandle handle, BlasMatmul matmul, const void* alpha, const void* a, BlasLayout a_layout, const void* b,       \
     BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout, void* d, BlasLayout d_layout,          \
     const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes, StreamHandle stream))

#define MSLUA_CUBLAS_LT_VERSION(F) F(cublasLtGetVersion, ())

using NcclComm = struct NcclCommTag*;  // ncclComm_t
struct NcclId {                        // ncclUniqueId
  char bytes[128];
};
struct NcclConfig {  // the beginning of ncclConfig_t, which its size and version say
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
  int unset = INT_MIN;
};
inline constexpr Result kNcclInvalidArgument = 4, kNcclInvalidUsage = 5, kNcclRemoteError = 6, kNcclInProgress = 7;
inline constexpr int kNcclI8 = 0, kNcclU8 = 1, kNcclI32 = 2, kNcclI64 = 4, kNcclF16 = 6, kNcclF32 = 7, kNcclF64 = 8,
                     kNcclBF16 = 9;
inline constexpr int kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclMean = 4;

#define MSLUA_NCCL(F)                                                                                                 \
  F(ncclGetVersion, (int* version))                                                                                   \
  F(ncclGetUniqueId, (NcclId * id))                                                                                   \
  F(ncclCommInitRankConfig, (NcclComm * comm, int ranks, NcclId id, int rank, NcclConfig* config))                    \
  F(ncclCommGetAsyncError, (NcclComm comm, Result * error))                                                           \
  F(ncclCommFinalize, (NcclComm comm))                                                                                \
  F(ncclCommDestroy, (NcclComm comm))                                                                                 \
  F(ncclCommAbort, (NcclComm comm))                                                                                   \
  F(ncclGroupStart, ())                                                                                               \
  F(ncclGroupEnd, ())                                                                                                 \
  F(ncclAllReduce,                                                                                                    \
    (const void* in, void* out, size_t count, int type, int reduce, NcclComm comm, StreamHandle stream))              \
  F(ncclReduce,                                                                                                       \
    (const void* in, void* out, size_t count, int type, int reduce, int root, NcclComm comm, StreamHandle stream))    \
  F(ncclReduceScatter,                                                                                                \
    (const void* in, void* out, size_t count, int type, int reduce, NcclComm comm, StreamHandle stream))              \
  F(ncclAllGather, (const void* in, void* out, size_t count, int type, NcclComm comm, StreamHandle stream))           \
  F(ncclBroadcast, (const void* in, void* out, size_t count, int type, int root, NcclComm comm, StreamHandle stream)) \
  F(ncclSend, (const void* data, size_t count, int type, int peer, NcclComm comm, StreamHandle stream))               \
  F(ncclRecv, (void* data, size_t count, int type, int peer, NcclComm comm, StreamHandle stream))

#define MSLUA_NCCL_TEXT(F) F(ncclGetErrorString, (Result result))

#define MSLUA_CUDA_POINTER(name, parameters) Result(*name) parameters = nullptr;
#define MSLUA_CUDA_SIZE_POINTER(name, parameters) size_t(*name) parameters = nullptr;
#define MSLUA_CUDA_TEXT_POINTER(name, parameters) const char*(*name)parameters = nullptr;
struct Driver {
  MSLUA_CUDA_DRIVER(MSLUA_CUDA_POINTER)
};
struct Nvrtc {
  MSLUA_CUDA_NVRTC(MSLUA_CUDA_POINTER)
};
struct CublasLt {
  MSLUA_CUBLAS_LT(MSLUA_CUDA_POINTER)
  MSLUA_CUBLAS_LT_VERSION(MSLUA_CUDA_SIZE_POINTER)
};
struct Nccl {
  MSLUA_NCCL(MSLUA_CUDA_POINTER)
  MSLUA_NCCL_TEXT(MSLUA_CUDA_TEXT_POINTER)
};
#undef MSLUA_CUDA_POINTER
#undef MSLUA_CUDA_SIZE_POINTER
#undef MSLUA_CUDA_TEXT_POINTER

}  // namespace mslua::cuda
