#include "train/saved_tensors.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/hash.h"
#include "core/step/global_view.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

TensorParts PartsOfView(const RankState& state, const StepGraph& graph, const GlobalView& view) {
  TensorParts parts;
  // What another stage keeps is not this rank's to save, even where a recipe has looked at it.
  for (const auto& e : state.store.entries()) {
    const int owner = view.OwnerOf(e->name);
    if (owner != kNoStage && owner != view.stage()) parts[e->name].replica = true;
  }
  for (const auto& p : graph.parameters) {
    const GlobalView::Sharded* sharded = view.Find(p->key);
    if (sharded == nullptr || (sharded->layout.replicated() && view.stages() == 1)) continue;
    TensorPart& t = parts[p->key];
    t.part = sharded->part;
    t.replica = !sharded->first;
  }
  return parts;
}

}  // namespace

TensorParts PartsOf(RankState& state, const StepGraph& graph, bool together) {
  if (graph.sharded) return PartsOfView(state, graph, *state.view);
  TensorParts parts;
  for (const auto& p : graph.parameters) {
    if (together && p->MayVary()) parts[p->key].varies = true;
    if (!p->slice.whole.empty()) {
      parts[p->key].part = p->slice;
      parts[p->key].flat = true;
      parts[p->key].replica = p->replica;
    }
    if (!p->layerwise_parallel) continue;
    parts[p->key].own = true;
    for (const auto& e : state.optimizer_states) {
      if (e.second->state_of == p->key) parts[e.first].own = true;
    }
  }
  return parts;
}

TensorNames NamesOf(RankState& state, const TrainingSpec& spec) {
  TensorNames names;
  absl::flat_hash_set<std::string> taken;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    taken.insert(spec.parameter_names[i]);
    if (spec.parameters[i]->saved) names[KeyOf(state, *spec.parameters[i])] = spec.parameter_names[i];
  }
  for (const auto& p : spec.graph->parameters) {
    if (names.contains(p->key) || !p->saved) continue;
    const auto of = names.find(p->state_of);
    const std::string name = of == names.end() ? p->key : absl::StrCat(p->state_kind, ".", of->second);
    names[p->key] = taken.insert(name).second ? name : p->key;
  }
  return names;
}

endpoint::TensorPlace PlaceOf(const RankState& state, const TensorParts& parts, const std::string& name) {
  endpoint::TensorPlace place;
  if (const GlobalView* view = state.view.get()) {
    if (const GlobalView::Sharded* sharded = view->Find(name)) {
      place.part = sharded->part;
      place.layout = sharded->layout.ToString();
      return place;
    }
  }
  const auto found = parts.find(name);
  if (found == parts.end()) return place;
  place.own = found->second.own || found->second.varies;
  place.part = found->second.part;
  return place;
}

Status MakeValues(RankState& state, const TrainingSpec& spec,
                  const std::function<bool(const std::string& name)>& wanted) {
  const GlobalView* const view = state.view.get();
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    ParameterData& p = *spec.parameters[i];
    const int owner = view == nullptr ? kNoStage : view->OwnerOf(p.key);
    const bool elsewhere = owner != kNoStage && owner != view->stage();
    if (elsewhere || state.store.Find(p.key) != nullptr || !wanted(spec.parameter_names[i])) continue;
    RETURN_IF_ERROR(ValueOf(state, p).status());
  }
  return absl::OkStatus();
}

StatusOr<std::vector<std::string>> VaryingOf(RankState& state, const StepGraph& graph) {
  std::vector<std::string> varying;
  for (const auto& p : graph.parameters) {
    const auto& outputs = graph.graph.outputs;
    const bool replaced =
        std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& o) { return o.updates == p->key; });
    if (!p->MayVary() || replaced) continue;
    RETURN_IF_ERROR(ValueOf(state, *p).status());
    varying.push_back(p->key);
  }
  return varying;
}

