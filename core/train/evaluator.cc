#include "core/train/evaluator.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/data/loader.h"
#include "core/runtime/shaped_executable.h"
#include "core/train/agreement.h"

namespace mslua {

Evaluator::Evaluator(Executable* executable, data::Loader* loader, Groups* groups, Store* store,
                     std::vector<std::string> varying)
    : executable_(executable),
      loader_(loader),
      groups_(groups),
      store_(store),
      varying_(std::move(varying)),
      shaped_(ShapedOf(executable)) {}

StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(Executable* executable, data::Loader* loader, Groups* groups,
                                                       Store* store, std::vector<std::string> varying) {
  std::unique_ptr<Evaluator> e(new Evaluator(executable, loader, groups, store, std::move(varying)));
  const Graph& graph = executable->graph();
  const std::vector<int32_t> inputs = graph.Inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& n = graph.nodes[inputs[i]];
    const std::string& kind = n.attrs.Str("kind");
    if (kind == kScalar && n.attrs.Str("name") == "valid") e->valid_position_ = static_cast<int>(i);
    if (kind == kData) e->column_positions_.push_back(static_cast<int>(i));
  }
  const int64_t shapes = e->shaped_ == nullptr ? 1 : e->shaped_->shapes();
  if (loader->pipeline().shapes() != shapes) {
    return absl::InvalidArgumentError(absl::StrCat("batches of the evaluation dataset have ",
                                                   loader->pipeline().shapes(), " shapes, the graph is for ", shapes));
  }
  for (int64_t s = 0; s < shapes; ++s) RETURN_IF_ERROR(e->CheckColumns(s));
  return e;
}

Status Evaluator::CheckColumns(int64_t shape) const {
  const auto& schema = loader_->pipeline().schema(shape);
  const Graph& graph = shaped_ == nullptr ? executable_->graph() : shaped_->plan(shape).graph();
  const std::vector<int32_t> inputs = graph.Inputs();
  for (size_t c = 0; c < column_positions_.size(); ++c) {
    const int position = column_positions_[c];
    const int own = shaped_ == nullptr ? position : shaped_->PositionIn(shape, position);
    const TensorType& type = graph.nodes[inputs[own]].outputs[0];
    if (c < schema.size() && schema[c].type == type) continue;
    return absl::InvalidArgumentError(absl::StrCat("column ", c + 1, " of the evaluation dataset is ",
                                                   c < schema.size() ? ToString(schema[c].type) : "missing",
                                                   ", the graph takes ", ToString(type)));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<MetricSums>> Evaluator::Run() {
  if (groups_ == nullptr || varying_.empty()) return RunAll();
  // Training continues with each rank's own values, as without the evaluation.
  std::vector<TensorView> varying;
  std::vector<std::string> own;
  for (const std::string& name : varying_) {
    // The first one may move all of them.
    RETURN_IF_ERROR(store_->Write(*store_->Find(name)).status());
  }
  for (const std::string& name : varying_) {
    ASSIGN_OR_RETURN(const TensorView v, store_->Read(*store_->Find(name)));
    varying.push_back(v);
    own.emplace_back(v.as<const char>(), static_cast<size_t>(v.type.bytes()));
  }
  const Status shared = ShareTensors(*groups_, varying, "evaluation");
  auto result = shared.ok() ? RunAll() : shared;
  for (size_t i = 0; i < own.size(); ++i) {
    ASSIGN_OR_RETURN(const TensorView v, store_->Write(*store_->Find(varying_[i])));
    std::memcpy(v.data, own[i].data(), own[i].size());
  }
  return result;
}

void Evaluator::KeepWorst(SampleForm form) {
  const auto& outputs = executable_->graph().outputs;
  const auto of_samples = [](const GraphOutput& o) { return absl::StartsWith(o.name, kSampleOutput); };
  if (std::any_of(outputs.begin(), outputs.end(), of_samples))
    samples_kept_ = std::make_unique<WorstSamples>(std::move(form));
}

TensorView Evaluator::OutputNamed(const char* name) const {
  const auto& outputs = executable_->graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == name) return executable_->Output(static_cast<int>(i));
  }
  return {};
}

StatusOr<std::vector<MetricSums>> Evaluator::RunAll() {
  const Graph& graph = executable_->graph();
  std::vector<MetricSums> sums;
  std::vector<int> summed;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphOutput& o = graph.outputs[i];
    if (absl::StartsWith(o.name, kSampleOutput)) continue;
    summed.push_back(static_cast<int>(i));
    sums.push_back({o.name, std::vector<double>(static_cast<size_t>(graph.TypeOf(o.value).elements()), 0)});
  }
  samples_ = 0;
  if (samples_kept_ != nullptr) samples_kept_->Clear();
  RETURN_IF_ERROR(RunBatches(summed, &sums));
  if (groups_ != nullptr) RETURN_IF_ERROR(AddOtherRanks(&sums));
  if (samples_kept_ != nullptr) {
    ASSIGN_OR_RETURN(worst_, samples_kept_->List(loader_->pipeline(), groups_));
  }
  if (samples_ == 0) return absl::InvalidArgumentError("the evaluation dataset has no samples");
  return sums;
}

Status Evaluator::RunBatches(const std::vector<int>& summed, std::vector<MetricSums>* sums) {
  RETURN_IF_ERROR(loader_->Seek({0, 0}));
  data::Batch batch;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, loader_->Next(&batch));
    if (!more) break;
    if (shaped_ != nullptr) shaped_->Select(batch.shape);
    for (size_t c = 0; c < column_positions_.size(); ++c)
      executable_->BindInputAt(column_positions_[c], batch.columns[c].data);
    if (valid_position_ >= 0) executable_->SetScalarAt(valid_position_, static_cast<double>(batch.valid));
    RETURN_IF_ERROR(data::NameSample(executable_->Run(), *loader_, batch));
    for (size_t i = 0; i < summed.size(); ++i) {
      const TensorView v = executable_->Output(summed[i]);
      std::vector<double>& all = (*sums)[i].sums;
      if (v.type.elements() != static_cast<int64_t>(all.size())) {
        return absl::InvalidArgumentError(absl::StrCat("metrics: ", (*sums)[i].name, " has ", v.type.elements(),
                                                       " numbers for one shape of a batch and ", all.size(),
                                                       " for another: expected as many for each"));
      }
      for (size_t k = 0; k < all.size(); ++k) all[k] += LoadAsDouble(v.type.dtype, v.data, static_cast<int64_t>(k));
    }
    if (samples_kept_ != nullptr) {
      samples_kept_->Add(batch,
                         {OutputNamed(kSampleLoss), OutputNamed(kSamplePrediction), OutputNamed(kSampleConfidence)});
    }
    samples_ += batch.valid;
  }
  return absl::OkStatus();
}

Status Evaluator::AddOtherRanks(std::vector<MetricSums>* sums) {
  std::vector<double> values = {static_cast<double>(samples_)};
  for (const MetricSums& s : *sums) values.insert(values.end(), s.sums.begin(), s.sums.end());
  RETURN_IF_ERROR(SumOverRanks(*groups_, absl::MakeSpan(values), "evaluation"));
  samples_ = static_cast<int64_t>(values[0]);
  auto next = values.begin() + 1;
  for (MetricSums& s : *sums) {
    std::copy_n(next, s.sums.size(), s.sums.begin());
    next += static_cast<int64_t>(s.sums.size());
  }
  return absl::OkStatus();
}

}  // namespace mslua
