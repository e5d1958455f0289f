// Graphs of operations that cuDNN has kernels ("engines") for: convolutions, and attention as the matrix products,
// elementwise operations and reductions that it consists of.
//
// An engine is the library's first choice among those that give the same bits in every run and round as
// `CudnnRounding` allows.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/device/device.h"

namespace mslua {

// How engines may round what they multiply and add in a graph with operands of float32.
enum class CudnnRounding {
  kNone,  // as float32
  kTf32,  // operands to TF32, on tensor cores
  kFree   // as the library likes: attention, of whose operands the statistics alone are float32
};

// A descriptor of the library's, freed when it goes.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  CudnnDescriptor(CudnnDescriptor&& other) noexcept { *this = std::move(other); }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();
  static StatusOr<CudnnDescriptor> Make(const cuda::Library<cuda::Cudnn>* library, int type);

  Status Set(int name, int type, int64_t count, const void* values);
  Status Set(int name, const CudnnDescriptor& value);
  Status Set(int name, const std::vector<CudnnDescriptor>& values);
  Status Finalize();
  // How many values there are; at most `asked` are written to `values`.
  StatusOr<int64_t> Get(int name, int type, int64_t asked, void* values) const;
  cuda::DnnDescriptor get() const { return handle_; }

 private:
  const cuda::Library<cuda::Cudnn>* library_ = nullptr;
  cuda::DnnDescriptor handle_ = nullptr;
};

// Whom plans are made for: the device of this process, or one that is known by its properties alone.
class CudnnTarget {
 public:
  // The device in use, whose context is the thread's. One handle for the process.
  static StatusOr<CudnnTarget> ThisDevice();
  // `properties`: JSON text, as the library's own. Plans of it cannot run.
  static StatusOr<CudnnTarget> Described(const std::string& properties);
  // 91900 is 9.19.0.
  size_t version() const { return library_->call.cudnnGetVersion(); }

 private:
  friend class CudnnGraph;
  friend class CudnnPlan;
  const cuda::Library<cuda::Cudnn>* library_ = nullptr;
  cuda::DnnHandle handle_ = nullptr;
  std::shared_ptr<CudnnDescriptor> properties_;
};

// A graph that can run.
class CudnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // "engine 38"
  const std::string& engine() const { return engine_; }
  // The engine and the values of its knobs, by number: "engine 38, 2=5, 14=3".
  const std::string& choice() const { return choice_; }
  // What the library says of its numbers: cuda::kDnnTensorCore, ...
  const std::vector<int>& notes() const { return notes_; }
  // `operands`: of the device, in the order of CudnnGraph::Operand, 16-byte aligned.
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const;

 private:
  friend class CudnnGraph;
  CudnnTarget target_;
  CudnnDescriptor graph_, config_, plan_;
  std::vector<int64_t> operands_, numbers_;  // the library's names of tensors
  std::vector<float> values_;                // of numbers_
  int64_t workspace_bytes_ = 0;
  std::string engine_, choice_;
  std::vector<int> notes_;
};

// The window of a convolution along height and width.
struct CudnnWindow {
  std::vector<int64_t> stride, dilation, before, after;
};

class CudnnGraph {
 public:
  explicit CudnnGraph(CudnnTarget target) : target_(std::move(target)) {}

  // Tensors, by number. Strides count elements.
  using Sizes = std::vector<int64_t>;
  int Operand(DType type, const Sizes& sizes, const Sizes& strides);
  // A value between operations, row-major, that is stored nowhere.
  int Inner(DType type, const Sizes& sizes);
  int Inner(DType type, const Sizes& sizes, const Sizes& strides);
  // A float or a 32-bit integer that all elements of another tensor meet.
  int Number(float value, int rank);

  // y = x * w (cross-correlation) and its gradients, whose sizes are always in the order n, c, h, w and o, c, kh, kw;
  // sums are float32.
  void Convolution(int x, int w, int y, const CudnnWindow& window);
  void ConvolutionGradInput(int dy, int w, int dx, const CudnnWindow& window);
  void ConvolutionGradWeight(int x, int dy, int dw, const CudnnWindow& window);
  // y = mode(x, b); kDnnSelect: t ? x : b. -1: not there.
  void Pointwise(cuda::DnnPointwise mode, int x, int b, int y, int t = -1);
  // y = each element's place along `axis` of x.
  void Index(int x, int y, int64_t axis);
  // Over the dimensions in which y has one element.
  void Reduce(cuda::DnnReduce mode, int x, int y);
  void Matmul(int a, int b, int c);
  // The same elements of another type of tensor.
  void Reshape(int x, int y);

  // Unimplemented where the library has no engine that is repeatable and rounds as `rounding` allows. `most_workspace`:
  // of bytes.
  // `choice`: CudnnPlan::choice() of an earlier plan, which is made again where the library still proposes it.
  StatusOr<std::unique_ptr<CudnnPlan>> Plan(CudnnRounding rounding, int64_t most_workspace,
                                            const std::string& choice = "");

 private:
  StatusOr<CudnnDescriptor> Make(int type) { return CudnnDescriptor::Make(target_.library_, type); }
  int AddTensor(DType type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool by_value);
  // Keeps the first error of what `make` does.
  template <class F>
  void Add(F make);
  Status AddConvolution(int type, int first_attribute, const std::vector<std::pair<int, int>>& tensors,
                        const CudnnWindow& window);
  Status SetTensor(CudnnDescriptor& operation, int name, int tensor);
  StatusOr<std::string> KnobsOf(const CudnnDescriptor& config);
  // The first that may be used and is of that choice, empty: of any; null where there is none.
  StatusOr<std::unique_ptr<CudnnPlan>> FirstPlan(CudnnDescriptor* graph, CudnnRounding rounding, int64_t most_workspace,
                                                 const std::string& choice);
  StatusOr<std::vector<CudnnDescriptor>> Candidates(const CudnnDescriptor& graph, int mode);
  bool Suits(const std::vector<int>& notes, CudnnRounding rounding) const;
  StatusOr<CudnnDescriptor> MakePlan(const CudnnDescriptor& config);

  CudnnTarget target_;
  std::deque<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> operations_, parts_;
  std::vector<int64_t> operands_, numbers_;
  std::vector<float> values_;
  bool float32_ = false;  // of some operand
  Status status_;
};

}  // namespace mslua
