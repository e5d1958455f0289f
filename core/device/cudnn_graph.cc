#include "core/device/cudnn_graph.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr int64_t kAlignment = 16;

StatusOr<std::vector<int>> NotesOf(const CudnnDescriptor& engine) {
  std::vector<int> notes(cuda::kDnnNotes);
  ASSIGN_OR_RETURN(const int64_t count,
                   engine.Get(cuda::kDnnEngineNotes, cuda::kDnnTypeNumericalNote, cuda::kDnnNotes, notes.data()));
  notes.resize(static_cast<size_t>(std::min<int64_t>(count, cuda::kDnnNotes)));
  return notes;
}

// Over calls that share the handle and its stream.
std::mutex& HandleMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

int TypeOf(DType t) {
  switch (t) {
    case DType::kBF16:
      return cuda::kDnnBF16;
    case DType::kF16:
      return cuda::kDnnF16;
    case DType::kI32:
      return cuda::kDnnI32;
    case DType::kBool:
      return cuda::kDnnBool;
    default:
      return cuda::kDnnF32;
  }
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

}  // namespace

#define RETURN_IF_CUDNN_ERROR(library, name, ...) \
  RETURN_IF_ERROR(cuda::CheckCudnn(*(library), (library)->call.name(__VA_ARGS__), #name))

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(handle_, other.handle_);
  return *this;
}
CudnnDescriptor::~CudnnDescriptor() {
  if (handle_ != nullptr) library_->call.cudnnBackendDestroyDescriptor(handle_);
}
StatusOr<CudnnDescriptor> CudnnDescriptor::Make(const cuda::Library<cuda::Cudnn>* library, int type) {
  CudnnDescriptor made;
  RETURN_IF_CUDNN_ERROR(library, cudnnBackendCreateDescriptor, type, &made.handle_);
  made.library_ = library;
  return made;
}
Status CudnnDescriptor::Set(int name, int type, int64_t count, const void* values) {
  RETURN_IF_CUDNN_ERROR(library_, cudnnBackendSetAttribute, handle_, name, type, count, values);
  return absl::OkStatus();
}
Status CudnnDescriptor::Set(int name, const CudnnDescriptor& value) {
  return Set(name, cuda::kDnnTypeDescriptor, 1, &value.handle_);
}
Status CudnnDescriptor::Set(int name, const std::vector<CudnnDescriptor>& values) {
  std::vector<cuda::DnnDescriptor> handles;
  for (const CudnnDescriptor& v : values) handles.push_back(v.handle_);
  return Set(name, cuda::kDnnTypeDescriptor, static_cast<int64_t>(handles.size()), handles.data());
}
Status CudnnDescriptor::Finalize() {
  RETURN_IF_CUDNN_ERROR(library_, cudnnBackendFinalize, handle_);
  return absl::OkStatus();
}
StatusOr<int64_t> CudnnDescriptor::Get(int name, int type, int64_t asked, void* values) const {
  int64_t given = 0;
  RETURN_IF_CUDNN_ERROR(library_, cudnnBackendGetAttribute, handle_, name, type, asked, &given, values);
  return given;
}

StatusOr<CudnnTarget> CudnnTarget::ThisDevice() {
  static cuda::DnnHandle handle = nullptr;
  CudnnTarget target;
  ASSIGN_OR_RETURN(target.library_, cuda::OpenCudnn());
  // Its run-time compiled engines ask the loader for it by name.
  RETURN_IF_ERROR(cuda::OpenNvrtc().status());
  const std::lock_guard<std::mutex> lock(HandleMutex());
  if (handle == nullptr) RETURN_IF_CUDNN_ERROR(target.library_, cudnnCreate, &handle);
  target.handle_ = handle;
  return target;
}

StatusOr<CudnnTarget> CudnnTarget::Described(const std::string& properties) {
  CudnnTarget target;
  ASSIGN_OR_RETURN(target.library_, cuda::OpenCudnn());
  ASSIGN_OR_RETURN(CudnnDescriptor made, CudnnDescriptor::Make(target.library_, cuda::kDnnDeviceProperties));
  RETURN_IF_ERROR(
      made.Set(cuda::kDnnDeviceJson, cuda::kDnnTypeChar, static_cast<int64_t>(properties.size()), properties.c_str()));
  RETURN_IF_ERROR(made.Finalize());
  target.properties_ = std::make_shared<CudnnDescriptor>(std::move(made));
  return target;
}

template <class F>
void CudnnGraph::Add(F make) {
  if (status_.ok()) status_ = make();
}

int CudnnGraph::AddTensor(DType type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool by_value) {
  const int number = static_cast<int>(tensors_.size());
  tensors_.emplace_back();
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor made, Make(cuda::kDnnTensor));
    const int data_type = TypeOf(type);
    const int64_t id = number + 1, rank = static_cast<int64_t>(sizes.size());
    RETURN_IF_ERROR(made.Set(cuda::kDnnTensorType, cuda::kDnnTypeDataType, 1, &data_type));
    RETURN_IF_ERROR(made.Set(cuda::kDnnTensorSizes, cuda::kDnnTypeI64, rank, sizes.data()));
    RETURN_IF_ERROR(made.Set(cuda::kDnnTensorStrides, cuda::kDnnTypeI64, rank, strides.data()));
    RETURN_IF_ERROR(made.Set(cuda::kDnnTensorId, cuda::kDnnTypeI64, 1, &id));
    RETURN_IF_ERROR(made.Set(cuda::kDnnTensorAlignment, cuda::kDnnTypeI64, 1, &kAlignment));
    if (is_virtual) RETURN_IF_ERROR(made.Set(cuda::kDnnTensorVirtual, cuda::kDnnTypeBool, 1, &is_virtual));
    if (by_value) RETURN_IF_ERROR(made.Set(cuda::kDnnTensorByValue, cuda::kDnnTypeBool, 1, &by_value));
    RETURN_IF_ERROR(made.Finalize());
    tensors_.back() = std::move(made);
    return absl::OkStatus();
  });
  return number;
}