namespace {

// The checksums of a rank's parameters, as words: "v123" of a value, "g123" of one that a recipe or a file gave, "-" of
// one that this rank does not have.
using Words = std::vector<std::string>;
constexpr char kNone[] = "-", kGiven[] = "g";

StatusOr<std::vector<Words>> GatherWords(Groups& groups, const Words& words) {
  ASSIGN_OR_RETURN(const auto texts, GatherTexts(groups, absl::StrJoin(words, " "), "the parameters"));
  std::vector<Words> all;
  for (const std::string& text : texts) all.push_back(absl::StrSplit(text, ' '));
  return all;
}

// FailedPrecondition where a rank has another value of a parameter than a rank before it.
Status CompareWords(const std::vector<Words>& all, const std::vector<std::string>& names, absl::string_view fix) {
  for (size_t i = 0; i < names.size(); ++i) {
    size_t first = all.size();
    for (size_t r = 0; r < all.size(); ++r) {
      if (i >= all[r].size() || all[r][i] == kNone) continue;
      if (first == all.size()) first = r;
      if (all[r][i].substr(1) == all[first][i].substr(1)) continue;
      return absl::FailedPreconditionError(absl::StrCat("rank ", r, " begins with other values of '", names[i],
                                                        "' than rank ", first, ": load or assign them on all ranks, ",
                                                        fix));
    }
  }
  return absl::OkStatus();
}

std::string WordOf(absl::string_view kind, uint32_t checksum) { return absl::StrCat(kind, checksum); }

// What this rank has, or was given, of a parameter that ranks may keep parts of.
StatusOr<std::string> ShardedWord(RankState& state, ParameterData& p, bool resumed) {
  const GlobalView& view = *state.view;
  const int owner = view.OwnerOf(KeyOf(state, p));
  const bool here = owner == kNoStage || owner == view.stage();
  const GlobalView::Sharded* const sharded = view.Find(p.key);
  TensorView value;
  if (here) {
    ASSIGN_OR_RETURN(value, ValueOf(state, p));
  } else if (p.init.kind == "tensor" && !p.given) {
    ASSIGN_OR_RETURN(p.given, ChecksumOfFirstValue(state, p));
  }
  if (resumed) p.given.reset();
  const bool whole = here && (sharded == nullptr || sharded->part.all());
  if (whole) return WordOf(p.given ? kGiven : "v", Crc32c(value.data, static_cast<size_t>(value.type.bytes())));
  return p.given ? WordOf(kGiven, *p.given) : kNone;
}

}  // namespace

Status CompareParameters(RankState& state, const StepGraph& graph) {
  std::vector<std::string> names;
  Words words;
  for (const auto& p : graph.parameters) {
    const bool alike = !p->layerwise_parallel && !p->MayVary() && p->slice.whole.empty();
    if (!alike || state.optimizer_states.contains(p->key)) continue;
    ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, *p));
    names.push_back(p->name);
    words.push_back(WordOf("v", Crc32c(value.data, static_cast<size_t>(value.type.bytes()))));
  }
  ASSIGN_OR_RETURN(const auto all, GatherWords(*state.groups, words));
  return CompareWords(all, names,
                      "give all ranks one seed (ms.set_seed), or set parameter_broadcast = true, with which all begin "
                      "with those of rank 0");
}

Status CompareShardedParameters(RankState& state, absl::Span<const std::shared_ptr<ParameterData>> parameters,
                                bool resumed) {
  std::vector<ParameterData*> compared;
  std::vector<std::string> names;
  Words words;
  for (const auto& p : parameters) {
    if (p->layerwise_parallel || !p->state_of.empty()) continue;
    ASSIGN_OR_RETURN(std::string word, ShardedWord(state, *p, resumed));
    compared.push_back(p.get());
    names.push_back(p->name);
    words.push_back(std::move(word));
  }
  ASSIGN_OR_RETURN(auto all, GatherWords(*state.groups, words));
  // Where some ranks were given a value, the others begin with that of the initializer.
  bool filled = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto count = [&](absl::string_view kind) {
      return std::count_if(all.begin(), all.end(),
                           [&](const Words& rank) { return i < rank.size() && absl::StartsWith(rank[i], kind); });
    };
    if (count(kGiven) == 0 || count(kNone) == 0) continue;
    filled = true;
    if (words[i] != kNone) continue;
    ASSIGN_OR_RETURN(const auto checksum, ChecksumOfFirstValue(state, *compared[i]));
    if (checksum) words[i] = WordOf("v", *checksum);
  }
  if (filled) {
    ASSIGN_OR_RETURN(all, GatherWords(*state.groups, words));
  }
  for (ParameterData* p : compared) p->given.reset();
  return CompareWords(all, names, "or give all ranks one seed (ms.set_seed)");
}

Status BroadcastParameters(RankState& state, const StepGraph& graph, bool resumed) {
  std::vector<TensorView> values;
  for (const auto& p : graph.parameters) {
    if (p->layerwise_parallel || state.optimizer_states.contains(p->key) || (resumed && p->MayVary())) continue;
    ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, *p));
    values.push_back(value);
  }
  for (const auto& entry : state.store.entries()) RETURN_IF_ERROR(state.store.WriteInPlace(*entry).status());
  return ShareTensors(*state.groups, values, "parameter_broadcast");
}

}  // namespace mslua
