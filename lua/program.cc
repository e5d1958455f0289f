#include "lua/program.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "lua/options.h"

namespace mslua {

StatusOr<std::unique_ptr<Executable>> CompileShared(Session& session, const Graph& graph, CompileOptions options) {
  options.rank = session.options().rank;
  options.groups = session.groups();
  options.reference_kernels = OptionBool(session.lua(), "reference_kernels");
  options.vector_products = OptionBool(session.lua(), "vector_products");
  auto executable = Executable::Compile(graph, &session.store(), options, &session.workspace);
  if (!absl::IsFailedPrecondition(executable.status())) return executable;
  // Too large for the workspace there is: a new one, which the programs that follow share; older ones keep theirs.
  session.workspace.reset();
  return Executable::Compile(graph, &session.store(), options, &session.workspace);
}

StatusOr<std::unique_ptr<Program>> Program::Compile(Session& session, const Graph& graph,
                                                    const std::vector<std::shared_ptr<ParameterData>>& parameters) {
  auto program = std::make_unique<Program>();
  for (const auto& p : parameters) RETURN_IF_ERROR(ValueOf(session, *p).status());
  program->parameters_ = parameters;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputs[i].updates.empty()) program->results_.push_back(static_cast<int>(i));
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

StatusOr<std::vector<Tensor>> Program::Run(Session& session, absl::Span<const Tensor> data) {
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
  RETURN_IF_ERROR(executable_->Run());
  std::vector<Tensor> outputs;
  for (int r : results_) {
    const TensorView value = executable_->Output(r);
    ASSIGN_OR_RETURN(Tensor out, NewTensor(session, value.type));
    std::memcpy(out.data.get(), value.data, static_cast<size_t>(value.type.bytes()));
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace mslua