int CudnnGraph::Operand(DType type, const Sizes& sizes, const Sizes& strides) {
  const int number = AddTensor(type, sizes, strides, false, false);
  operands_.push_back(number + 1);
  float32_ = float32_ || type == DType::kF32;
  return number;
}
int CudnnGraph::Inner(DType type, const Sizes& sizes) { return Inner(type, sizes, RowMajor(sizes)); }
int CudnnGraph::Inner(DType type, const Sizes& sizes, const Sizes& strides) {
  return AddTensor(type, sizes, strides, true, false);
}
int CudnnGraph::Number(float value, int rank) {
  const Sizes ones(static_cast<size_t>(rank), 1);
  const int number = AddTensor(DType::kF32, ones, ones, false, true);
  numbers_.push_back(number + 1);
  values_.push_back(value);
  return number;
}

Status CudnnGraph::SetTensor(CudnnDescriptor& operation, int name, int tensor) {
  return operation.Set(name, tensors_[static_cast<size_t>(tensor)]);
}

Status CudnnGraph::AddConvolution(int type, int first_attribute, const std::vector<std::pair<int, int>>& tensors,
                                  const CudnnWindow& window) {
  ASSIGN_OR_RETURN(CudnnDescriptor shape, Make(cuda::kDnnConvolution));
  const int computed = cuda::kDnnF32, mode = cuda::kDnnCrossCorrelation;
  const int64_t dimensions = static_cast<int64_t>(window.stride.size());
  RETURN_IF_ERROR(shape.Set(cuda::kDnnConvolutionType, cuda::kDnnTypeDataType, 1, &computed));
  RETURN_IF_ERROR(shape.Set(cuda::kDnnConvolutionMode, cuda::kDnnTypeConvolutionMode, 1, &mode));
  RETURN_IF_ERROR(shape.Set(cuda::kDnnConvolutionSpatial, cuda::kDnnTypeI64, 1, &dimensions));
  const std::pair<int, const std::vector<int64_t>&> lists[] = {{cuda::kDnnConvolutionDilations, window.dilation},
                                                               {cuda::kDnnConvolutionStrides, window.stride},
                                                               {cuda::kDnnConvolutionBefore, window.before},
                                                               {cuda::kDnnConvolutionAfter, window.after}};
  for (const auto& [name, values] : lists)
    RETURN_IF_ERROR(shape.Set(name, cuda::kDnnTypeI64, dimensions, values.data()));
  RETURN_IF_ERROR(shape.Finalize());
  ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(type));
  const double alpha = 1, beta = 0;
  RETURN_IF_ERROR(operation.Set(first_attribute, cuda::kDnnTypeF64, 1, &alpha));
  RETURN_IF_ERROR(operation.Set(first_attribute + 1, cuda::kDnnTypeF64, 1, &beta));
  RETURN_IF_ERROR(operation.Set(first_attribute + 2, shape));
  for (const auto& [name, tensor] : tensors) RETURN_IF_ERROR(SetTensor(operation, name, tensor));
  RETURN_IF_ERROR(operation.Finalize());
  parts_.push_back(std::move(shape));
  operations_.push_back(std::move(operation));
  return absl::OkStatus();
}

