#include "lua/program.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "core/step/located_status.h"
#include "lua/options.h"

namespace mslua {

namespace {

// That there is no memory for the values of a graph: with the largest of them, and the line that makes it.
Status OutOfMemory(const Graph& graph) {
  const Node* largest = nullptr;
  int64_t most = 0;
  for (const Node& n : graph.nodes) {
    for (const TensorType& type : n.outputs) {
      if (type.bytes() <= most) continue;
      most = type.bytes();
      largest = &n;
    }
  }
  if (largest == nullptr) return absl::ResourceExhaustedError("out of memory");
  const Location* const at = largest->location.get();
  TensorType type = largest->outputs[0];
  for (const TensorType& t : largest->outputs) type = t.bytes() == most ? t : type;
  return AtLine(absl::ResourceExhaustedError(absl::StrCat(
                    "out of memory for the values that are computed; the largest is ", ToString(type), ", ", most,
                    " bytes, of ", at != nullptr && !at->scope.empty() ? at->scope : largest->op->name)),
                at);
}

StatusOr<std::unique_ptr<Executable>> Compile(Session& session, const Graph& graph, const CompileOptions& options) {
  try {
    return Executable::Compile(graph, &session.state().store, options, &session.workspace);
  } catch (const std::bad_alloc&) {
    return WithExitCode(OutOfMemory(graph), kExitEnvironment);
  }
}

}  // namespace

StatusOr<std::unique_ptr<Executable>> CompileShared(Session& session, const Graph& graph, CompileOptions options) {
  options.rank = session.state().rank;
  options.groups = session.groups();
  options.reference_kernels = OptionBool(session.lua(), "reference_kernels");
  options.vector_products = OptionBool(session.lua(), "vector_products");
  auto executable = Compile(session, graph, options);
  if (!absl::IsFailedPrecondition(executable.status())) return executable;
  // Too large for the workspace there is: a new one, which the programs that follow share; older ones keep theirs.
  session.workspace.reset();
  return Compile(session, graph, options);
}

StatusOr<std::unique_ptr<Program>> Program::Compile(Session& session, const Graph& graph,
                                                    const std::vector<std::shared_ptr<ParameterData>>& parameters) {
  auto program = std::make_unique<Program>();
  for (const auto& p : parameters) RETURN_IF_ERROR(ValueOf(session.state(), *p).status());
  program->parameters_ = parameters;
  for (const auto& p : parameters) {
    const int32_t input = graph.FindInput(p->key);
    program->reads_.push_back(input < 0 ? session.state().store.Find(p->key)->type : graph.nodes[input].outputs[0]);
  }
  RETURN_IF_ERROR(program->CheckParameters(session));
  program->prints_ = FindPrints(graph);
  absl::flat_hash_set<int> printed;
  for (const Print& p : program->prints_) printed.insert(p.output);
  for (int i = 0; i < static_cast<int>(graph.outputs.size()); ++i) {
    if (graph.outputs[static_cast<size_t>(i)].updates.empty() && !printed.contains(i)) program->results_.push_back(i);
  }
  ASSIGN_OR_RETURN(program->executable_, CompileShared(session, graph, {}));
  const auto& names = program->executable_->inputs();
  for (int32_t i : graph.Inputs()) {
    const Node& node = graph.nodes[i];
    const bool data = node.attrs.Str("kind") == kData;
    const auto at = std::find(names.begin(), names.end(), node.attrs.Str("name"));
    // An input that nothing reads may be gone.
    const int position = at == names.end() ? -1 : static_cast<int>(at - names.begin());
    if (node.attrs.Str("name") == "step" && !data) program->step_position_ = position;
    if (!data) continue;
    program->data_positions_.push_back(position);
    program->data_types_.push_back(node.outputs[0]);
  }
  return program;
}

Status Program::CheckParameters(Session& session) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Store::Entry* entry = session.state().store.Find(parameters_[i]->key);
    if (entry == nullptr || entry->type != reads_[i]) RETURN_IF_ERROR(CheckWhole(session.state(), *parameters_[i]));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<Tensor>> Program::Run(Session& session, absl::Span<const Tensor> data) {
  RETURN_IF_ERROR(CheckParameters(session));
  if (data.size() != data_types_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph takes ", data_types_.size(), " tensors, got ", data.size()));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i].type != data_types_[i]) {
      return absl::InvalidArgumentError(absl::StrCat("input ", i + 1, " of the graph is ", ToString(data_types_[i]),
                                                     ", got ", ToString(data[i].type)));
    }
    if (data_positions_[i] >= 0) executable_->BindInputAt(data_positions_[i], data[i].data.get());
  }
  if (step_position_ >= 0) executable_->SetScalarAt(step_position_, static_cast<double>(runs_++));
  if (Groups* const groups = session.groups()) {
    const auto where = session.Where();
    if (!where->file.empty()) groups->set_caller(absl::StrCat(where->file, ":", where->line));
  }
  std::vector<Tensor> outputs;
  std::vector<bool> made;  // where they are to be
  const Graph& graph = executable_->graph();
  for (int r : results_) {
    const TensorType& type = graph.TypeOf(graph.outputs[static_cast<size_t>(r)].value);
    ASSIGN_OR_RETURN(Tensor out, NewTensor(session.allocator(), type));
    made.push_back(executable_->BindOutput(r, out.data.get()));
    outputs.push_back(std::move(out));
  }
  RETURN_IF_ERROR(executable_->Run());
  if (!prints_.empty()) WritePrints(prints_, *executable_, session.prefix);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (made[k]) continue;
    const TensorView value = executable_->Output(results_[k]);
    std::memcpy(outputs[k].data.get(), value.data, static_cast<size_t>(value.type.bytes()));
  }
  return outputs;
}

}  // namespace mslua
