#include "core/runtime/device_executable.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/device/device.h"
#include "core/device/kernel_set.h"
#include "core/graph/collective_node.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/device_text.h"
#include "core/op/formula.h"
#include "core/op/rank_call.h"
#include "core/passes/decisions.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/device_collective.h"
#include "core/runtime/device_layout.h"
#include "core/runtime/device_run.h"
#include "core/runtime/device_store.h"
#include "core/runtime/guard.h"
#include "core/runtime/placed_graph.h"

namespace mslua {
namespace {

constexpr int64_t kGuard = 256;  // bytes behind each value where launches are checked
constexpr uint8_t kGuardByte = 0xa5;
constexpr int64_t kFaultBytes = sizeof(DeviceFault);
constexpr int64_t kSlots = 2;  // steps that the device may have been given

int64_t Aligned(int64_t bytes) { return RoundUp(bytes, 256); }

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

class DeviceExecutable : public Executable, public DeviceRun {
 public:
  Status Init(Graph graph, Store* store, const CompileOptions& options) {
    graph_ = std::move(graph);
    store_ = store;
    device_ = options.device;
    nccl_ = options.nccl;
    decisions_ = options.decisions;
    check_ = device_->checks_launches();
    if (options.groups != nullptr) timeout_ = options.groups->timeout();
    RETURN_IF_ERROR(device_->Enter());
    ASSIGN_OR_RETURN(stream_, device_->MakeStream());
    if (store != nullptr) {
      ASSIGN_OR_RETURN(mirror_, DeviceStore::Of(store, device_));
      if (check_) mirror_->SetGuard(kGuard);
    }
    KernelSet kernels(device_, DevicePrelude(), KernelSet::UserFolder());
    std::vector<Prepared> prepared(graph_.nodes.size());
    std::vector<int64_t> scratch(graph_.nodes.size(), 0);
    std::vector<bool> over_nccl(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsPassive(graph_.nodes[i])) continue;
      auto made = Prepare(static_cast<int32_t>(i), options);
      if (!made.ok()) return Annotate(made.status(), WhereOf(graph_.nodes[i]));
      prepared[i] = *std::move(made);
      scratch[i] = prepared[i].program.scratch_bytes;
      over_nccl[i] = prepared[i].group != nullptr;
    }
    faults_ = FaultsOf(graph_);
    layout_ = LayOut(graph_, scratch, check_ ? kGuard : 0);
    ASSIGN_OR_RETURN(DeviceSteps steps, StepsOf(graph_, layout_, over_nccl));
    updates_ = std::move(steps.updates);
    for (const DeviceWork& work : steps.works) RETURN_IF_ERROR(AddKernels(work, &prepared, &kernels));
    RETURN_IF_ERROR(FindInputs());
    RETURN_IF_ERROR(Allocate());
    RETURN_IF_ERROR(kernels.Compile());
    for (size_t w = 0; w < steps.works.size(); ++w) {
      RETURN_IF_ERROR(AddJob(steps.works[w], steps.touched[w].lane, std::move(steps.schedule[w]), &prepared, kernels));
    }
    RETURN_IF_ERROR(MakeEvents());
    MakeSections();
    RETURN_IF_ERROR(FindOutputs());
    arena_pieces_ = ArenaOf(graph_, layout_.plan, scratch);
    report_ = ReportOf(graph_, layout_.plan, static_cast<int64_t>(launch_names_.size()));
    if (refused_ > 0)
      std::fprintf(stderr,
                   "mslua: note: %d algorithms of the checkpoint's plan are not in the libraries here: the same "
                   "mathematics, not the same bits\n",
                   refused_);
    decisions_ = nullptr;
    return absl::OkStatus();
  }

  // What a failed run has enqueued reads and writes memory that goes with this object.
  ~DeviceExecutable() override {
    if (device_ == nullptr || !device_->Enter().ok()) return;
    stream_.Wait().IgnoreError();
    copy_stream_.Wait().IgnoreError();
    sections_.clear();
  }

