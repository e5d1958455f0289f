#include "core/runtime/device_executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/device/device.h"
#include "core/device/kernel_set.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/device_text.h"
#include "core/op/rank_call.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/collective_node.h"
#include "core/runtime/device_collective.h"
#include "core/runtime/device_store.h"
#include "core/runtime/guard.h"
#include "core/runtime/placed_graph.h"

namespace mslua {
namespace {

constexpr int64_t kScalarStride = 64;
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The five largest values of a plan, for an error about memory.
std::string LargestOf(const Graph& graph) {
  std::vector<std::pair<int64_t, int32_t>> sizes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!IsPassive(graph.nodes[i]) && !graph.nodes[i].outputs.empty())
      sizes.emplace_back(graph.nodes[i].outputs[0].bytes(), static_cast<int32_t>(i));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(5, sizes.size()); ++i) {
    const Node& n = graph.nodes[sizes[i].second];
    absl::StrAppend(&text, "\n  ", ToString(n.outputs[0]), " of ", WhereOf(n));
  }
  return text;
}

class DeviceExecutable : public Executable {
 public:
  Status Init(Graph graph, Store* store, const CompileOptions& options) {
    graph_ = std::move(graph);
    store_ = store;
    device_ = options.device;
    nccl_ = options.nccl;
    if (options.groups != nullptr) timeout_ = options.groups->timeout();
    RETURN_IF_ERROR(device_->Enter());
    ASSIGN_OR_RETURN(stream_, device_->MakeStream());
    if (store != nullptr) {
      ASSIGN_OR_RETURN(mirror_, DeviceStore::Of(store, device_));
    }
    KernelSet kernels(device_, DevicePrelude(), KernelSet::UserFolder());
    std::vector<Prepared> prepared(graph_.nodes.size());
    std::vector<int64_t> scratch(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsPassive(graph_.nodes[i])) continue;
      auto made = Prepare(static_cast<int32_t>(i), options, &kernels);
      if (!made.ok()) return Annotate(made.status(), WhereOf(graph_.nodes[i]));
      prepared[i] = *std::move(made);
      scratch[i] = prepared[i].program.scratch_bytes;
    }
    plan_ = PlanMemory(graph_, scratch, false);
    RETURN_IF_ERROR(FindInputs());
    RETURN_IF_ERROR(Allocate());
    RETURN_IF_ERROR(kernels.Compile());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!IsPassive(graph_.nodes[i]))
        RETURN_IF_ERROR(AddLaunches(static_cast<int32_t>(i), std::move(prepared[i]), kernels));
    }
    RETURN_IF_ERROR(FindOutputs());
    arena_pieces_ = ArenaOf(graph_, plan_, scratch);
    report_ = ReportOf(graph_, plan_, static_cast<int64_t>(launch_names_.size()));
    return absl::OkStatus();
  }

  // What a failed run has enqueued reads and writes memory that goes with this object.
  ~DeviceExecutable() override {
    if (device_ != nullptr && device_->Enter().ok()) stream_.Wait().IgnoreError();
  }

  Status BindInput(absl::string_view name, const void* data) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kData));
    BindInputAt(position, data);
    return absl::OkStatus();
  }
  void BindInputAt(int position, const void* data) override { external_[position].data = data; }
  Status SetScalar(absl::string_view name, double value) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kScalar));
    SetScalarAt(position, value);
    return absl::OkStatus();
  }
  void SetScalarAt(int position, double value) override {
    StoreDouble(external_[position].dtype, static_cast<char*>(host_scalars_.data()) + position * kScalarStride, 0,
                value);
  }

  Status Run() override {
    if (ABSL_PREDICT_TRUE(!guarded_ || store_ == nullptr)) return RunStep();
    store_->OpenAll();
    const Status status = RunStep();
    store_->CloseAll();
    return status;
  }

  Status RunStep() {
    for (size_t i = 0; i < external_.size(); ++i) {
      if (external_[i].kind == kData && external_[i].data == nullptr)
        return absl::FailedPreconditionError(absl::StrCat("data input '", input_names_[i], "' was never bound"));
    }
    RETURN_IF_ERROR(device_->Enter());
    const Status status = RunOnDevice();
    // What this rank has enqueued waits for the others; they are told, and nothing waits any more.
    if (!status.ok()) return over_nccl_ ? nccl_->Fail(status) : status;
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty()) mirror_->DeviceWrote(*store_->Find(o.updates));
    }
    return CheckFaults();
  }

  void SetTimeline(std::vector<int64_t>* timeline) override { timeline_ = timeline; }
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return launch_names_; }
  const std::vector<ArenaEntry>& arena() const override { return arena_pieces_; }

  TensorView Output(int i) const override {
    const GraphOutput& o = graph_.outputs[i];
    if (o.updates.empty()) return {graph_.TypeOf(o.value), host_outputs_[i]};
    const Store::Entry& entry = *store_->Find(o.updates);
    // A device that fails here has no values to give: the next call says so.
    const StatusOr<TensorView> value = store_->Read(entry);
    if (!value.ok()) failed_ = value.status();
    return {entry.type, Store::Address(entry)};
  }
  const Graph& graph() const override { return graph_; }
  const std::vector<std::string>& inputs() const override { return input_names_; }
  const PlanReport& report() const override { return report_; }
  PlanReport& mutable_report() { return report_; }

 private:
  // A node before memory is planned: its kernels by number, or its collective.
  struct Prepared {
    DeviceProgram program;
    std::vector<int> numbers;
    std::unique_ptr<Kernel> collective;
    NcclGroup* group = nullptr;  // of a collective over NCCL
    // A library's kernel, which runs after so many steps of the program.
    std::shared_ptr<const LibraryKernel> library;
    size_t library_at = 0;
    int64_t workspace_at = 0;  // in the node's scratch memory
  };
  struct Launch {
    DeviceFunction function;
    int64_t blocks = 0;
    int threads = 0;
    std::vector<void*> pointers;                   // inputs, outputs, scratch memory, fault
    std::shared_ptr<const LibraryKernel> library;  // in place of the function
    void* workspace = nullptr;                     // of the library
  };
  // A collective that runs on the host: its operands are copied out before and its results in after.
  struct Staged {
    std::unique_ptr<Kernel> kernel;
    std::vector<std::pair<void*, int64_t>> device_in, device_out;  // address, bytes
    std::vector<void*> host;                                       // inputs, then outputs
    // Between a collective's start and its end its operands stay in host memory: the start copies nothing in, the end
    // takes what lies there.
    bool starts = false;
    const Staged* started = nullptr;
    int32_t node = 0;
    void* scratch = nullptr;
    PinnedMemory memory;
  };
  // Launches up to the next collective, which are captured as one graph, and that collective.
  struct Section {
    std::vector<int32_t> nodes;
    std::vector<size_t> first;  // of every node, its first launch
    std::vector<Launch> launches;
    std::unique_ptr<Staged> collective;
    std::unique_ptr<DeviceCollective> over_nccl;
    CapturedGraph graph;
    bool ended() const { return collective != nullptr || over_nccl != nullptr; }
  };
  struct External {
    std::string kind;
    DType dtype = DType::kF32;
    int64_t bytes = 0;
    const void* data = nullptr;  // of the host
    void* device = nullptr;
  };
  struct Copy {
    void *to, *from, *before;  // before: not null where another copy may write `from`
    int64_t bytes;
  };
  struct FaultSlot {
    int32_t node;
  };

  OpSpec SpecOf(int32_t node, std::vector<TensorType>* inputs) const {
    const Node& n = graph_.nodes[node];
    inputs->clear();
    for (Value v : n.inputs) inputs->push_back(graph_.TypeOf(v));
    return {n.attrs, *inputs, absl::MakeConstSpan(n.outputs.data(), n.outputs.size())};
  }

  StatusOr<Prepared> Prepare(int32_t node, const CompileOptions& options, KernelSet* kernels) {
    const Node& n = graph_.nodes[node];
    Prepared p;
    if (IsCollective(n) && n.attrs.Ints("group").size() > 1) {
      if (nccl_ != nullptr && RunsOverNccl(graph_, n)) {
        ASSIGN_OR_RETURN(p.group, nccl_->Get(n.attrs.Ints("group"), SourceOf(graph_, n)));
        if (p.group != nullptr) return p;
      }
      ASSIGN_OR_RETURN(p.collective, MakeCollectiveKernel(graph_, node, options.groups, &calls_));
      return p;
    }
    if (!n.op->device)
      return absl::UnimplementedError(absl::StrCat(n.op->name, " has no kernel for a device: leave out --device cuda"));
    std::vector<TensorType> inputs;
    const OpSpec spec = SpecOf(node, &inputs);
    ASSIGN_OR_RETURN(const LibraryProgram library, LibraryOf(n, spec));
    if (library.kernel != nullptr) {
      p.library = library.kernel;
      p.library_at = library.before.size();
      p.workspace_at = Aligned(library.scratch_bytes);
      p.program.steps = library.before;
      p.program.steps.insert(p.program.steps.end(), library.after.begin(), library.after.end());
      p.program.scratch_bytes = p.workspace_at + p.library->workspace_bytes();
      has_library_ = true;
    } else {
      ASSIGN_OR_RETURN(p.program, n.op->device(spec));
    }
    for (const DeviceStep& step : p.program.steps)
      p.numbers.push_back(kernels->Add(DeviceBody(spec, step), DevicePointers(spec)));
    if (n.op->device_fault && p.library == nullptr) faults_.push_back({node});
    return p;
  }

  // A library's kernel, without one where text has to do. Equal calls share theirs: some take a second to make.
  StatusOr<LibraryProgram> LibraryOf(const Node& n, const OpSpec& spec) {
    std::string call = n.op->name;
    for (const TensorType& t : spec.inputs) absl::StrAppend(&call, " ", ToString(t));
    for (const auto& [name, value] : spec.attrs.items()) absl::StrAppend(&call, " ", name, "=", AttrText(value));
    const auto found = libraries_.find(call);
    if (found != libraries_.end()) return found->second;
    ASSIGN_OR_RETURN(LibraryProgram made, FindLibraryKernel(n.op->name, spec));
    return libraries_.emplace(call, std::move(made)).first->second;
  }

  Status FindInputs() {
    for (int32_t i : graph_.Inputs()) {
      const Node& n = graph_.nodes[i];
      External e;
      e.kind = n.attrs.Str("kind");
      e.dtype = n.outputs[0].dtype;
      e.bytes = n.outputs[0].bytes();
      input_names_.push_back(n.attrs.Str("name"));
      position_of_node_[i] = static_cast<int>(external_.size());
      if (e.kind == kParameter || e.kind == kState) {
        const Store::Entry* entry = store_ == nullptr ? nullptr : store_->Find(input_names_.back());
        if (entry == nullptr)
          return absl::NotFoundError(absl::StrCat("the store has no tensor named '", input_names_.back(), "'"));
        if (entry->type != n.outputs[0])
          return absl::InvalidArgumentError(absl::StrCat("'", input_names_.back(), "' is ", ToString(entry->type),
                                                         " in the store and ", ToString(n.outputs[0]),
                                                         " in the graph"));
      } else if (e.kind == kScalar && n.outputs[0].elements() != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("scalar input '", input_names_.back(), "' has ", n.outputs[0].elements(), " elements"));
      }
      external_.push_back(std::move(e));
    }
    return absl::OkStatus();
  }

  Status Allocate() {
    int64_t bytes = Aligned(plan_.workspace_bytes);
    const auto take = [&bytes](int64_t size) {
      const int64_t at = bytes;
      bytes += Aligned(size);
      return at;
    };
    const int64_t constants = take(plan_.constant_bytes);
    const int64_t scalars = take(static_cast<int64_t>(external_.size()) * kScalarStride);
    const int64_t faults = take(static_cast<int64_t>(faults_.size() * sizeof(DeviceFault)));
    std::vector<int64_t> data;
    for (const External& e : external_) data.push_back(e.kind == kData ? take(e.bytes) : -1);
    auto memory = device_->Allocate(std::max(bytes, kAlignment));
    if (!memory.ok()) {
      ASSIGN_OR_RETURN(const int64_t free, device_->FreeBytes());
      return Annotate(memory.status(), absl::StrCat("a step needs ", bytes, " bytes of the device's memory, which has ",
                                                    free, " free; its largest values:", LargestOf(graph_), "\n"));
    }
    memory_ = *std::move(memory);
    base_ = static_cast<char*>(memory_.data());
    constants_ = base_ + constants;
    scalars_ = base_ + scalars;
    device_faults_ = base_ + faults;
    for (size_t i = 0; i < external_.size(); ++i) {
      if (data[i] >= 0) external_[i].device = base_ + data[i];
    }
    ASSIGN_OR_RETURN(host_scalars_, device_->AllocatePinned(
                                        std::max<int64_t>(1, static_cast<int64_t>(external_.size())) * kScalarStride));
    std::memset(host_scalars_.data(), 0, std::max<size_t>(1, external_.size()) * kScalarStride);
    ASSIGN_OR_RETURN(host_faults_, device_->AllocatePinned(static_cast<int64_t>(std::max<size_t>(1, faults_.size()) *
                                                                                sizeof(DeviceFault))));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (n.op->name != "constant") continue;
      const std::string& bytes_of = n.attrs.Str("data");
      RETURN_IF_ERROR(stream_.CopyIn(constants_ + plan_.values[i][0].offset, bytes_of.data(),
                                     static_cast<int64_t>(bytes_of.size())));
    }
    return stream_.Wait();
  }

  StatusOr<void*> Address(Value v) {
    const Placement& p = plan_.values[v.node][v.output];
    switch (p.kind) {
      case Placement::kArena:
        return static_cast<void*>(base_ + p.offset);
      case Placement::kConstant:
        return static_cast<void*>(constants_ + p.offset);
      case Placement::kStore:
        return mirror_->AddressOf(*store_->Find(graph_.nodes[p.input].attrs.Str("name")));
      case Placement::kScalar:
        return static_cast<void*>(scalars_ + position_of_node_.at(p.input) * kScalarStride);
      case Placement::kExternal:
        return external_[position_of_node_.at(p.input)].device;
      case Placement::kShared:
        break;
    }
    return absl::InternalError("a value in memory of other ranks");
  }

  Status AddLaunches(int32_t node, Prepared prepared, const KernelSet& kernels) {
    const Node& n = graph_.nodes[node];
    std::vector<void*> pointers;
    for (Value v : n.inputs) {
      ASSIGN_OR_RETURN(pointers.emplace_back(), Address(v));
    }
    for (int o = 0; o < static_cast<int>(n.outputs.size()); ++o) {
      ASSIGN_OR_RETURN(pointers.emplace_back(), Address({node, o}));
    }
    if (sections_.empty() || sections_.back().ended()) sections_.emplace_back();
    Section& section = sections_.back();
    launch_names_.emplace_back(node, prepared.group != nullptr ? "nccl"
                                     : prepared.collective     ? "staged"
                                     : prepared.library        ? prepared.library->name()
                                                               : "cuda");
    if (prepared.group != nullptr) {
      const auto started = n.inputs.empty() ? streamed_.end() : streamed_.find(n.inputs[0].node);
      ASSIGN_OR_RETURN(section.over_nccl,
                       DeviceCollective::Make(graph_, node, nccl_.get(), prepared.group, pointers,
                                              RankCallOf(*n.op) == RankCall::kEndAllReduce ? started->second : nullptr,
                                              device_, timeout_));
      streamed_[node] = section.over_nccl.get();
      over_nccl_ = true;
      return absl::OkStatus();
    }
    if (prepared.collective) {
      ASSIGN_OR_RETURN(section.collective, Stage(node, std::move(prepared.collective), pointers));
      return absl::OkStatus();
    }
    pointers.push_back(plan_.scratch[node] < 0 ? nullptr : base_ + plan_.scratch[node]);
    pointers.push_back(nullptr);
    for (size_t f = 0; f < faults_.size(); ++f) {
      if (faults_[f].node == node) pointers.back() = device_faults_ + f * sizeof(DeviceFault);
    }
    section.nodes.push_back(node);
    section.first.push_back(section.launches.size());
    for (size_t s = 0; s <= prepared.numbers.size(); ++s) {
      if (prepared.library && s == prepared.library_at) AddLibrary(section, prepared, pointers);
      if (s == prepared.numbers.size()) break;
      const DeviceStep& step = prepared.program.steps[s];
      section.launches.push_back(
          {kernels.function(prepared.numbers[s]), step.blocks, step.threads, pointers, nullptr, nullptr});
    }
    return absl::OkStatus();
  }

  static void AddLibrary(Section& section, const Prepared& prepared, std::vector<void*> pointers) {
    Launch launch;
    pointers.pop_back();  // it finds no faults
    char* const scratch = static_cast<char*>(pointers.back());
    launch.workspace = prepared.library->workspace_bytes() > 0 ? scratch + prepared.workspace_at : nullptr;
    launch.pointers = std::move(pointers);
    launch.library = prepared.library;
    section.launches.push_back(std::move(launch));
  }

  StatusOr<std::unique_ptr<Staged>> Stage(int32_t node, std::unique_ptr<Kernel> kernel,
                                          const std::vector<void*>& pointers) {
    const Node& n = graph_.nodes[node];
    auto staged = std::make_unique<Staged>();
    staged->kernel = std::move(kernel);
    staged->node = node;
    const RankCall call = RankCallOf(*n.op);
    staged->starts = call == RankCall::kStartAllReduce || call == RankCall::kStartSend;
    if (call == RankCall::kEndAllReduce || call == RankCall::kEndSend) {
      staged->started = staged_.at(n.inputs[0].node);
    } else {
      staged_[node] = staged.get();
    }
    int64_t bytes = 0;
    std::vector<int64_t> offsets;
    const auto place = [&](const TensorType& type, std::vector<std::pair<void*, int64_t>>* list) {
      list->emplace_back(pointers[offsets.size()], type.bytes());
      offsets.push_back(bytes);
      bytes += BucketStride(type);
    };
    for (Value v : n.inputs) place(graph_.TypeOf(v), &staged->device_in);
    for (const TensorType& t : n.outputs) place(t, &staged->device_out);
    const int64_t scratch = bytes;
    bytes += staged->kernel->scratch_bytes();
    ASSIGN_OR_RETURN(staged->memory, device_->AllocatePinned(std::max<int64_t>(bytes, 1)));
    for (const int64_t at : offsets) staged->host.push_back(static_cast<char*>(staged->memory.data()) + at);
    staged->scratch = static_cast<char*>(staged->memory.data()) + scratch;
    return staged;
  }

  Status FindOutputs() {
    int64_t bytes = 0, before = 0;
    std::vector<int64_t> at;
    for (const GraphOutput& o : graph_.outputs) {
      at.push_back(bytes);
      if (o.updates.empty()) bytes += Aligned(graph_.TypeOf(o.value).bytes());
    }
    ASSIGN_OR_RETURN(host_output_memory_, device_->AllocatePinned(std::max<int64_t>(bytes, 1)));
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      ASSIGN_OR_RETURN(void* const from, Address(o.value));
      host_outputs_.push_back(static_cast<char*>(host_output_memory_.data()) + at[k]);
      const int64_t size = graph_.TypeOf(o.value).bytes();
      if (o.updates.empty()) {
        copies_out_.push_back({host_outputs_.back(), from, nullptr, size});
        continue;
      }
      ASSIGN_OR_RETURN(void* const to, mirror_->AddressOf(*store_->Find(o.updates)));
      if (from == to) continue;
      const Placement& p = plan_.values[o.value.node][o.value.output];
      Copy copy = {to, from, nullptr, size};
      if (p.kind == Placement::kStore) {
        copy.before = reinterpret_cast<void*>(before + 1);  // an offset, until the memory is there
        before += Aligned(size);
      }
      copies_.push_back(copy);
    }
    ASSIGN_OR_RETURN(before_, device_->Allocate(before));
    for (Copy& c : copies_) {
      if (c.before != nullptr)
        c.before = static_cast<char*>(before_.data()) + (reinterpret_cast<intptr_t>(c.before) - 1);
    }
    return absl::OkStatus();
  }

  Status RunOnDevice() {
    if (mirror_ != nullptr) RETURN_IF_ERROR(mirror_->Upload(stream_));
    for (const External& e : external_) {
      if (e.kind == kData) RETURN_IF_ERROR(stream_.CopyIn(e.device, e.data, e.bytes));
    }
    RETURN_IF_ERROR(timeline_ != nullptr ? RunTimed() : RunSections());
    return Wait();
  }
  // Until all has run. Where other ranks take part, it is watched that they do.
  Status Wait() { return over_nccl_ ? nccl_->Wait(stream_) : stream_.Wait(); }

  Status Begin() {
    RETURN_IF_ERROR(
        stream_.CopyIn(scalars_, host_scalars_.data(), static_cast<int64_t>(external_.size()) * kScalarStride));
    return stream_.Fill(device_faults_, 0, static_cast<int64_t>(faults_.size() * sizeof(DeviceFault)));
  }
  // Updates that were not made in place, and what the host reads.
  Status End() {
    for (const Copy& c : copies_) {
      if (c.before != nullptr) RETURN_IF_ERROR(stream_.CopyWithin(c.before, c.from, c.bytes));
    }
    for (const Copy& c : copies_)
      RETURN_IF_ERROR(stream_.CopyWithin(c.to, c.before != nullptr ? c.before : c.from, c.bytes));
    for (const Copy& c : copies_out_) RETURN_IF_ERROR(stream_.CopyOut(c.to, c.from, c.bytes));
    return stream_.CopyOut(host_faults_.data(), device_faults_,
                           static_cast<int64_t>(faults_.size() * sizeof(DeviceFault)));
  }

  Status Enqueue(const Launch& l) {
    if (l.library != nullptr) return l.library->Enqueue(stream_, l.pointers, l.workspace);
    return stream_.Launch(l.function, l.blocks, l.threads, l.pointers);
  }

  Status RunStaged(Staged& staged) {
    for (size_t i = 0; i < staged.device_in.size() && staged.started == nullptr; ++i)
      RETURN_IF_ERROR(stream_.CopyOut(staged.host[i], staged.device_in[i].first, staged.device_in[i].second));
    RETURN_IF_ERROR(Wait());
    void* const* const results = staged.host.data() + staged.device_in.size();
    const Status s = staged.kernel->Run({staged.host.data(), results, staged.scratch});
    if (!s.ok()) return Annotate(s, WhereOf(graph_.nodes[staged.node]));
    if (calls_.any()) RETURN_IF_ERROR(calls_.Progress());
    const Staged& from = staged.started == nullptr ? staged : *staged.started;
    for (size_t o = 0; o < staged.device_out.size() && !staged.starts; ++o)
      RETURN_IF_ERROR(stream_.CopyIn(staged.device_out[o].first, from.host[from.device_in.size() + o],
                                     staged.device_out[o].second));
    return absl::OkStatus();
  }

  // The first run captures what it enqueues; the captured sections are what every run launches. Libraries load kernels
  // at their first call, which a capture may refuse: where there are any, the first run is a plain one.
  Status RunSections() {
    if (sections_.empty() || sections_.back().ended()) sections_.emplace_back();
    const bool plain = has_library_ && !warm_;
    if (!plain && !captured_) RETURN_IF_ERROR(Capture());
    for (size_t k = 0; k < sections_.size(); ++k) {
      RETURN_IF_ERROR(plain ? EnqueueSection(k) : stream_.Run(sections_[k].graph));
      if (sections_[k].ended()) RETURN_IF_ERROR(RunCollective(sections_[k]));
    }
    warm_ = true;
    return absl::OkStatus();
  }
  Status RunCollective(Section& s) {
    if (s.over_nccl == nullptr) return RunStaged(*s.collective);
    return s.over_nccl->Enqueue(stream_);
  }
  Status EnqueueSection(size_t k) {
    if (k == 0) RETURN_IF_ERROR(Begin());
    for (const Launch& l : sections_[k].launches) RETURN_IF_ERROR(Enqueue(l));
    return k + 1 == sections_.size() ? End() : absl::OkStatus();
  }
  Status Capture() {
    for (size_t k = 0; k < sections_.size(); ++k) {
      RETURN_IF_ERROR(stream_.BeginCapture());
      const Status made = EnqueueSection(k);
      auto graph = stream_.EndCapture();
      RETURN_IF_ERROR(made);
      RETURN_IF_ERROR(graph.status());
      sections_[k].graph = *std::move(graph);
    }
    captured_ = true;
    return absl::OkStatus();
  }

  // Node by node, each waited for.
  Status RunTimed() {
    RETURN_IF_ERROR(Begin());
    RETURN_IF_ERROR(stream_.Wait());
    timeline_->clear();
    timeline_->push_back(Nanoseconds());
    const auto reached = [this]() -> Status {
      RETURN_IF_ERROR(Wait());
      timeline_->push_back(Nanoseconds());
      return absl::OkStatus();
    };
    for (Section& s : sections_) {
      for (size_t i = 0; i < s.nodes.size(); ++i) {
        const size_t end = i + 1 < s.first.size() ? s.first[i + 1] : s.launches.size();
        for (size_t l = s.first[i]; l < end; ++l) RETURN_IF_ERROR(Enqueue(s.launches[l]));
        RETURN_IF_ERROR(reached());
      }
      if (!s.ended()) continue;
      RETURN_IF_ERROR(RunCollective(s));
      RETURN_IF_ERROR(reached());
    }
    RETURN_IF_ERROR(End());
    return reached();
  }

  Status CheckFaults() const {
    if (!failed_.ok()) return failed_;
    const auto* const faults = static_cast<const DeviceFault*>(host_faults_.data());
    for (size_t f = 0; f < faults_.size(); ++f) {
      if (faults[f].set == 0) continue;
      const Node& n = graph_.nodes[faults_[f].node];
      std::vector<TensorType> inputs;
      return Annotate(n.op->device_fault(SpecOf(faults_[f].node, &inputs), faults[f]), WhereOf(n));
    }
    return absl::OkStatus();
  }

  StatusOr<int> PositionOf(absl::string_view name, absl::string_view kind) const {
    for (size_t i = 0; i < input_names_.size(); ++i) {
      if (input_names_[i] == name && external_[i].kind == kind) return static_cast<int>(i);
    }
    return absl::NotFoundError(absl::StrCat("the graph has no ", kind, " input named '", name, "'"));
  }

  Graph graph_;
  Store* store_ = nullptr;
  Device* device_ = nullptr;
  std::shared_ptr<DeviceStore> mirror_;
  DeviceStream stream_;
  MemoryPlan plan_;
  std::vector<std::string> input_names_;
  std::vector<External> external_;
  absl::flat_hash_map<int32_t, int> position_of_node_;
  DeviceMemory memory_, before_;
  char *base_ = nullptr, *constants_ = nullptr, *scalars_ = nullptr, *device_faults_ = nullptr;
  PinnedMemory host_scalars_, host_faults_, host_output_memory_;
  std::vector<void*> host_outputs_;
  std::vector<FaultSlot> faults_;
  std::vector<Section> sections_;
  absl::flat_hash_map<int32_t, Staged*> staged_;              // by node
  absl::flat_hash_map<int32_t, DeviceCollective*> streamed_;  // by node
  std::shared_ptr<NcclWorld> nccl_;
  bool over_nccl_ = false;  // some collective is
  absl::Duration timeout_;
  std::vector<Copy> copies_, copies_out_;
  std::vector<std::pair<int32_t, const char*>> launch_names_;
  std::vector<ArenaEntry> arena_pieces_;
  std::vector<int64_t>* timeline_ = nullptr;
  StartedCalls calls_;
  PlanReport report_;
  absl::flat_hash_map<std::string, LibraryProgram> libraries_;  // by call
  bool has_library_ = false, warm_ = false, captured_ = false;
  mutable Status failed_;
  const bool guarded_ = GuardsMemory();
};

}  // namespace

StatusOr<std::unique_ptr<Executable>> MakeDeviceExecutable(Graph graph, Store* store, const CompileOptions& options,
                                                           std::chrono::steady_clock::time_point start) {
  auto executable = std::make_unique<DeviceExecutable>();
  RETURN_IF_ERROR(executable->Init(std::move(graph), store, options));
  executable->mutable_report().compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace mslua
