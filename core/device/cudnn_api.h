// The functions of cuDNN 9's backend ("graph") API that mslua calls, and the numbers that it passes to them, declared
// here so that a build needs no cuDNN. The declarations are those of cuDNN 9.0's headers, but for the properties of a
// device (9.8), which only tests use; tests/emulated_device/api_test.sh compares them with the installed ones where
// there are any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/cuda_api.h"

namespace mslua::cuda {

using DnnHandle = struct DnnHandleTag*;  // cudnnHandle_t
using DnnDescriptor = void*;             // cudnnBackendDescriptor_t

#define MSLUA_CUDNN(F)                                                                                           \
  F(cudnnCreate, (DnnHandle * handle))                                                                           \
  F(cudnnSetStream, (DnnHandle handle, StreamHandle stream))                                                     \
  F(cudnnBackendCreateDescriptor, (int type, DnnDescriptor* descriptor))                                         \
  F(cudnnBackendDestroyDescriptor, (DnnDescriptor descriptor))                                                   \
  F(cudnnBackendFinalize, (DnnDescriptor descriptor))                                                            \
  F(cudnnBackendSetAttribute, (DnnDescriptor descriptor, int name, int type, int64_t count, const void* values)) \
  F(cudnnBackendGetAttribute,                                                                                    \
    (const DnnDescriptor descriptor, int name, int type, int64_t asked, int64_t* given, void* values))           \
  F(cudnnBackendExecute, (DnnHandle handle, DnnDescriptor plan, DnnDescriptor variant_pack))

// Those that return no status.
#define MSLUA_CUDNN_VERSION(F) F(cudnnGetVersion, ())
#define MSLUA_CUDNN_TEXT(F) F(cudnnGetErrorString, (Result result))
#define MSLUA_CUDNN_LAST(F) F(cudnnGetLastErrorString, (char* text, size_t bytes))

// cudnnStatus_t: of 3000 to 3999, what the library does not have.
inline constexpr Result kDnnBadParameter = 2000, kDnnNotSupported = 3000, kDnnInternalError = 4000;

// cudnnDataType_t
inline constexpr int kDnnF32 = 0, kDnnF16 = 2, kDnnI32 = 4, kDnnBF16 = 9, kDnnBool = 11;

// cudnnBackendDescriptorType_t
inline constexpr int kDnnPointwise = 0, kDnnConvolution = 1, kDnnEngine = 2, kDnnEngineConfig = 3, kDnnHeuristics = 4,
                     kDnnPlan = 5, kDnnKnobChoice = 7, kDnnConvolutionForward = 10, kDnnConvolutionFilter = 11,
                     kDnnConvolutionData = 12, kDnnPointwiseOperation = 13, kDnnGraph = 15, kDnnVariantPack = 16,
                     kDnnTensor = 17, kDnnMatmul = 18, kDnnMatmulOperation = 19, kDnnReduction = 21,
                     kDnnReductionOperation = 22, kDnnReshape = 31, kDnnDeviceProperties = 38;

// cudnnBackendAttributeType_t
inline constexpr int kDnnTypeHandle = 0, kDnnTypeDataType = 1, kDnnTypeBool = 2, kDnnTypeI64 = 3, kDnnTypeF64 = 5,
                     kDnnTypePointer = 6, kDnnTypeConvolutionMode = 7, kDnnTypeHeuristicMode = 8, kDnnTypeKnob = 9,
                     kDnnTypeNumericalNote = 11, kDnnTypePointwiseMode = 14, kDnnTypeDescriptor = 15,
                     kDnnTypeReduction = 18, kDnnTypeChar = 24;

// cudnnBackendAttributeName_t, by descriptor.
inline constexpr int kDnnPointwiseMode = 0, kDnnPointwiseType = 1, kDnnPointwiseAxis = 9;
inline constexpr int kDnnConvolutionType = 100, kDnnConvolutionMode = 101, kDnnConvolutionDilations = 102,
                     kDnnConvolutionStrides = 103, kDnnConvolutionAfter = 104, kDnnConvolutionBefore = 105,
                     kDnnConvolutionSpatial = 106;
inline constexpr int kDnnHeuristicsMode = 200, kDnnHeuristicsGraph = 201, kDnnHeuristicsResults = 202,
                     kDnnHeuristicsDevice = 204;
inline constexpr int kDnnConfigEngine = 300, kDnnConfigKnobs = 302;
inline constexpr int kDnnKnobType = 600, kDnnKnobValue = 601;
inline constexpr int kDnnKnobs = 64;  // more than there are types of them
inline constexpr int kDnnPlanHandle = 400, kDnnPlanConfig = 401, kDnnPlanWorkspace = 402, kDnnPlanDevice = 407;
// Each kind of convolution: alpha, beta, the convolution, then its three tensors.
inline constexpr int kDnnForwardAlpha = 700, kDnnForwardBeta = 701, kDnnForwardConvolution = 702, kDnnForwardW = 703,
                     kDnnForwardX = 704, kDnnForwardY = 705;
inline constexpr int kDnnDataAlpha = 706, kDnnDataBeta = 707, kDnnDataConvolution = 708, kDnnDataW = 709,
                     kDnnDataDx = 710, kDnnDataDy = 711;
inline constexpr int kDnnFilterAlpha = 712, kDnnFilterBeta = 713, kDnnFilterConvolution = 714, kDnnFilterDw = 715,
                     kDnnFilterX = 716, kDnnFilterDy = 717;
inline constexpr int kDnnPointwiseDescriptor = 750, kDnnPointwiseX = 751, kDnnPointwiseB = 752, kDnnPointwiseY = 753,
                     kDnnPointwiseT = 758;
inline constexpr int kDnnGraphHandle = 800, kDnnGraphOperations = 801;
inline constexpr int kDnnTensorAlignment = 900, kDnnTensorType = 901, kDnnTensorSizes = 902, kDnnTensorStrides = 903,
                     kDnnTensorId = 906, kDnnTensorVirtual = 907, kDnnTensorByValue = 908;
inline constexpr int kDnnPackIds = 1000, kDnnPackPointers = 1001, kDnnPackWorkspace = 1003;
inline constexpr int kDnnEngineNumber = 1301, kDnnEngineNotes = 1303;
inline constexpr int kDnnMatmulType = 1500, kDnnMatmulA = 1520, kDnnMatmulB = 1521, kDnnMatmulC = 1522,
                     kDnnMatmulDescriptor = 1523;
inline constexpr int kDnnReductionMode = 1600, kDnnReductionType = 1601, kDnnReductionX = 1610, kDnnReductionY = 1611,
                     kDnnReductionDescriptor = 1612;
inline constexpr int kDnnReshapeX = 2200, kDnnReshapeY = 2201;
inline constexpr int kDnnDeviceJson = 2702;

// cudnnConvolutionMode_t, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t
inline constexpr int kDnnCrossCorrelation = 1;
inline constexpr int kDnnHeuristicFallback = 2, kDnnHeuristicA = 3;
inline constexpr int kDnnTensorCore = 0, kDnnDownConvert = 1, kDnnReducedReduction = 2, kDnnFft = 3,
                     kDnnNondeterministic = 4, kDnnWinograd = 5, kDnnLastWinograd = 8, kDnnNotes = 16;

// cudnnPointwiseMode_t, cudnnReduceTensorOp_t
enum DnnPointwise : int {
  kDnnAdd = 0,
  kDnnMul = 1,
  kDnnDiv = 6,
  kDnnSub = 9,
  kDnnExp = 13,
  kDnnLog = 15,
  kDnnGreaterEqual = 303,
  kDnnIndex = 501,
  kDnnSelect = 601
};
enum DnnReduce : int { kDnnReduceSum = 0, kDnnReduceMax = 3 };

#define MSLUA_CUDA_POINTER(name, parameters) Result(*name) parameters = nullptr;
#define MSLUA_CUDNN_VERSION_POINTER(name, parameters) size_t(*name) parameters = nullptr;
#define MSLUA_CUDNN_TEXT_POINTER(name, parameters) const char*(*name)parameters = nullptr;
#define MSLUA_CUDNN_LAST_POINTER(name, parameters) void(*name) parameters = nullptr;
struct Cudnn {
  MSLUA_CUDNN(MSLUA_CUDA_POINTER)
  MSLUA_CUDNN_VERSION(MSLUA_CUDNN_VERSION_POINTER)
  MSLUA_CUDNN_TEXT(MSLUA_CUDNN_TEXT_POINTER)
  MSLUA_CUDNN_LAST(MSLUA_CUDNN_LAST_POINTER)
};
#undef MSLUA_CUDA_POINTER
#undef MSLUA_CUDNN_VERSION_POINTER
#undef MSLUA_CUDNN_TEXT_POINTER
#undef MSLUA_CUDNN_LAST_POINTER

}  // namespace mslua::cuda