void CudnnGraph::Convolution(int x, int w, int y, const CudnnWindow& window) {
  Add([&] {
    return AddConvolution(cuda::kDnnConvolutionForward, cuda::kDnnForwardAlpha,
                          {{cuda::kDnnForwardX, x}, {cuda::kDnnForwardW, w}, {cuda::kDnnForwardY, y}}, window);
  });
}
void CudnnGraph::ConvolutionGradInput(int dy, int w, int dx, const CudnnWindow& window) {
  Add([&] {
    return AddConvolution(cuda::kDnnConvolutionData, cuda::kDnnDataAlpha,
                          {{cuda::kDnnDataDy, dy}, {cuda::kDnnDataW, w}, {cuda::kDnnDataDx, dx}}, window);
  });
}
void CudnnGraph::ConvolutionGradWeight(int x, int dy, int dw, const CudnnWindow& window) {
  Add([&] {
    return AddConvolution(cuda::kDnnConvolutionFilter, cuda::kDnnFilterAlpha,
                          {{cuda::kDnnFilterX, x}, {cuda::kDnnFilterDy, dy}, {cuda::kDnnFilterDw, dw}}, window);
  });
}

void CudnnGraph::Pointwise(cuda::DnnPointwise mode, int x, int b, int y, int t) {
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor function, Make(cuda::kDnnPointwise));
    const int name = mode, computed = mode == cuda::kDnnGreaterEqual ? cuda::kDnnBool : cuda::kDnnF32;
    RETURN_IF_ERROR(function.Set(cuda::kDnnPointwiseMode, cuda::kDnnTypePointwiseMode, 1, &name));
    RETURN_IF_ERROR(function.Set(cuda::kDnnPointwiseType, cuda::kDnnTypeDataType, 1, &computed));
    RETURN_IF_ERROR(function.Finalize());
    ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(cuda::kDnnPointwiseOperation));
    RETURN_IF_ERROR(operation.Set(cuda::kDnnPointwiseDescriptor, function));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseX, x));
    if (b >= 0) RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseB, b));
    if (t >= 0) RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseT, t));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseY, y));
    RETURN_IF_ERROR(operation.Finalize());
    parts_.push_back(std::move(function));
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  });
}

