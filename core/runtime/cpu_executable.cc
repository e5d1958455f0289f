#include "core/runtime/cpu_executable.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/graph/collective_node.h"
#include "core/op/rank_call.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/guard.h"
#include "core/runtime/memory_plan.h"
#include "core/runtime/placed_graph.h"

namespace mslua {
namespace {

// Outputs of up to so many bytes, such as losses, norms and histograms, are read when other programs of the workspace
// may have run: after an evaluation, say.
constexpr int64_t kNumbersBytes = 4096;

// Runs an operator that has no fast kernel for its types.
class ReferenceRunner : public Kernel {
 public:
  explicit ReferenceRunner(const Node& node, std::vector<TensorType> inputs)
      : node_(node), input_types_(std::move(inputs)) {
    for (const TensorType& t : input_types_) inputs_.push_back({t, nullptr});
    for (const TensorType& t : node_.outputs) outputs_.push_back({t, nullptr});
  }
  Status Run(const Buffers& b) override {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].data = const_cast<void*>(b.inputs[i]);
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o].data = b.outputs[o];
    return node_.op->reference({node_.attrs, inputs_, outputs_});
  }

 private:
  const Node node_;
  std::vector<TensorType> input_types_;
  std::vector<TensorView> inputs_, outputs_;
};

struct NamedKernel {
  std::unique_ptr<Kernel> kernel;
  const char* name = "reference";
};

// New values of the store that nothing else of the step reads, by node: outputs by number. Empty where the caches hold
// all that the step updates until the next one.
std::vector<std::vector<int64_t>> KeptOutputs(const Graph& graph) {
  constexpr int64_t kBeyondCaches = 32 << 20, kLarge = 64 << 10;  // bytes
  std::vector<std::vector<int64_t>> kept(graph.nodes.size());
  int64_t bytes = 0;
  for (const GraphOutput& o : graph.outputs) bytes += o.updates.empty() ? 0 : graph.TypeOf(o.value).bytes();
  if (bytes < kBeyondCaches) return kept;
  const auto uses = graph.UseCounts();
  for (const GraphOutput& o : graph.outputs) {
    if (o.updates.empty() || graph.TypeOf(o.value).bytes() < kLarge) continue;
    Value v = o.value;
    while (uses[v.node][v.output] == 1 && graph.nodes[v.node].op->view) v = graph.nodes[v.node].inputs[0];
    if (uses[v.node][v.output] == 1) kept[v.node].push_back(v.output);
  }
  return kept;
}