  Status BindInput(absl::string_view name, const void* data) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kData));
    BindInputAt(position, data);
    return absl::OkStatus();
  }
  void BindInputAt(int position, const void* data) override { external_[position].data = data; }
  // Outputs are made in device memory.
  bool BindOutput(int i, void* data) override { return false; }
  Status SetScalar(absl::string_view name, double value) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kScalar));
    SetScalarAt(position, value);
    return absl::OkStatus();
  }
  void SetScalarAt(int position, double value) override {
    StoreDouble(external_[position].dtype, scalars_.data() + position * kScalarStride, 0, value);
  }

  Status Run() override {
    RETURN_IF_ERROR(Start());
    return Finish();
  }

  // Where memory is guarded, the store is open while a step is on its way.
  Status Start() override {
    if (ABSL_PREDICT_TRUE(!guarded_ || store_ == nullptr)) return StartStep();
    store_->OpenAll();
    const Status status = StartStep();
    if (started_ == finished_) store_->CloseAll();
    return status;
  }
  Status Finish() override {
    const Status status = FinishStep();
    if (ABSL_PREDICT_FALSE(guarded_ && store_ != nullptr) && started_ == finished_) store_->CloseAll();
    return status;
  }

  Status StartStep() {
    for (size_t i = 0; i < external_.size(); ++i) {
      if (external_[i].kind == kData && external_[i].data == nullptr)
        return absl::FailedPreconditionError(absl::StrCat("data input '", input_names_[i], "' was never bound"));
    }
    if (started_ - finished_ >= StepsAhead()) return absl::InternalError("a step too many is on its way");
    RETURN_IF_ERROR(device_->Enter());
    FillSlot();
    const Status status = EnqueueStep();
    if (!status.ok()) return Failed(status, started_);
    ++started_;
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty()) mirror_->DeviceWrote(*store_->Find(o.updates));
    }
    return absl::OkStatus();
  }

  Status FinishStep() {
    if (started_ == finished_) return absl::InternalError("no step is on its way");
    RETURN_IF_ERROR(device_->Enter());
    const int64_t step = finished_++;
    const Status status = over_nccl_ ? nccl_->Wait(stream_) : done_[step % kSlots].Wait();
    if (!status.ok()) return Failed(status, step);
    return CheckFaults(step);
  }
  // Ranks of a job wait for each other in every step, and checked launches are waited for.
  int StepsAhead() const override { return over_nccl_ || staged_any_ || check_ ? 1 : kSlots; }

  void SetTimeline(std::vector<int64_t>* timeline) override { timeline_ = timeline; }
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return launch_names_; }
  const std::vector<ArenaEntry>& arena() const override { return arena_pieces_; }
  Device* device() const override { return device_; }
  int64_t device_bytes() const override { return layout_.bytes + report_.store_bytes; }
  KernelUse UseOf(size_t launch) const override { return uses_[launch]; }
  absl::Span<const int32_t> NodesOf(size_t launch) const override {
    const int32_t& node = launch_names_[launch].first;
    const auto together = updates_.find(node);
    return together == updates_.end() ? absl::MakeConstSpan(&node, 1) : absl::MakeConstSpan(together->second.nodes);
  }

  TensorView Output(int i) const override {
    const GraphOutput& o = graph_.outputs[i];
    if (o.updates.empty()) {
      const int64_t slot = (finished_ + kSlots - 1) % kSlots;
      return {graph_.TypeOf(o.value), SlotOut(slot) + output_at_[i]};
    }
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
  // A work of the step.
  struct Job {
    DeviceWork what;
    Lane lane = Lane::kCompute;
    std::vector<WorkEnd> waits;
    std::vector<Launch> launches;
    std::unique_ptr<Staged> staged;
    DeviceCollective* over_nccl = nullptr;
    // Recorded when it has been enqueued, in turn, where a work of another lane waits for it.
    std::vector<DeviceEvent> ended;
    bool calls() const { return what.kind == DeviceWork::kCall; }
    // The same in every step, so that it can be captured.
    bool repeats() const {
      const bool host =
          what.kind == DeviceWork::kInput || what.kind == DeviceWork::kMove || what.kind == DeviceWork::kBegin;
      return !host && staged == nullptr;
    }
  };
  // Jobs [first, last): one that does not repeat, or some that are captured as one graph, with their calls of NCCL.
  struct Section {
    size_t first = 0, last = 0;
    bool calls = false;
    CapturedGraph graph;
    std::shared_ptr<NcclGraph> graph_with_calls;
  };
  struct External {
    std::string kind;
    DType dtype = DType::kF32;
    int64_t bytes = 0;
    const void* data = nullptr;  // of the host
    int64_t pinned = 0;          // its place in a slot of host_inputs_
  };

  StatusOr<Prepared> Prepare(int32_t node, const CompileOptions& options) {
    const Node& n = graph_.nodes[node];
    Prepared p;
    if (IsCollective(n) && n.attrs.Ints("group").size() > 1) {
      if (nccl_ != nullptr && RunsOverNccl(graph_, n)) {
        ASSIGN_OR_RETURN(p.group, nccl_->Get(n.attrs.Ints("group"), SourceOf(graph_, n)));
        const auto [in, out] = BlocksOf(graph_, n);
        if (p.group != nullptr) p.program.scratch_bytes = in + out;
        if (p.group != nullptr) return p;
      }
      ASSIGN_OR_RETURN(p.collective, MakeCollectiveKernel(graph_, node, options.groups, &calls_));
      return p;
    }
    if (!n.op->device)
      return absl::UnimplementedError(absl::StrCat(n.op->name, " has no kernel for a device: leave out --device cuda"));
    std::vector<TensorType> inputs;
    const OpSpec spec = SpecOf(graph_, node, &inputs);
    ASSIGN_OR_RETURN(const LibraryProgram library, LibraryOf(n, spec));
    if (library.kernel != nullptr) {
      p.library = library.kernel;
      p.library_at = library.before.size();
      p.workspace_at = Aligned(library.scratch_bytes);
      p.program.steps = library.before;
      p.program.steps.insert(p.program.steps.end(), library.after.begin(), library.after.end());
      p.program.scratch_bytes = p.workspace_at + p.library->workspace_bytes();
    } else {
      ASSIGN_OR_RETURN(p.program, n.op->device(spec));
    }
    return p;
  }

  // The text of a work's kernels.
  Status AddKernels(const DeviceWork& work, std::vector<Prepared>* prepared, KernelSet* kernels) const {
    if (work.kind != DeviceWork::kNode && work.kind != DeviceWork::kUpdates) return absl::OkStatus();
    Prepared& p = (*prepared)[work.of];
    std::vector<TensorType> inputs;
    const OpSpec spec = SpecOf(graph_, work.of, &inputs);
    if (work.kind == DeviceWork::kUpdates) {
      ASSIGN_OR_RETURN(const ScalarProgram program, ParseScalarProgram(spec.attrs.Str("program")));
      p.numbers.push_back(kernels->Add(DeviceMapOfPieces(program, spec.inputs, spec.outputs), 2));
      return absl::OkStatus();
    }
    for (const DeviceStep& step : p.program.steps)
      p.numbers.push_back(kernels->Add(DeviceBody(spec, step), DevicePointers(spec)));
    return absl::OkStatus();
  }

  // A library's kernel, without one where text has to do. Equal calls share theirs: some take a second to make.
  StatusOr<LibraryProgram> LibraryOf(const Node& n, const OpSpec& spec) {
    std::string call = n.op->name;
    for (const TensorType& t : spec.inputs) absl::StrAppend(&call, " ", ToString(t));
    for (const auto& [name, value] : spec.attrs.items()) absl::StrAppend(&call, " ", name, "=", AttrText(value));
    const auto found = libraries_.find(call);
    if (found != libraries_.end()) return found->second;
    const std::string question = absl::StrCat(kLibraryQuestion, call);
    const std::string recorded = decisions_ == nullptr ? "" : decisions_->Find(question);
    ASSIGN_OR_RETURN(LibraryProgram made, FindLibraryKernel(n.op->name, spec, {device_->tf32(), recorded}));
    const std::string choice = made.kernel == nullptr ? "" : made.kernel->choice();
    if (!recorded.empty() && recorded != choice) ++refused_;
    if (decisions_ != nullptr && !choice.empty()) decisions_->Record(question, choice);
    return libraries_.emplace(call, std::move(made)).first->second;
  }

  Status FindInputs() {
    int64_t pinned = 0;
    for (int32_t i : graph_.Inputs()) {
      const Node& n = graph_.nodes[i];
      External e;
      e.kind = n.attrs.Str("kind");
      e.dtype = n.outputs[0].dtype;
      e.bytes = n.outputs[0].bytes();
      e.pinned = pinned;
      if (e.kind == kData) pinned += Aligned(e.bytes);
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
    scalars_.assign(external_.size() * kScalarStride, 0);
    slot_in_ = pinned + Aligned(static_cast<int64_t>(scalars_.size()));
    return absl::OkStatus();
  }

  Status Allocate() {
    auto memory = device_->Allocate(layout_.bytes);
    if (!memory.ok()) {
      ASSIGN_OR_RETURN(const int64_t free, device_->FreeBytes());
      return Annotate(memory.status(),
                      absl::StrCat("a step needs ", layout_.bytes, " bytes of the device's memory, which has ", free,
                                   " free; its largest values:", LargestOf(graph_), "\n"));
    }
    memory_ = *std::move(memory);
    base_ = static_cast<char*>(memory_.data());
    ASSIGN_OR_RETURN(host_in_, device_->AllocatePinned(std::max<int64_t>(1, slot_in_ * kSlots)));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (n.op->name != "constant") continue;
      const std::string& bytes_of = n.attrs.Str("data");
      RETURN_IF_ERROR(stream_.CopyIn(base_ + layout_.constants + layout_.plan.values[i][0].offset, bytes_of.data(),
                                     static_cast<int64_t>(bytes_of.size())));
    }
    return stream_.Wait();
  }

  StatusOr<void*> Address(Value v) {
    const Placement& p = layout_.plan.values[v.node][v.output];
    switch (p.kind) {
      case Placement::kArena:
        return static_cast<void*>(base_ + p.offset);
      case Placement::kConstant:
        return static_cast<void*>(base_ + layout_.constants + p.offset);
      case Placement::kStore:
        return mirror_->AddressOf(*store_->Find(graph_.nodes[p.input].attrs.Str("name")));
      case Placement::kScalar:
        return static_cast<void*>(base_ + layout_.scalars + position_of_node_.at(p.input) * kScalarStride);
      case Placement::kExternal:
        return static_cast<void*>(base_ + layout_.inputs[position_of_node_.at(p.input)].place);
      case Placement::kShared:
      case Placement::kOutput:
        break;
    }
    return absl::InternalError("a value in memory of other ranks");
  }

  StatusOr<std::vector<void*>> PointersOf(int32_t node) {
    const Node& n = graph_.nodes[node];
    std::vector<void*> pointers;
    for (Value v : n.inputs) {
      ASSIGN_OR_RETURN(pointers.emplace_back(), Address(v));
    }
    for (int o = 0; o < static_cast<int>(n.outputs.size()); ++o) {
      ASSIGN_OR_RETURN(pointers.emplace_back(), Address({node, o}));
    }
    return pointers;
  }
  void* ScratchOf(int32_t node) const {
    return layout_.plan.scratch[node] < 0 ? nullptr : base_ + layout_.plan.scratch[node];
  }

  Status AddJob(DeviceWork what, Lane lane, std::vector<WorkEnd> waits, std::vector<Prepared>* prepared,
                const KernelSet& kernels) {
    Job job;
    job.what = what;
    job.lane = lane;
    job.waits = std::move(waits);
    if (what.kind == DeviceWork::kNode) {
      RETURN_IF_ERROR(AddLaunches(what.of, std::move((*prepared)[what.of]), kernels, &job));
    } else if (what.kind == DeviceWork::kUpdates) {
      RETURN_IF_ERROR(AddUpdates(what.of, kernels.function((*prepared)[what.of].numbers[0]), &job));
    } else if (what.kind == DeviceWork::kPack || what.kind == DeviceWork::kCall || what.kind == DeviceWork::kUnpack) {
      std::unique_ptr<DeviceCollective>& collective = streamed_[what.of];
      if (collective == nullptr) {
        ASSIGN_OR_RETURN(const std::vector<void*> pointers, PointersOf(what.of));
        collective = DeviceCollective::Make(graph_, what.of, nccl_.get(), (*prepared)[what.of].group, pointers,
                                            ScratchOf(what.of), timeout_);
        over_nccl_ = true;
        AddName(what.of, "nccl");
      }
      job.over_nccl = collective.get();
    }
    jobs_.push_back(std::move(job));
    return absl::OkStatus();
  }
  void AddName(int32_t node, const char* kernel) {
    launch_names_.emplace_back(node, kernel);
    uses_.emplace_back();
  }

  Status AddLaunches(int32_t node, Prepared prepared, const KernelSet& kernels, Job* job) {
    ASSIGN_OR_RETURN(std::vector<void*> pointers, PointersOf(node));
    AddName(node, prepared.collective ? "staged" : prepared.library ? prepared.library->name() : "cuda");
    if (prepared.collective) {
      staged_any_ = true;
      ASSIGN_OR_RETURN(job->staged, Stage(node, std::move(prepared.collective), pointers));
      return absl::OkStatus();
    }
    pointers.push_back(ScratchOf(node));
    const auto fault = std::find(faults_.begin(), faults_.end(), node);
    pointers.push_back(fault == faults_.end() ? nullptr
                                              : base_ + layout_.outbox + (fault - faults_.begin()) * kFaultBytes);
    KernelUse& use = uses_.back();
    for (size_t s = 0; s <= prepared.numbers.size(); ++s) {
      if (prepared.library && s == prepared.library_at) {
        AddLibrary(prepared, pointers, job);
        ++use.kernels;
      }
      if (s == prepared.numbers.size()) break;
      const DeviceStep& step = prepared.program.steps[s];
      const DeviceFunction f = kernels.function(prepared.numbers[s]);
      job->launches.push_back({f, step.blocks, step.threads, pointers, nullptr, nullptr});
      ++use.kernels;
      use.registers = std::max(use.registers, f.registers);
      use.shared_bytes = std::max(use.shared_bytes, f.shared_bytes);
      use.spilled_bytes = std::max(use.spilled_bytes, f.spilled_bytes);
    }
    return absl::OkStatus();
  }

  // One launch for all of them, and its tables.
  Status AddUpdates(int32_t last, DeviceFunction f, Job* job) {
    const DeviceUpdates& updates = updates_.at(last);
    std::vector<int64_t> pieces;  // counts and addresses
    std::vector<DevicePart> parts;
    for (size_t k = 0; k < updates.nodes.size(); ++k) {
      const int64_t count = graph_.nodes[updates.nodes[k]].outputs[0].elements();
      ASSIGN_OR_RETURN(const std::vector<void*> pointers, PointersOf(updates.nodes[k]));
      pieces.push_back(count);
      for (void* const p : pointers) pieces.push_back(reinterpret_cast<int64_t>(p));
      for (int64_t part = 0; part * kDevicePart < count; ++part)
        parts.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(part)});
    }
    char *const pieces_at = base_ + updates.pieces, *const parts_at = base_ + updates.parts;
    RETURN_IF_ERROR(stream_.CopyIn(pieces_at, pieces.data(), static_cast<int64_t>(pieces.size() * sizeof pieces[0])));
    RETURN_IF_ERROR(stream_.CopyIn(parts_at, parts.data(), static_cast<int64_t>(parts.size() * sizeof parts[0])));
    RETURN_IF_ERROR(stream_.Wait());
    AddName(last, "cuda");
    uses_.back() = {1, f.registers, f.shared_bytes, f.spilled_bytes};
    job->launches.push_back({f, updates.blocks, 256, {pieces_at, parts_at}, nullptr, nullptr});
    return absl::OkStatus();
  }

  static void AddLibrary(const Prepared& prepared, std::vector<void*> pointers, Job* job) {
    Launch launch;
    pointers.pop_back();  // it finds no faults
    char* const scratch = static_cast<char*>(pointers.back());
    launch.workspace = prepared.library->workspace_bytes() > 0 ? scratch + prepared.workspace_at : nullptr;
    launch.pointers = std::move(pointers);
    launch.library = prepared.library;
    job->launches.push_back(std::move(launch));
  }

  StatusOr<std::unique_ptr<Staged>> Stage(int32_t node, std::unique_ptr<Kernel> kernel,
                                          const std::vector<void*>& pointers) {
    const Node& n = graph_.nodes[node];
    auto staged = std::make_unique<Staged>();
    staged->kernel = std::move(kernel);
    staged->node = node;
    const RankCall call = RankCallOf(*n.op);
    staged->starts = call == RankCall::kStartAllReduce || call == RankCall::kStartSend;
    if (EndsOther(call)) {
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

  // Of works that others wait for by an event: a collective has one of its own, and is behind all that was enqueued.
  Status MakeEvents() {
    bool copies = false;
    for (const Job& job : jobs_) {
      copies = copies || job.lane == Lane::kCopy;
      for (const WorkEnd& e : job.waits) {
        Job& other = jobs_[e.work];
        if (other.lane == Lane::kCommunication || job.lane == Lane::kCommunication || !other.ended.empty()) continue;
        for (int64_t slot = 0; slot < kSlots; ++slot) {
          ASSIGN_OR_RETURN(other.ended.emplace_back(), device_->MakeEvent());
        }
      }
    }
    for (DeviceEvent& done : done_) {
      ASSIGN_OR_RETURN(done, device_->MakeEvent());
    }
    if (copies) {
      ASSIGN_OR_RETURN(copy_stream_, device_->MakeStream());
    }
    return absl::OkStatus();
  }

  // What waits for an event that is recorded in each step begins a section, and such an event stands behind one. Waits
  // for calls are within a graph.
  void MakeSections() {
    const auto waits_for_event = [this](const Job& job) {
      return std::any_of(job.waits.begin(), job.waits.end(),
                         [this](const WorkEnd& e) { return !jobs_[e.work].ended.empty(); });
    };
    for (size_t j = 0; j < jobs_.size(); ++j) {
      const bool joins = j > 0 && jobs_[j].repeats() && jobs_[j - 1].repeats() && !waits_for_event(jobs_[j]) &&
                         jobs_[j - 1].ended.empty();
      if (joins)
        ++sections_.back().last;
      else
        sections_.push_back({j, j + 1, false, {}, nullptr});
      sections_.back().calls = sections_.back().calls || jobs_[j].calls();
    }
  }

  Status FindOutputs() {
    int64_t bytes = Aligned(layout_.outbox_bytes);
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      output_at_.push_back(layout_.posted[k]);
      if (!o.updates.empty() || layout_.posted[k] >= 0) continue;
      output_at_[k] = bytes;
      bytes += Aligned(graph_.TypeOf(o.value).bytes());
    }
    slot_out_ = bytes;
    ASSIGN_OR_RETURN(host_out_, device_->AllocatePinned(std::max<int64_t>(1, slot_out_ * kSlots)));
    ASSIGN_OR_RETURN(guard_, device_->AllocatePinned(kGuard));
    return absl::OkStatus();
  }

  char* SlotIn(int64_t step) const { return static_cast<char*>(host_in_.data()) + step % kSlots * slot_in_; }
  char* SlotOut(int64_t step) const { return static_cast<char*>(host_out_.data()) + step % kSlots * slot_out_; }

  // Takes the inputs and the scalars of the next step. The step that had the slot has been waited for.
  void FillSlot() {
    char* const slot = SlotIn(started_);
    for (const External& e : external_) {
      if (e.kind != kData) continue;
      const char* const from = static_cast<const char*>(e.data);
      char* const to = slot + e.pinned;
      ParallelFor(e.bytes, 1 << 20, [=](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    }
    if (!scalars_.empty())
      std::memcpy(slot + slot_in_ - Aligned(static_cast<int64_t>(scalars_.size())), scalars_.data(), scalars_.size());
  }

  // Until all has run. Where other ranks take part, it is watched that they do.
  Status Wait() { return over_nccl_ ? nccl_->Wait(stream_) : stream_.Wait(); }

  Status EnqueueStep() {
    if (mirror_ != nullptr) RETURN_IF_ERROR(mirror_->Upload(stream_, &snapshot_));
    if (check_ && timeline_ == nullptr) RETURN_IF_ERROR(EnqueueChecked());
    if (timeline_ != nullptr) RETURN_IF_ERROR(EnqueueTimed());
    if (!check_ && timeline_ == nullptr) RETURN_IF_ERROR(EnqueueSections());
    RETURN_IF_ERROR(CopyOut());
    return stream_.Record(done_[started_ % kSlots]);
  }

  // What the host reads.
  Status CopyOut() {
    char* const slot = SlotOut(started_);
    RETURN_IF_ERROR(stream_.CopyOut(slot, base_ + layout_.outbox, layout_.outbox_bytes));
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      if (!o.updates.empty() || layout_.posted[k] >= 0) continue;
      ASSIGN_OR_RETURN(void* const from, Address(o.value));
      RETURN_IF_ERROR(stream_.CopyOut(slot + output_at_[k], from, graph_.TypeOf(o.value).bytes()));
    }
    return absl::OkStatus();
  }

  // What repeats is captured with the second step: at their first calls libraries load kernels, and NCCL makes
  // connections, which a capture may refuse.
  Status EnqueueSections() {
    for (Section& s : sections_) {
      if (!jobs_[s.first].repeats() || started_ == 0) {
        RETURN_IF_ERROR(EnqueueJobs(s));
      } else {
        RETURN_IF_ERROR(WaitForOthers(jobs_[s.first]));
        RETURN_IF_ERROR(RunCaptured(&s));
      }
      RETURN_IF_ERROR(Ended(jobs_[s.last - 1]));
    }
    return absl::OkStatus();
  }
  Status EnqueueJobs(const Section& s) {
    for (size_t j = s.first; j < s.last; ++j) {
      RETURN_IF_ERROR(WaitForOthers(jobs_[j]));
      RETURN_IF_ERROR(Enqueue(jobs_[j]));
    }
    return absl::OkStatus();
  }
  Status RunCaptured(Section* s) {
    if (s->calls) {
      if (s->graph_with_calls == nullptr) {
        const auto enqueue = [&] { return EnqueueCaptured(*s); };
        ASSIGN_OR_RETURN(s->graph_with_calls, nccl_->Capture(stream_, enqueue));
      }
      return nccl_->Run(s->graph_with_calls, stream_);
    }
    if (!s->graph) RETURN_IF_ERROR(Capture(s));
    return stream_.Run(s->graph);
  }
  // What the first job waits for comes before the graph.
  Status EnqueueCaptured(const Section& s) {
    for (size_t j = s.first; j < s.last; ++j) {
      if (j > s.first) RETURN_IF_ERROR(WaitForOthers(jobs_[j], s.first));
      RETURN_IF_ERROR(Enqueue(jobs_[j]));
    }
    return absl::OkStatus();
  }
  Status Capture(Section* s) {
    RETURN_IF_ERROR(stream_.BeginCapture());
    const Status made = EnqueueCaptured(*s);
    auto graph = stream_.EndCapture();
    RETURN_IF_ERROR(made);
    RETURN_IF_ERROR(graph.status());
    s->graph = *std::move(graph);
    return absl::OkStatus();
  }

  DeviceStream& StreamOf(Lane lane) { return lane == Lane::kCopy ? copy_stream_ : stream_; }

  // Calls before job `first` have been waited for.
  Status WaitForOthers(const Job& job, size_t first = 0) {
    for (const WorkEnd& e : job.waits) {
      const Job& other = jobs_[e.work];
      if (started_ < e.steps_before) continue;
      // Where there are calls a step begins when the one before has ended.
      if (other.calls() && (e.steps_before > 0 || static_cast<size_t>(e.work) < first)) continue;
      if (other.calls())
        RETURN_IF_ERROR(other.over_nccl->After(StreamOf(job.lane)));
      else if (!other.ended.empty())
        RETURN_IF_ERROR(StreamOf(job.lane).WaitFor(other.ended[(started_ - e.steps_before) % kSlots]));
    }
    return absl::OkStatus();
  }
  Status Ended(Job& job) {
    if (job.ended.empty()) return absl::OkStatus();
    return StreamOf(job.lane).Record(job.ended[started_ % kSlots]);
  }

  Status Enqueue(const Job& job) {
    switch (job.what.kind) {
      case DeviceWork::kInput: {
        const DeviceLayout::Input& in = layout_.inputs[job.what.of];
        const External& e = external_[job.what.of];
        return StreamOf(job.lane).CopyIn(base_ + (in.staged() ? in.stages[started_ % kSlots] : in.place),
                                         SlotIn(started_) + e.pinned, e.bytes);
      }
      case DeviceWork::kMove: {
        const DeviceLayout::Input& in = layout_.inputs[job.what.of];
        return stream_.CopyWithin(base_ + in.place, base_ + in.stages[started_ % kSlots], external_[job.what.of].bytes);
      }
      case DeviceWork::kBegin: {
        const auto bytes = static_cast<int64_t>(scalars_.size());
        RETURN_IF_ERROR(stream_.CopyIn(base_ + layout_.scalars, SlotIn(started_) + slot_in_ - Aligned(bytes), bytes));
        return stream_.Fill(base_ + layout_.outbox, 0, layout_.outbox_bytes);
      }
      case DeviceWork::kNode:
      case DeviceWork::kUpdates:
        if (job.staged != nullptr) return RunStaged(*job.staged);
        for (const Launch& l : job.launches) RETURN_IF_ERROR(Enqueue(l));
        return absl::OkStatus();
      case DeviceWork::kPack:
        return job.over_nccl->Pack(stream_);
      case DeviceWork::kCall:
        return job.over_nccl->Enqueue(stream_);
      case DeviceWork::kUnpack:
        return job.over_nccl->Unpack(stream_);
      case DeviceWork::kEnd:
        return EnqueueEnd();
    }
    return absl::InternalError("an unknown work");
  }

  Status Enqueue(const Launch& l) {
    if (l.library != nullptr) return l.library->Enqueue(stream_, l.pointers, l.workspace);
    return stream_.Launch(l.function, l.blocks, l.threads, l.pointers);
  }

  // Small outputs, where the host's copy takes them, and then the updates that were not made in place: an output may
  // lie where one is written.
  Status EnqueueEnd() {
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      if (layout_.posted[k] < 0) continue;
      ASSIGN_OR_RETURN(void* const from, Address(graph_.outputs[k].value));
      RETURN_IF_ERROR(stream_.CopyWithin(base_ + layout_.outbox + layout_.posted[k], from,
                                         graph_.TypeOf(graph_.outputs[k].value).bytes()));
    }
    const auto bytes_of = [this](const DeviceLayout::Update& u) {
      return graph_.TypeOf(graph_.outputs[u.output].value).bytes();
    };
    for (const DeviceLayout::Update& u : layout_.updates) {
      ASSIGN_OR_RETURN(void* const from, Address(graph_.outputs[u.output].value));
      if (u.before >= 0) RETURN_IF_ERROR(stream_.CopyWithin(base_ + u.before, from, bytes_of(u)));
    }
    for (const DeviceLayout::Update& u : layout_.updates) {
      const GraphOutput& o = graph_.outputs[u.output];
      ASSIGN_OR_RETURN(void* const from, Address(o.value));
      ASSIGN_OR_RETURN(void* const to, mirror_->AddressOf(*store_->Find(o.updates)));
      RETURN_IF_ERROR(stream_.CopyWithin(to, u.before >= 0 ? base_ + u.before : from, bytes_of(u)));
    }
    return absl::OkStatus();
  }

  Status RunStaged(const Staged& staged) {
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

  // Node by node, with the device's own clock between them.
  Status EnqueueTimed() {
    std::vector<DeviceEvent> reached;
    const auto mark = [&]() -> Status {
      ASSIGN_OR_RETURN(reached.emplace_back(), device_->MakeEvent(true));
      return stream_.Record(reached.back());
    };
    int32_t now = -1;  // the node whose jobs are enqueued
    for (size_t j = 0; j < jobs_.size(); ++j) {
      Job& job = jobs_[j];
      const bool of_node = job.what.kind >= DeviceWork::kNode && job.what.kind <= DeviceWork::kUnpack;
      if ((of_node && job.what.of != now) || job.what.kind == DeviceWork::kEnd) RETURN_IF_ERROR(mark());
      if (of_node) now = job.what.of;
      RETURN_IF_ERROR(WaitForOthers(job));
      RETURN_IF_ERROR(Enqueue(job));
      RETURN_IF_ERROR(Ended(job));
      if (job.over_nccl != nullptr) RETURN_IF_ERROR(Wait());
    }
    RETURN_IF_ERROR(mark());
    RETURN_IF_ERROR(Wait());
    timeline_->assign(1, 0);
    for (size_t i = 1; i < reached.size(); ++i) {
      ASSIGN_OR_RETURN(const double ms, reached[i].MillisecondsSince(reached[i - 1]));
      timeline_->push_back(timeline_->back() + static_cast<int64_t>(ms * 1e6));
    }
    return absl::OkStatus();
  }

  // Launch by launch, each waited for: what none has written is NaN, and what lies behind an output stays as it is.
  Status EnqueueChecked() {
    RETURN_IF_ERROR(stream_.Fill(base_, 0xff, layout_.plan.workspace_bytes));
    for (Job& job : jobs_) {
      RETURN_IF_ERROR(WaitForOthers(job));
      if (job.what.kind != DeviceWork::kNode || job.staged != nullptr) {
        RETURN_IF_ERROR(Enqueue(job));
        if (job.over_nccl != nullptr) RETURN_IF_ERROR(Wait());
      } else {
        RETURN_IF_ERROR(EnqueueChecked(job));
      }
      RETURN_IF_ERROR(Ended(job));
    }
    return absl::OkStatus();
  }
  // The bytes behind the node's outputs and its scratch memory.
  std::vector<void*> GuardsOf(int32_t node) const {
    std::vector<void*> guards;
    for (size_t o = 0; o < graph_.nodes[node].outputs.size(); ++o) {
      const Placement& p = layout_.plan.values[node][o];
      void* guard = nullptr;
      if (p.kind == Placement::kStore)
        guard = mirror_->GuardOf(*store_->Find(graph_.nodes[p.input].attrs.Str("name")));
      else if (layout_.plan.guards[node][o] >= 0)
        guard = base_ + layout_.plan.guards[node][o];
      if (guard != nullptr) guards.push_back(guard);
    }
    if (layout_.scratch_bytes[node] > 0)
      guards.push_back(base_ + layout_.plan.scratch[node] + layout_.scratch_bytes[node]);
    return guards;
  }
  Status EnqueueChecked(const Job& job) {
    const int32_t node = job.what.of;
    const std::vector<void*> guards = GuardsOf(node);
    for (void* const at : guards) RETURN_IF_ERROR(stream_.Fill(at, kGuardByte, kGuard));
    for (size_t l = 0; l < job.launches.size(); ++l) {
      const LibraryKernel* const library = job.launches[l].library.get();
      const std::string what =
          absl::StrCat(WhereOf(graph_.nodes[node]), ": ", graph_.nodes[node].op->name, ", ",
                       library != nullptr ? library->name() : "cuda", " kernel ", l + 1, " of ", job.launches.size());
      const Status ran = [&]() -> Status {
        RETURN_IF_ERROR(Enqueue(job.launches[l]));
        return stream_.Wait();
      }();
      if (!ran.ok()) return Annotate(ran, what);
      for (void* const at : guards) {
        RETURN_IF_ERROR(stream_.CopyOut(guard_.data(), at, kGuard));
        RETURN_IF_ERROR(stream_.Wait());
        const auto* const bytes = static_cast<const uint8_t*>(guard_.data());
        if (std::all_of(bytes, bytes + kGuard, [](uint8_t b) { return b == kGuardByte; })) continue;
        return WithExitCode(absl::InternalError(absl::StrCat(what, " writes behind the end of its memory")),
                            kExitInternal);
      }
    }
    return absl::OkStatus();
  }

  // The error of a step, from 0. What this rank has enqueued waits for the others; they are told, and nothing waits any
  // more.
  Status Failed(const Status& why, int64_t step) {
    if (over_nccl_) return nccl_->Fail(why);
    // The driver says of a captured step only that it failed.
    if (check_ || !absl::StartsWith(why.message(), "device: ")) return why;
    return Annotate(why, absl::StrCat("run ", step + 1, " of a graph of ", launch_names_.size(),
                                      " launches (ms.set_context { device_check = true } tells which of them)"));
  }

  Status CheckFaults(int64_t step) const {
    if (!failed_.ok()) return failed_;
    const auto* const faults = reinterpret_cast<const DeviceFault*>(SlotOut(step));
    for (size_t f = 0; f < faults_.size(); ++f) {
      if (faults[f].set == 0) continue;
      const Node& n = graph_.nodes[faults_[f]];
      std::vector<TensorType> inputs;
      return Annotate(n.op->device_fault(SpecOf(graph_, faults_[f], &inputs), faults[f]), WhereOf(n));
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
  int64_t snapshot_ = 0;  // of the mirror, that the stream waits for
  DeviceLayout layout_;
  DeviceMemory memory_;
  char* base_ = nullptr;
  // Of the host, a slot for each step that may be on its way: inputs and scalars; the outbox and large outputs.
  PinnedMemory host_in_, host_out_, guard_;
  int64_t slot_in_ = 0, slot_out_ = 0;
  std::vector<char> scalars_;  // of the next step
  std::vector<int64_t> output_at_;
  std::vector<std::string> input_names_;
  std::vector<External> external_;
  absl::flat_hash_map<int32_t, int> position_of_node_;
  absl::flat_hash_map<int32_t, DeviceUpdates> updates_;  // by the last of their nodes
  DeviceStream stream_, copy_stream_;
  std::vector<int32_t> faults_;  // nodes, in the order of the outbox
  std::vector<Job> jobs_;
  std::vector<Section> sections_;
  std::array<DeviceEvent, kSlots> done_;
  int64_t started_ = 0, finished_ = 0;                                        // steps
  absl::flat_hash_map<int32_t, Staged*> staged_;                              // by node
  absl::flat_hash_map<int32_t, std::unique_ptr<DeviceCollective>> streamed_;  // by node
  std::shared_ptr<NcclWorld> nccl_;
  bool over_nccl_ = false, staged_any_ = false;  // some collective is
  Decisions* decisions_ = nullptr;               // of the plan, while it is made
  int refused_ = 0;                              // of them, by libraries
  bool check_ = false;
  absl::Duration timeout_;
  std::vector<std::pair<int32_t, const char*>> launch_names_;
  std::vector<KernelUse> uses_;
  std::vector<ArenaEntry> arena_pieces_;
  std::vector<int64_t>* timeline_ = nullptr;
  StartedCalls calls_;
  PlanReport report_;
  absl::flat_hash_map<std::string, LibraryProgram> libraries_;  // by call
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