void CudnnGraph::Index(int x, int y, int64_t axis) {
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor function, Make(cuda::kDnnPointwise));
    const int name = cuda::kDnnIndex, computed = cuda::kDnnI32;
    RETURN_IF_ERROR(function.Set(cuda::kDnnPointwiseMode, cuda::kDnnTypePointwiseMode, 1, &name));
    RETURN_IF_ERROR(function.Set(cuda::kDnnPointwiseType, cuda::kDnnTypeDataType, 1, &computed));
    RETURN_IF_ERROR(function.Set(cuda::kDnnPointwiseAxis, cuda::kDnnTypeI64, 1, &axis));
    RETURN_IF_ERROR(function.Finalize());
    ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(cuda::kDnnPointwiseOperation));
    RETURN_IF_ERROR(operation.Set(cuda::kDnnPointwiseDescriptor, function));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseX, x));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnPointwiseY, y));
    RETURN_IF_ERROR(operation.Finalize());
    parts_.push_back(std::move(function));
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  });
}

void CudnnGraph::Reduce(cuda::DnnReduce mode, int x, int y) {
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor function, Make(cuda::kDnnReduction));
    const int name = mode, computed = cuda::kDnnF32;
    RETURN_IF_ERROR(function.Set(cuda::kDnnReductionMode, cuda::kDnnTypeReduction, 1, &name));
    RETURN_IF_ERROR(function.Set(cuda::kDnnReductionType, cuda::kDnnTypeDataType, 1, &computed));
    RETURN_IF_ERROR(function.Finalize());
    ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(cuda::kDnnReductionOperation));
    RETURN_IF_ERROR(operation.Set(cuda::kDnnReductionDescriptor, function));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnReductionX, x));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnReductionY, y));
    RETURN_IF_ERROR(operation.Finalize());
    parts_.push_back(std::move(function));
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  });
}

void CudnnGraph::Matmul(int a, int b, int c) {
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor function, Make(cuda::kDnnMatmul));
    const int computed = cuda::kDnnF32;
    RETURN_IF_ERROR(function.Set(cuda::kDnnMatmulType, cuda::kDnnTypeDataType, 1, &computed));
    RETURN_IF_ERROR(function.Finalize());
    ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(cuda::kDnnMatmulOperation));
    RETURN_IF_ERROR(operation.Set(cuda::kDnnMatmulDescriptor, function));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnMatmulA, a));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnMatmulB, b));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnMatmulC, c));
    RETURN_IF_ERROR(operation.Finalize());
    parts_.push_back(std::move(function));
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  });
}

void CudnnGraph::Reshape(int x, int y) {
  Add([&]() -> Status {
    ASSIGN_OR_RETURN(CudnnDescriptor operation, Make(cuda::kDnnReshape));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnReshapeX, x));
    RETURN_IF_ERROR(SetTensor(operation, cuda::kDnnReshapeY, y));
    RETURN_IF_ERROR(operation.Finalize());
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  });
}

// What the library proposes in that mode, best first.
StatusOr<std::vector<CudnnDescriptor>> CudnnGraph::Candidates(const CudnnDescriptor& graph, int mode) {
  ASSIGN_OR_RETURN(CudnnDescriptor heuristics, Make(cuda::kDnnHeuristics));
  RETURN_IF_ERROR(heuristics.Set(cuda::kDnnHeuristicsGraph, graph));
  RETURN_IF_ERROR(heuristics.Set(cuda::kDnnHeuristicsMode, cuda::kDnnTypeHeuristicMode, 1, &mode));
  if (target_.properties_ != nullptr) RETURN_IF_ERROR(heuristics.Set(cuda::kDnnHeuristicsDevice, *target_.properties_));
  RETURN_IF_ERROR(heuristics.Finalize());
  ASSIGN_OR_RETURN(int64_t count, heuristics.Get(cuda::kDnnHeuristicsResults, cuda::kDnnTypeDescriptor, 0, nullptr));
  std::vector<CudnnDescriptor> found;
  std::vector<cuda::DnnDescriptor> handles;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(found.emplace_back(), Make(cuda::kDnnEngineConfig));
    handles.push_back(found.back().get());
  }
  if (count == 0) return found;
  ASSIGN_OR_RETURN(count, heuristics.Get(cuda::kDnnHeuristicsResults, cuda::kDnnTypeDescriptor, count, handles.data()));
  found.resize(static_cast<size_t>(std::min<int64_t>(count, static_cast<int64_t>(found.size()))));
  return found;
}