// `kept`: which outputs are.
StatusOr<NamedKernel> MakeKernel(const Graph& graph, int32_t index, const CompileOptions& options,
                                 const std::vector<int64_t>& kept, StartedCalls* calls) {
  const Node& node = graph.nodes[index];
  if (IsCollective(node) && node.attrs.Ints("group").size() > 1) {
    ASSIGN_OR_RETURN(auto kernel, MakeCollectiveKernel(graph, index, options.groups, calls));
    return NamedKernel{std::move(kernel), "ranks"};
  }
  std::vector<TensorType> inputs;
  for (Value v : node.inputs) inputs.push_back(graph.TypeOf(v));
  if (!options.reference_kernels) {
    Attrs attrs = node.attrs;
    if (node.op->name == "fused" && !kept.empty()) attrs.Set("kept", kept);
    const OpSpec spec{attrs, inputs, absl::MakeConstSpan(node.outputs.data(), node.outputs.size())};
    for (const FastKernel& fast : node.op->fast) {
      if (!fast.supports(spec) || (options.vector_products && fast.bf16_tiles)) continue;
      ASSIGN_OR_RETURN(auto kernel, fast.make(spec));
      return NamedKernel{std::move(kernel), fast.name};
    }
  }
  if (!node.op->reference) return absl::UnimplementedError(absl::StrCat(node.op->name, ": no kernel for these types"));
  return NamedKernel{std::make_unique<ReferenceRunner>(node, std::move(inputs))};
}

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class CpuExecutable : public Executable {
 public:
  Status Init(Graph graph, Store* store, const CompileOptions& options, std::shared_ptr<Block>* workspace) {
    graph_ = std::move(graph);
    std::vector<int64_t> scratch(graph_.nodes.size(), 0);
    std::vector<NamedKernel> kernels(graph_.nodes.size());
    const auto kept = KeptOutputs(graph_);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (IsPassive(n)) continue;
      auto kernel = MakeKernel(graph_, static_cast<int32_t>(i), options, kept[i], &calls_);
      if (!kernel.ok()) return Annotate(kernel.status(), WhereOf(n));
      kernels[i] = *std::move(kernel);
      scratch[i] = kernels[i].kernel->scratch_bytes();
    }
    const bool share = options.share && options.groups != nullptr;
    plan_ = PlanMemory(graph_, scratch, share, /*guard=*/0, kNumbersBytes);
    const MemoryPlan& plan = plan_;
    store_ = store;
    RETURN_IF_ERROR(Allocate(plan, store, workspace));
    if (share) {
      ASSIGN_OR_RETURN(shared_, options.groups->Shared(plan.shared_bytes));
    }
    int32_t addresses = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!kernels[i].kernel) continue;
      const Node& n = graph_.nodes[i];
      Launch launch;
      launch.kernel = std::move(kernels[i].kernel);
      launch_names_.emplace_back(static_cast<int32_t>(i), kernels[i].name);
      launch.node = static_cast<int32_t>(i);
      launch.first = addresses;
      addresses += static_cast<int32_t>(n.inputs.size() + n.outputs.size());
      launch.num_inputs = static_cast<int32_t>(n.inputs.size());
      launch.scratch = plan.scratch[i] < 0 ? nullptr : Arena() + plan.scratch[i];
      launches_.push_back(std::move(launch));
    }
    FindExternalSlots(plan);
    FindMadeSlots();
    Locate();
    arena_ = ArenaOf(graph_, plan, scratch);
    report_ = ReportOf(graph_, plan, static_cast<int64_t>(launches_.size()));
    return absl::OkStatus();
  }

  Status BindInput(absl::string_view name, const void* data) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kData));
    BindInputAt(position, data);
    return absl::OkStatus();
  }
  void BindInputAt(int position, const void* data) override {
    External& e = external_[position];
    e.data = const_cast<void*>(data);
    e.bound = true;
    for (Addresses& addresses : addresses_) BindIn(addresses, e);
    all_bound_ = false;
  }
  bool BindOutput(int i, void* data) override {
    External& made = made_[static_cast<size_t>(i)];
    if (made.slots.empty()) return false;
    made.data = data;
    made.bound = true;
    for (Addresses& addresses : addresses_) BindIn(addresses, made);
    return true;
  }
  Status SetScalar(absl::string_view name, double value) override {
    ASSIGN_OR_RETURN(const int position, PositionOf(name, kScalar));
    SetScalarAt(position, value);
    return absl::OkStatus();
  }
  void SetScalarAt(int position, double value) override {
    StoreDouble(external_[position].dtype, static_cast<char*>(scalars_.data()) + position * kScalarStride, 0, value);
  }

  Status Run() override {
    if (ABSL_PREDICT_TRUE(!guarded_)) return RunStep();
    if (store_ != nullptr) store_->OpenAll();
    workspace_->Open();
    numbers_.Open();
    const Status status = RunStep();
    numbers_.Close();
    workspace_->Close();
    if (store_ != nullptr) store_->CloseAll();
    return status;
  }

  void SetTimeline(std::vector<int64_t>* timeline) override { timeline_ = timeline; }
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return launch_names_; }
  const std::vector<ArenaEntry>& arena() const override { return arena_; }

  TensorView Output(int i) const override {
    if (ABSL_PREDICT_FALSE(guarded_)) OpenOutput(i);
    return now_->outputs[i];
  }
  const Graph& graph() const override { return graph_; }
  const std::vector<std::string>& inputs() const override { return input_names_; }
  const PlanReport& report() const override { return report_; }
  PlanReport& mutable_report() { return report_; }

 private:
  static constexpr int64_t kScalarStride = 64;

  struct Launch {
    std::unique_ptr<Kernel> kernel;
    int32_t node = 0, first = 0, num_inputs = 0;
    void* scratch = nullptr;
  };
  // An input, or an output that may be made where the caller says.
  struct External {
    std::string kind;
    DType dtype = DType::kF32;
    std::vector<int32_t> slots;  // pointers that hold its address
    std::vector<int> outputs;    // graph outputs that are it
    void* data = nullptr;
    bool bound = false;
  };
  struct Copy {
    void* to;
    int output;
    size_t bytes;
    // Not null: the value lies in the store, where another copy may write; it is brought here first, which may be `to`.
    void* before;
  };
  // Where everything lies for one side of the store that is read and one that is written.
  struct Addresses {
    std::vector<void*> pointers;  // of every launch: inputs, then outputs
    std::vector<Copy> copies;
    std::vector<TensorView> outputs;
    std::vector<void*> sources;  // where the value of each output is made
  };
  // What of the store's two sides a run updates.
  enum class Updates {
    kNothing,  // of what lies in an image: it reads the newest values
    kSide,     // all that has two sides: it reads one and writes one
    kPart,     // something else in the store, or not all of a side: in place
  };

  Status RunStep() {
    if (!all_bound_) RETURN_IF_ERROR(CheckBound());
    if (workspace_ && arena_in_use_ != workspace_->data())
      return absl::InternalError("the shared workspace was replaced after this plan was made");
    if (ABSL_PREDICT_FALSE(store_ != nullptr && store_->generation() != generation_)) Locate();
    if (ABSL_PREDICT_FALSE(store_ != nullptr && store_->mirror() != nullptr)) RETURN_IF_ERROR(TakeFromMirror());
    ASSIGN_OR_RETURN(const int side, TakeSides());
    RETURN_IF_ERROR(ABSL_PREDICT_FALSE(timeline_ != nullptr) ? RunTimed() : RunLaunches());
    if (updates_ == Updates::kSide) store_->TurnTo(side);
    return absl::OkStatus();
  }

  // Gives access to an output, until the next run.
  void OpenOutput(int i) const {
    const GraphOutput& o = graph_.outputs[static_cast<size_t>(i)];
    if (!o.updates.empty()) return store_->Open(*store_->Find(o.updates));
    if (made_[static_cast<size_t>(i)].bound) return;
    const Placement& p = plan_.values[o.value.node][o.value.output];
    if (p.kind == Placement::kStore) store_->Open(*store_->Find(graph_.nodes[p.input].attrs.Str("name")));
    // A data input may be a parameter's memory.
    if (p.kind == Placement::kExternal && store_ != nullptr) store_->OpenAt(now_->outputs[i].data);
    if (p.kind == Placement::kArena || p.kind == Placement::kOutput)
      OpenMemory(now_->outputs[i].data, now_->outputs[i].type.bytes());
  }

  Status RunLaunch(const Launch& l) {
    void* const* const pointers = now_->pointers.data() + l.first;
    const Buffers buffers{pointers, pointers + l.num_inputs, l.scratch};
    const Status s = l.kernel->Run(buffers);
    if (ABSL_PREDICT_FALSE(!s.ok())) {
      const Node& n = graph_.nodes[l.node];
      return Annotate(s, WhereOf(n));
    }
    if (ABSL_PREDICT_FALSE(calls_.any())) return calls_.Progress();
    return s;
  }
  void RunCopies() {
    for (const Copy& c : now_->copies) {
      if (c.before != nullptr) std::memcpy(c.before, now_->sources[c.output], c.bytes);
    }
    for (const Copy& c : now_->copies) {
      if (c.to != c.before) std::memcpy(c.to, c.before != nullptr ? c.before : now_->sources[c.output], c.bytes);
    }
  }
  Status RunLaunches() {
    for (const Launch& l : launches_) RETURN_IF_ERROR(RunLaunch(l));
    RunCopies();
    return absl::OkStatus();
  }

  // Chooses the addresses of this run; gives the side that it writes.
  StatusOr<int> TakeSides() {
    if (updates_ == Updates::kPart) {
      for (const GraphOutput& o : graph_.outputs) {
        if (!o.updates.empty()) RETURN_IF_ERROR(store_->PrepareToWrite(*store_->Find(o.updates)));
      }
    }
    if (addresses_.size() == 1) return 0;
    const int read = store_->side(), write = updates_ == Updates::kSide ? store_->free_side() : read;
    now_ = &addresses_[2 * read + write];
    return write;
  }

  // An accelerator updates the store too: what this graph reads and writes there is brought to host memory.
  Status TakeFromMirror() {
    for (size_t i = 0; i < external_.size(); ++i) {
      if (external_[i].kind == kParameter || external_[i].kind == kState)
        RETURN_IF_ERROR(store_->Fetch(*store_->Find(input_names_[i])));
    }
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty()) RETURN_IF_ERROR(store_->HostWrites(*store_->Find(o.updates)));
    }
    return absl::OkStatus();
  }

  Updates UpdatesOf() const {
    absl::flat_hash_set<std::string> updated;
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty() && Store::InImage(*store_->Find(o.updates))) updated.insert(o.updates);
    }
    if (updated.empty()) return Updates::kNothing;
    const auto& entries = store_->entries();
    const bool all = std::all_of(entries.begin(), entries.end(),
                                 [&](const auto& e) { return Store::HasSides(*e) == updated.contains(e->name); });
    return all ? Updates::kSide : Updates::kPart;
  }

  // Finds where everything lies: once, and when the store's tensors have moved.
  void Locate() {
    const auto has_sides = [](const auto& e) { return Store::HasSides(*e); };
    const bool sided = store_ != nullptr && std::any_of(store_->entries().begin(), store_->entries().end(), has_sides);
    generation_ = store_ == nullptr ? 0 : store_->generation();
    updates_ = store_ != nullptr && store_->image() != nullptr ? UpdatesOf() : Updates::kNothing;
    addresses_.clear();
    if (!sided) addresses_.push_back(AddressesOf(0, 0));
    for (int read = 0; sided && read < 2; ++read) {
      for (int write = 0; write < 2; ++write) addresses_.push_back(AddressesOf(read, write));
    }
    now_ = &addresses_[sided ? 3 * store_->side() : 0];
  }

  void* InStore(const std::string& name, int side) const { return Store::Address(*store_->Find(name), side); }

  // Where the new value of an update is brought before the store is written; null: it does not lie there.
  void* Before(const GraphOutput& o) {
    const Placement& p = plan_.values[o.value.node][o.value.output];
    if (p.kind != Placement::kStore || p.update || graph_.nodes[p.input].attrs.Str("name") == o.updates) return nullptr;
    Block& block = before_[o.updates];
    if (block.data() == nullptr) block = Block(graph_.TypeOf(o.value).bytes());
    return block.data();
  }

  Addresses AddressesOf(int read, int write) {
    Addresses addresses;
    for (const Launch& l : launches_) {
      const Node& n = graph_.nodes[l.node];
      for (Value v : n.inputs) addresses.pointers.push_back(Address(v, read, write));
      for (int o = 0; o < static_cast<int>(n.outputs.size()); ++o)
        addresses.pointers.push_back(Address({l.node, o}, read, write));
    }
    for (int k = 0; k < static_cast<int>(graph_.outputs.size()); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      void* const source = Address(o.value, read, write);
      const auto kept = kept_.find(k);
      void* const at = kept != kept_.end() ? kept->second.data()
                       : o.updates.empty() ? source
                                           : InStore(o.updates, write);
      addresses.outputs.push_back({graph_.TypeOf(o.value), at});
      addresses.sources.push_back(source);
      if (kept != kept_.end())
        addresses.copies.push_back({at, k, static_cast<size_t>(graph_.TypeOf(o.value).bytes()), at});
      if (!o.updates.empty() && source != at)
        addresses.copies.push_back({at, k, static_cast<size_t>(graph_.TypeOf(o.value).bytes()), Before(o)});
    }
    for (const auto* const bound : {&external_, &made_}) {
      for (const External& e : *bound) {
        if (e.bound) BindIn(addresses, e);
      }
    }
    return addresses;
  }

  static void BindIn(Addresses& addresses, const External& e) {
    for (const int32_t slot : e.slots) addresses.pointers[slot] = e.data;
    for (const int output : e.outputs) {
      if (addresses.sources[output] == addresses.outputs[output].data) addresses.outputs[output].data = e.data;
      addresses.sources[output] = e.data;
    }
  }

  Status RunTimed() {
    timeline_->clear();
    timeline_->push_back(Nanoseconds());
    for (const Launch& l : launches_) {
      RETURN_IF_ERROR(RunLaunch(l));
      timeline_->push_back(Nanoseconds());
    }
    RunCopies();
    timeline_->push_back(Nanoseconds());
    return absl::OkStatus();
  }

  char* Arena() const { return static_cast<char*>(arena_in_use_); }

  Status Allocate(const MemoryPlan& plan, Store* store, std::shared_ptr<Block>* workspace) {
    if (workspace != nullptr) {
      if (!*workspace) *workspace = std::make_shared<Block>(plan.workspace_bytes);
      if ((*workspace)->bytes() < plan.workspace_bytes)
        return absl::FailedPreconditionError("the shared workspace is too small for this plan");
      workspace_ = *workspace;
    } else {
      workspace_ = std::make_shared<Block>(plan.workspace_bytes);
    }
    arena_in_use_ = workspace_->data();
    constants_ = Block(plan.constant_bytes);
    numbers_ = Block(plan.output_bytes);
    for (const int k : plan.kept) kept_[k] = Block(graph_.TypeOf(graph_.outputs[k].value).bytes());
    int position = 0;
    for (int32_t i : graph_.Inputs()) {
      const Node& n = graph_.nodes[i];
      External e;
      e.kind = n.attrs.Str("kind");
      e.dtype = n.outputs[0].dtype;
      input_names_.push_back(n.attrs.Str("name"));
      position_of_node_.emplace_back(i, position++);
      if (e.kind == kParameter || e.kind == kState) {
        const Store::Entry* entry = store == nullptr ? nullptr : store->Find(input_names_.back());
        if (entry == nullptr)
          return absl::NotFoundError(absl::StrCat("the store has no tensor named '", input_names_.back(), "'"));
        if (entry->type != n.outputs[0]) {
          return absl::InvalidArgumentError(absl::StrCat("'", input_names_.back(), "' is ", ToString(entry->type),
                                                         " in the store and ", ToString(n.outputs[0]),
                                                         " in the graph"));
        }
      } else {
        if (e.kind == kScalar && n.outputs[0].elements() != 1)
          return absl::InvalidArgumentError(
              absl::StrCat("scalar input '", input_names_.back(), "' has ", n.outputs[0].elements(), " elements"));
      }
      external_.push_back(std::move(e));
    }
    scalars_ = Block(static_cast<int64_t>(external_.size()) * kScalarStride);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (n.op->name != "constant") continue;
      const std::string& data = n.attrs.Str("data");
      std::memcpy(static_cast<char*>(constants_.data()) + plan.values[i][0].offset, data.data(), data.size());
    }
    return absl::OkStatus();
  }

  int PositionOfNode(int32_t node) const {
    for (const auto& p : position_of_node_) {
      if (p.first == node) return p.second;
    }
    return -1;
  }
  StatusOr<int> PositionOf(absl::string_view name, absl::string_view kind) const {
    for (size_t i = 0; i < input_names_.size(); ++i) {
      if (input_names_[i] == name && external_[i].kind == kind) return static_cast<int>(i);
    }
    return absl::NotFoundError(absl::StrCat("the graph has no ", kind, " input named '", name, "'"));
  }

  void* Address(Value v, int read, int write) const {
    const Placement& p = plan_.values[v.node][v.output];
    switch (p.kind) {
      case Placement::kArena:
        return Arena() + p.offset;
      case Placement::kShared:
        return static_cast<char*>(shared_) + p.offset;
      case Placement::kConstant:
        return static_cast<char*>(constants_.data()) + p.offset;
      case Placement::kOutput:
        return static_cast<char*>(numbers_.data()) + p.offset;
      case Placement::kStore:
        return InStore(graph_.nodes[p.input].attrs.Str("name"), p.update ? write : read);
      case Placement::kScalar:
        return static_cast<char*>(scalars_.data()) + PositionOfNode(p.input) * kScalarStride;
      case Placement::kExternal:
        return nullptr;
    }
    return nullptr;
  }

  void FindExternalSlots(const MemoryPlan& plan) {
    const auto external = [&](Value v) -> External* {
      const Placement& p = plan.values[v.node][v.output];
      return p.kind == Placement::kExternal ? &external_[PositionOfNode(p.input)] : nullptr;
    };
    for (const Launch& l : launches_) {
      const Node& n = graph_.nodes[l.node];
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (External* e = external(n.inputs[i])) e->slots.push_back(l.first + static_cast<int32_t>(i));
      }
    }
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      if (External* e = external(graph_.outputs[k].value)) e->outputs.push_back(static_cast<int>(k));
    }
  }

  // What a view looks at.
  Value ViewedBy(Value v) const {
    while (graph_.nodes[v.node].op->view) v = graph_.nodes[v.node].inputs[0];
    return v;
  }

  // Finds which outputs may be made elsewhere than in the workspace: nothing else lies in their memory before the step
  // has ended.
  void FindMadeSlots() {
    made_.resize(graph_.outputs.size());
    std::map<std::pair<int32_t, int32_t>, int> output_of;  // by what it looks at; -1: of several
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      const Value v = ViewedBy(o.value);
      const Placement::Kind kind = plan_.values[v.node][v.output].kind;
      const bool moves = RankCallOf(*graph_.nodes[v.node].op) == RankCall::kNone &&
                         (kind == Placement::kArena || kind == Placement::kOutput);
      const bool first = output_of.emplace(std::make_pair(v.node, v.output), moves ? static_cast<int>(k) : -1).second;
      if (!first || !o.updates.empty()) output_of[{v.node, v.output}] = -1;
    }
    for (const Launch& l : launches_) {
      const Node& n = graph_.nodes[l.node];
      const auto note = [&](Value v, size_t at) {
        const Value viewed = ViewedBy(v);
        const auto found = output_of.find({viewed.node, viewed.output});
        if (found == output_of.end() || found->second < 0) return;
        made_[static_cast<size_t>(found->second)].slots.push_back(l.first + static_cast<int32_t>(at));
        made_[static_cast<size_t>(found->second)].outputs = {found->second};
      };
      for (size_t i = 0; i < n.inputs.size(); ++i) note(n.inputs[i], i);
      for (size_t o = 0; o < n.outputs.size(); ++o) note({l.node, static_cast<int32_t>(o)}, n.inputs.size() + o);
    }
  }

  Status CheckBound() {
    for (size_t i = 0; i < external_.size(); ++i) {
      if (external_[i].kind == kData && !external_[i].bound)
        return absl::FailedPreconditionError(absl::StrCat("data input '", input_names_[i], "' was never bound"));
    }
    all_bound_ = true;
    return absl::OkStatus();
  }

  const bool guarded_ = GuardsMemory();
  Graph graph_;
  std::vector<Launch> launches_;
  std::vector<std::pair<int32_t, const char*>> launch_names_;  // of every launch: node and kernel
  std::vector<ArenaEntry> arena_;
  std::vector<int64_t>* timeline_ = nullptr;
  MemoryPlan plan_;
  Store* store_ = nullptr;
  int64_t generation_ = 0;  // of the store, when its tensors were located
  Updates updates_ = Updates::kNothing;
  std::vector<Addresses> addresses_;     // one, or by 2 * side that is read + side that is written
  Addresses* now_ = nullptr;             // of the last run
  std::map<std::string, Block> before_;  // by the tensor that is updated
  std::map<int, Block> kept_;            // memory of MemoryPlan::kept
  std::vector<std::string> input_names_;
  std::vector<External> external_;  // inputs
  std::vector<External> made_;      // of each output; no slots: it lies where the plan says
  std::vector<std::pair<int32_t, int>> position_of_node_;
  std::shared_ptr<Block> workspace_;
  void* arena_in_use_ = nullptr;
  void* shared_ = nullptr;  // the groups'
  StartedCalls calls_;
  Block constants_, scalars_, numbers_;
  PlanReport report_;
  bool all_bound_ = false;
};

}  // namespace

StatusOr<PlanReport> PlanOf(const Graph& graph, const CompileOptions& options) {
  std::vector<int64_t> scratch(graph.nodes.size(), 0);
  int64_t kernels = 0;
  StartedCalls calls;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    if (IsPassive(n)) continue;
    ++kernels;
    if (IsCollective(n) && n.attrs.Ints("group").size() > 1) {
      scratch[i] = CollectiveScratch(graph, n);
      continue;
    }
    ASSIGN_OR_RETURN(const NamedKernel made, MakeKernel(graph, static_cast<int32_t>(i), options, {}, &calls));
    scratch[i] = made.kernel->scratch_bytes();
  }
  return ReportOf(graph, PlanMemory(graph, scratch, options.share, /*guard=*/0, kNumbersBytes), kernels);
}

StatusOr<std::unique_ptr<Executable>> MakeCpuExecutable(Graph graph, Store* store, const CompileOptions& options,
                                                        std::shared_ptr<Block>* workspace,
                                                        std::chrono::steady_clock::time_point start) {
  auto executable = std::make_unique<CpuExecutable>();
  RETURN_IF_ERROR(executable->Init(std::move(graph), store, options, workspace));
  executable->mutable_report().compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace mslua
