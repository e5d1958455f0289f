#include "repl/endpoint/watch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"

namespace mslua::endpoint {
namespace {

// The one candidate that is `name`, else the one that ends with it after a '/' or '.', else the one that contains it.
StatusOr<std::string> Unique(absl::string_view name, const std::vector<std::string>& candidates, const char* what) {
  std::vector<std::string> found;
  for (int round = 0; round < 3 && found.empty(); ++round) {
    for (const std::string& c : candidates) {
      const bool fits = round == 0 ? c == name
                        : round == 1
                            ? absl::EndsWith(c, absl::StrCat("/", name)) || absl::EndsWith(c, absl::StrCat(".", name))
                            : absl::StrContains(c, name);
      if (fits && std::find(found.begin(), found.end(), c) == found.end()) found.push_back(c);
    }
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", what, " '", name, "'", DidYouMean({name.data(), name.size()}, candidates)));
  }
  const size_t most = std::min<size_t>(found.size(), 6);
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' fits ", found.size(), ": ",
                                                 absl::StrJoin(found.begin(), found.begin() + most, ", "),
                                                 found.size() > most ? ", ..." : ""));
}

bool IsGradient(const std::string& scope) { return absl::StartsWith(scope, "grad("); }

}  // namespace

StatusOr<bool> AllAgree(const TrainingView& view, bool mine) {
  if (!view.gather) return mine;
  ASSIGN_OR_RETURN(const auto all, view.gather(mine ? "yes" : "no"));
  return std::count(all.begin(), all.end(), "yes") == static_cast<int64_t>(all.size());
}

Watched::Watched(const TrainingView& view) : view_(view), first_(view.trainer->executable()) {}

StatusOr<Named> Watched::FindStored(absl::string_view name) const {
  std::vector<std::string> names;
  for (const auto& e : view_.store->entries()) names.push_back(e->name);
  ASSIGN_OR_RETURN(const std::string full, Unique(name, names, "parameter or state"));
  const Store::Entry* entry = view_.store->Find(full);
  return Named{full, entry->type, entry->memory.data(), {}};
}

StatusOr<Named> Watched::FindActivation(absl::string_view name) const {
  const Graph& graph = first_->graph();
  const auto named = [&](const std::string& full, Value v) { return Named{full, graph.TypeOf(v), nullptr, v}; };
  int64_t node = 0, output = 0;
  if (absl::StartsWith(name, "%")) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(name.substr(1), absl::MaxSplits(':', 1));
    if (!absl::SimpleAtoi(parts.first, &node) || (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &output)) ||
        node < 0 || node >= static_cast<int64_t>(graph.nodes.size()) || output < 0 ||
        output >= static_cast<int64_t>(graph.nodes[node].outputs.size()))
      return absl::NotFoundError(absl::StrCat("the graph has no value ", name, " (.graph)"));
    return named(std::string(name), {static_cast<int32_t>(node), static_cast<int32_t>(output)});
  }
  // "Net", "Net/matmul", "Net/matmul#2": the last value of a cell, and each operator's.
  std::map<std::string, Value> values;
  std::map<std::string, int> counts;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    if (n.location == nullptr || n.location->scope.empty() || IsGradient(n.location->scope)) continue;
    if (n.op->name == "input" || n.op->name == "constant") continue;
    const Value v{static_cast<int32_t>(i), 0};
    const std::string full = absl::StrCat(n.location->scope, "/", n.op->name);
    const int count = ++counts[full];
    values[n.location->scope] = v;
    values[count == 1 ? full : absl::StrCat(full, "#", count)] = v;
  }
  std::vector<std::string> names;
  for (const auto& v : values) names.push_back(v.first);
  ASSIGN_OR_RETURN(const std::string full, Unique(name, names, "parameter, state or activation"));
  return named(full, values[full]);
}

StatusOr<Named> Watched::FindGradient(absl::string_view parameter) const {
  ASSIGN_OR_RETURN(const Named p, FindStored(parameter));
  const Graph& graph = first_->graph();
  for (const GraphOutput& o : graph.outputs) {
    if (o.updates != p.name) continue;
    std::vector<Value> candidates;
    for (const Value v : graph.nodes[o.value.node].inputs) {
      if (graph.nodes[v.node].op->name != "input" && graph.TypeOf(v).shape == p.type.shape) candidates.push_back(v);
    }
    if (candidates.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the gradient of ", p.name, " is no value of the compiled graph: it was fused into its update"));
    }
    return Named{absl::StrCat("grad(", p.name, ")"), graph.TypeOf(candidates[0]), nullptr, candidates[0]};
  }
  return absl::NotFoundError(absl::StrCat(p.name, " is not trained: it has no gradient"));
}

StatusOr<Named> Watched::Find(absl::string_view name) const {
  auto found = FindHere(name);
  ASSIGN_OR_RETURN(const bool everywhere, AllAgree(view_, found.ok()));
  if (found.ok() && !everywhere) return absl::NotFoundError(absl::StrCat("not every rank has '", name, "'"));
  return found;
}

StatusOr<Named> Watched::FindHere(absl::string_view name) const {
  absl::string_view parameter = name;
  if (absl::ConsumePrefix(&parameter, "grad(") && absl::ConsumeSuffix(&parameter, ")")) return FindGradient(parameter);
  auto stored = FindStored(name);
  if (!absl::IsNotFound(stored.status())) return stored;
  return FindActivation(name);
}

Status Watched::Show(const std::vector<Value>& values) {
  if (values == shown_) return absl::OkStatus();
  std::unique_ptr<Executable> next;
  if (!values.empty()) {
    Graph graph = first_->graph();
    for (const Value v : values) graph.outputs.push_back({absl::StrCat("watch", v.node, ".", v.output), v, ""});
    auto made = view_.compile(graph);
    // Compiling drops nothing: every node was alive.
    if (made.ok() && (*made)->graph().outputs.size() != graph.outputs.size())
      made = absl::InternalError("a plan with watches has other outputs");
    if (view_.gather) {
      ASSIGN_OR_RETURN(const bool everywhere, AllAgree(view_, made.ok()));
      if (made.ok() && !everywhere) made = absl::AbortedError("another rank could not plan anew with that value");
    }
    ASSIGN_OR_RETURN(next, std::move(made));
  }
  view_.trainer->ReplaceExecutable(next == nullptr ? first_ : next.get());
  second_ = std::move(next);
  shown_ = values;
  return absl::OkStatus();
}

TensorView Watched::ViewOf(const Named& named) const {
  if (named.stored != nullptr) return {named.type, const_cast<void*>(named.stored)};
  const auto at = std::find(shown_.begin(), shown_.end(), named.value);
  if (at == shown_.end()) return {named.type, nullptr};
  const int first = static_cast<int>(first_->graph().outputs.size());
  return second_->Output(first + static_cast<int>(at - shown_.begin()));
}

}  // namespace mslua::endpoint
