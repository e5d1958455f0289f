// Writes a model with inputs and results for each sample of an operator that has an ONNX form:
//   onnx_samples FOLDER          NAME_0.onnx and NAME_0.json, and so on
// tools/golden/check_onnx.js runs them in ONNX Runtime and compares.
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/atomic_file.h"
#include "core/graph/builder.h"
#include "core/graph/testing/evaluate.h"
#include "core/onnx/export.h"
#include "core/op/registry.h"
#include "core/ops/testing/sample_run.h"

namespace mslua {
namespace {

std::string TensorJson(const std::string& name, const TensorType& type, const std::string& bytes) {
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const double v = LoadAsDouble(type.dtype, bytes.data(), i);
    numbers.push_back(std::isfinite(v) ? absl::StrFormat("%.17g", v) : absl::StrFormat("\"%g\"", v));
  }
  return absl::StrCat("{\"name\": \"", name, "\", \"dtype\": \"", LongName(type.dtype), "\", \"dims\": [",
                      absl::StrJoin(type.shape, ", "), "], \"data\": [", absl::StrJoin(numbers, ", "), "]}");
}

Status WriteSample(const OpDef& op, const Sample& sample, const std::string& stem) {
  GraphBuilder g;
  std::vector<Value> inputs;
  std::vector<std::string> bytes, given, wanted;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const std::string name = absl::StrCat("x", i);
    inputs.push_back(g.Input(name, kData, sample.inputs[i]));
    bytes.push_back(testing::MakeInput(op, sample, i, sample.inputs[i]).bytes());
    given.push_back(TensorJson(name, sample.inputs[i], bytes.back()));
  }
  const std::vector<Value> outputs = g.OpMulti(op.name, inputs, sample.attrs);
  RETURN_IF_ERROR(g.status());
  // Results beside the first are of training, but for sorts and splits.
  const bool all = op.name == "sort" || op.name == "top_k" || op.name == "split";
  for (size_t i = 0; i < (all ? outputs.size() : 1); ++i) g.Output(absl::StrCat("y", i), outputs[i]);
  ASSIGN_OR_RETURN(const Graph graph, g.Finish());
  ASSIGN_OR_RETURN(const onnx::Model model, onnx::ExportGraph(graph, graph, DType::kF32, nullptr));
  ASSIGN_OR_RETURN(const auto results, EvaluateReference(graph, bytes));
  for (size_t i = 0; i < results.size(); ++i)
    wanted.push_back(TensorJson(graph.outputs[i].name, graph.TypeOf(graph.outputs[i].value), results[i]));
  RETURN_IF_ERROR(onnx::WriteModel(model, stem + ".onnx"));
  return WriteFileAtomically(stem + ".json", absl::StrCat("{\"inputs\": [", absl::StrJoin(given, ", "),
                                                          "], \"outputs\": [", absl::StrJoin(wanted, ", "), "]}\n"));
}

int Main(const std::string& folder) {
  int written = 0;
  for (const OpDef& op : Operators().all()) {
    if (op.side_effect) continue;  // an operator between ranks
    for (size_t i = 0; i < op.samples.size(); ++i) {
      const Status status = WriteSample(op, op.samples[i], absl::StrCat(folder, "/", op.name, "_", i));
      if (!status.ok()) std::printf("%s: %s\n", op.name.c_str(), std::string(status.message()).c_str());
      written += status.ok() ? 1 : 0;
    }
  }
  std::printf("%d samples\n", written);
  return written > 0 ? 0 : 1;
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) { return argc == 2 ? mslua::Main(argv[1]) : 2; }