bool CudnnGraph::Suits(const std::vector<int>& notes, CudnnRounding rounding) const {
  for (const int note : notes) {
    if (note == cuda::kDnnNondeterministic || note == cuda::kDnnReducedReduction) return false;
    if (!float32_ || rounding == CudnnRounding::kFree) continue;
    if (note == cuda::kDnnDownConvert || (note == cuda::kDnnTensorCore && rounding == CudnnRounding::kNone))
      return false;
    // Faster, but farther from the exact sum.
    if (note == cuda::kDnnFft || (note >= cuda::kDnnWinograd && note <= cuda::kDnnLastWinograd)) return false;
  }
  return true;
}

StatusOr<CudnnDescriptor> CudnnGraph::MakePlan(const CudnnDescriptor& config) {
  ASSIGN_OR_RETURN(CudnnDescriptor plan, Make(cuda::kDnnPlan));
  RETURN_IF_ERROR(plan.Set(cuda::kDnnPlanConfig, config));
  if (target_.properties_ != nullptr)
    RETURN_IF_ERROR(plan.Set(cuda::kDnnPlanDevice, *target_.properties_));
  else
    RETURN_IF_ERROR(plan.Set(cuda::kDnnPlanHandle, cuda::kDnnTypeHandle, 1, &target_.handle_));
  RETURN_IF_ERROR(plan.Finalize());
  return plan;
}

// ", 2=5, 14=3", by the knobs' numbers.
StatusOr<std::string> CudnnGraph::KnobsOf(const CudnnDescriptor& config) {
  std::vector<CudnnDescriptor> knobs;
  std::vector<cuda::DnnDescriptor> handles;
  for (int i = 0; i < cuda::kDnnKnobs; ++i) {
    ASSIGN_OR_RETURN(knobs.emplace_back(), Make(cuda::kDnnKnobChoice));
    handles.push_back(knobs.back().get());
  }
  ASSIGN_OR_RETURN(const int64_t count,
                   config.Get(cuda::kDnnConfigKnobs, cuda::kDnnTypeDescriptor, cuda::kDnnKnobs, handles.data()));
  knobs.resize(static_cast<size_t>(std::min<int64_t>(count, cuda::kDnnKnobs)));
  std::map<int, int64_t> values;
  for (const CudnnDescriptor& knob : knobs) {
    int type = 0;
    int64_t value = 0;
    RETURN_IF_ERROR(knob.Get(cuda::kDnnKnobType, cuda::kDnnTypeKnob, 1, &type).status());
    RETURN_IF_ERROR(knob.Get(cuda::kDnnKnobValue, cuda::kDnnTypeI64, 1, &value).status());
    values[type] = value;
  }
  std::string text;
  for (const auto& [type, value] : values) absl::StrAppend(&text, ", ", type, "=", value);
  return text;
}

