#include "core/train/histograms_hook.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/train/summaries.h"

namespace mslua {

int64_t HistogramsHook::NextStep(const TrainState& state) {
  return (state.step / options_.every + (done_ == state.step ? 1 : 0)) * options_.every;
}

Status HistogramsHook::AtStep(const TrainState& state) {
  if (state.step == 0 || state.step % options_.every != 0) return absl::OkStatus();
  done_ = state.step;
  for (const auto& [name, key] : names_) {
    const Store::Entry* const entry = options_.parameters ? store_->Find(key) : nullptr;
    if (entry == nullptr) continue;
    ASSIGN_OR_RETURN(const TensorView value, store_->Read(*entry));
    progress_->summaries->AddHistogram(absl::StrCat("parameters/", name), state.step, MakeHistogram(value));
  }
  if (!options_.gradients) return absl::OkStatus();
  absl::flat_hash_map<absl::string_view, absl::string_view> by_key;
  for (const auto& [name, key] : names_) by_key.emplace(key, name);
  const Executable& step = *progress_->trainer->executable();
  const auto& outputs = step.graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    absl::string_view key = outputs[i].name;
    if (!outputs[i].updates.empty() || !absl::ConsumePrefix(&key, kGradientOutput)) continue;
    const auto name = by_key.find(key);
    if (name == by_key.end()) continue;
    progress_->summaries->AddHistogram(absl::StrCat("gradients/", name->second), state.step,
                                       MakeHistogram(step.Output(static_cast<int>(i))));
  }
  return absl::OkStatus();
}

}  // namespace mslua
