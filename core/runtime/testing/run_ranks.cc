#include "core/runtime/testing/run_ranks.h"

#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "collectives/host/inproc.h"

namespace mslua::testing {
namespace {

// `outputs`: by step.
Status RunOne(const RankProgram& program, CompileOptions options, absl::Span<std::vector<std::string>* const> outputs) {
  Store store;
  const std::vector<int32_t> inputs = program.graph.Inputs();
  if (inputs.size() != program.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has ", inputs.size(), " inputs, got ", program.inputs.size()));
  }
  const auto kind = [&](size_t i) { return program.graph.nodes[inputs[i]].attrs.Str("kind"); };
  const auto name = [&](size_t i) { return program.graph.nodes[inputs[i]].attrs.Str("name"); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = program.graph.nodes[inputs[i]].outputs[0];
    if (type.bytes() != static_cast<int64_t>(program.inputs[i].size()))
      return absl::InvalidArgumentError(absl::StrCat("input '", name(i), "' has another size than ", ToString(type)));
    if (kind(i) != kParameter && kind(i) != kState) continue;
    ASSIGN_OR_RETURN(const TensorView view, store.Add(name(i), kind(i), type));
    std::memcpy(view.data, program.inputs[i].data(), program.inputs[i].size());
  }
  ASSIGN_OR_RETURN(const auto executable, Executable::Compile(program.graph, &store, options));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char* bytes = program.inputs[i].data();
    if (kind(i) == kData) RETURN_IF_ERROR(executable->BindInput(name(i), bytes));
    if (kind(i) == kScalar) {
      const DType dtype = program.graph.nodes[inputs[i]].outputs[0].dtype;
      RETURN_IF_ERROR(executable->SetScalar(name(i), LoadAsDouble(dtype, bytes, 0)));
    }
  }
  for (std::vector<std::string>* const step : outputs) {
    RETURN_IF_ERROR(executable->Run());
    for (size_t o = 0; o < executable->graph().outputs.size(); ++o) {
      const TensorView out = executable->Output(static_cast<int>(o));
      step->emplace_back(static_cast<const char*>(out.data), static_cast<size_t>(out.type.bytes()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<RankOutputs>> RunRanksByStep(const std::vector<RankProgram>& programs,
                                                  const CompileOptions& options, int steps) {
  std::vector<RankOutputs> outputs(static_cast<size_t>(steps), RankOutputs(programs.size()));
  std::vector<Status> statuses(programs.size());
  auto world = MakeInprocWorld(static_cast<int>(programs.size()));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < programs.size(); ++r) {
    threads.emplace_back([&, r] {
      Groups groups(std::move(world[r]));
      CompileOptions mine = options;
      mine.groups = &groups;
      mine.rank = static_cast<int>(r);
      std::vector<std::vector<std::string>*> own;
      for (RankOutputs& step : outputs) own.push_back(&step[r]);
      statuses[r] = RunOne(programs[r], mine, own);
      if (!statuses[r].ok()) groups.world().Abort(statuses[r]);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Status& s : statuses) RETURN_IF_ERROR(s);
  return outputs;
}

StatusOr<RankOutputs> RunRanks(const std::vector<RankProgram>& programs, const CompileOptions& options, int steps) {
  ASSIGN_OR_RETURN(std::vector<RankOutputs> outputs, RunRanksByStep(programs, options, steps));
  return std::move(outputs.back());
}

}  // namespace mslua::testing