StatusOr<std::unique_ptr<CudnnPlan>> CudnnGraph::FirstPlan(CudnnDescriptor* graph, CudnnRounding rounding,
                                                           int64_t most_workspace, const std::string& choice) {
  for (const int mode : {cuda::kDnnHeuristicA, cuda::kDnnHeuristicFallback}) {
    auto configs = Candidates(*graph, mode);
    if (absl::IsUnimplemented(configs.status())) continue;
    RETURN_IF_ERROR(configs.status());
    for (CudnnDescriptor& config : *configs) {
      ASSIGN_OR_RETURN(CudnnDescriptor engine, Make(cuda::kDnnEngine));
      cuda::DnnDescriptor handle = engine.get();
      RETURN_IF_ERROR(config.Get(cuda::kDnnConfigEngine, cuda::kDnnTypeDescriptor, 1, &handle).status());
      ASSIGN_OR_RETURN(std::vector<int> notes, NotesOf(engine));
      if (!Suits(notes, rounding)) continue;
      int64_t number = 0, workspace = 0;
      RETURN_IF_ERROR(engine.Get(cuda::kDnnEngineNumber, cuda::kDnnTypeI64, 1, &number).status());
      auto made = std::make_unique<CudnnPlan>();
      made->engine_ = absl::StrCat("engine ", number);
      if (!choice.empty() && !absl::StartsWith(choice, made->engine_)) continue;
      ASSIGN_OR_RETURN(const std::string knobs, KnobsOf(config));
      made->choice_ = absl::StrCat(made->engine_, knobs);
      if (!choice.empty() && choice != made->choice_) continue;
      auto plan = MakePlan(config);
      if (absl::IsUnimplemented(plan.status())) continue;
      RETURN_IF_ERROR(plan.status());
      RETURN_IF_ERROR(plan->Get(cuda::kDnnPlanWorkspace, cuda::kDnnTypeI64, 1, &workspace).status());
      if (workspace > most_workspace) continue;
      made->target_ = target_;
      made->graph_ = std::move(*graph);
      made->config_ = std::move(config);
      made->plan_ = *std::move(plan);
      made->operands_ = operands_;
      made->numbers_ = numbers_;
      made->values_ = values_;
      made->workspace_bytes_ = workspace;
      made->notes_ = std::move(notes);
      return made;
    }
  }
  return std::unique_ptr<CudnnPlan>();
}

StatusOr<std::unique_ptr<CudnnPlan>> CudnnGraph::Plan(CudnnRounding rounding, int64_t most_workspace,
                                                      const std::string& choice) {
  RETURN_IF_ERROR(status_);
  ASSIGN_OR_RETURN(CudnnDescriptor graph, Make(cuda::kDnnGraph));
  if (target_.handle_ != nullptr)
    RETURN_IF_ERROR(graph.Set(cuda::kDnnGraphHandle, cuda::kDnnTypeHandle, 1, &target_.handle_));
  RETURN_IF_ERROR(graph.Set(cuda::kDnnGraphOperations, operations_));
  RETURN_IF_ERROR(graph.Finalize());
  std::unique_ptr<CudnnPlan> made;
  if (!choice.empty()) {
    ASSIGN_OR_RETURN(made, FirstPlan(&graph, rounding, most_workspace, choice));
    if (made != nullptr) return made;
  }
  ASSIGN_OR_RETURN(made, FirstPlan(&graph, rounding, most_workspace, ""));
  if (made == nullptr) return absl::UnimplementedError("cuDNN has no engine for this graph");
  return made;
}

Status CudnnPlan::Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const {
  ASSIGN_OR_RETURN(CudnnDescriptor pack, CudnnDescriptor::Make(target_.library_, cuda::kDnnVariantPack));
  std::vector<int64_t> ids = operands_;
  std::vector<const void*> pointers(operands.begin(), operands.end());
  for (size_t i = 0; i < numbers_.size(); ++i) {
    ids.push_back(numbers_[i]);
    pointers.push_back(&values_[i]);
  }
  const int64_t count = static_cast<int64_t>(ids.size());
  RETURN_IF_ERROR(pack.Set(cuda::kDnnPackIds, cuda::kDnnTypeI64, count, ids.data()));
  RETURN_IF_ERROR(pack.Set(cuda::kDnnPackPointers, cuda::kDnnTypePointer, count, pointers.data()));
  RETURN_IF_ERROR(pack.Set(cuda::kDnnPackWorkspace, cuda::kDnnTypePointer, 1, &workspace));
  RETURN_IF_ERROR(pack.Finalize());
  const std::lock_guard<std::mutex> lock(HandleMutex());
  RETURN_IF_CUDNN_ERROR(target_.library_, cudnnSetStream, target_.handle_, stream.handle());
  RETURN_IF_CUDNN_ERROR(target_.library_, cudnnBackendExecute, target_.handle_, plan_.get(), pack.get());
  return absl::OkStatus();
}

}  // namespace mslua
