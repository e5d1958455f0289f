#include "core/checkpoint/tensor_names.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/optim/registry.h"

namespace mslua::checkpoint {
namespace {

using NameSet = absl::flat_hash_set<absl::string_view>;

// The names of `all` that are neither in `others` nor an optimizer's state of one of `parameters`.
NameSet Unmatched(const NameSet& all, const NameSet& others, const NameSet& parameters) {
  NameSet rest;
  for (absl::string_view name : all) {
    if (!others.contains(name) && StateOf(name, parameters).empty()) rest.insert(name);
  }
  return rest;
}

// Calls visit(end) for every end of a path: "a.b.c" has "b.c" and "c".
template <class Visit>
void EachEnd(absl::string_view path, Visit visit) {
  for (size_t dot = path.find('.'); dot != absl::string_view::npos; dot = path.find('.', dot + 1))
    visit(path.substr(dot + 1));
}

// Calls visit(end) for every end of a path behind fields in which wrappers keep their network: of
// "network.backbone.a.b" "backbone.a.b" and "a.b".
template <class Visit>
void EachEndBehindWrappers(absl::string_view path, Visit visit) {
  while (absl::ConsumePrefix(&path, "network.") || absl::ConsumePrefix(&path, "backbone.")) visit(path);
}

// The only candidate of a name; `count` of them were found.
struct Candidate {
  absl::string_view name;
  int count = 0;
  void Add(absl::string_view other) {
    name = other;
    ++count;
  }
};

// The first cell that was asked for its parameters named all of them, and so did a wrapper. Drops each name that is
// shorter in the checkpoint by the path of a cell, or longer by a wrapper's fields, where another of the `parameters`
// of that cell, or of the wrapped network, is not renamed.
void DropPartsOfCells(const NameSet& parameters, absl::flat_hash_map<absl::string_view, absl::string_view>* renamed) {
  for (size_t before = renamed->size() + 1; before != renamed->size();) {
    before = renamed->size();
    absl::flat_hash_map<absl::string_view, std::vector<absl::string_view>> cells;  // "": the root
    for (const auto& [w, s] : *renamed) cells[w.substr(0, w.size() > s.size() ? w.size() - s.size() : 0)].push_back(w);
    for (const auto& [cell, names] : cells) {
      const bool whole = absl::c_all_of(parameters, [&, path = cell](absl::string_view name) {
        return !absl::StartsWith(name, path) || renamed->contains(name);
      });
      if (whole) continue;
      for (absl::string_view name : names) renamed->erase(name);
    }
  }
}

}  // namespace

absl::string_view StateOf(absl::string_view name, const NameSet& names) {
  for (absl::string_view kind : OptimizerStateNames()) {
    absl::string_view parameter = name;
    if (absl::ConsumePrefix(&parameter, kind) && absl::ConsumePrefix(&parameter, ".") && names.contains(parameter))
      return parameter;
  }
  return {};
}

absl::flat_hash_map<std::string, std::string> OlderNames(const std::vector<std::string>& wanted,
                                                         const std::vector<std::string>& stored) {
  const NameSet all_wanted(wanted.begin(), wanted.end()), all_stored(stored.begin(), stored.end());
  NameSet all = all_wanted;
  all.insert(all_stored.begin(), all_stored.end());
  const NameSet lacking = Unmatched(all_wanted, all_stored, all), left = Unmatched(all_stored, all_wanted, all);
  absl::flat_hash_map<absl::string_view, Candidate> of_lacking, of_left;
  const auto add = [&](absl::string_view w, absl::string_view s) {
    of_lacking[w].Add(s);
    of_left[s].Add(w);
  };
  for (absl::string_view w : lacking) {
    EachEnd(w, [&](absl::string_view end) {
      if (left.contains(end)) add(w, end);
    });
  }
  for (absl::string_view s : left) {
    EachEndBehindWrappers(s, [&](absl::string_view end) {
      if (lacking.contains(end)) add(end, s);
    });
  }
  absl::flat_hash_map<absl::string_view, absl::string_view> renamed;
  for (const auto& [w, candidate] : of_lacking) {
    if (candidate.count == 1 && of_left[candidate.name].count == 1) renamed.emplace(w, candidate.name);
  }
  DropPartsOfCells(Unmatched(all_wanted, {}, all), &renamed);
  absl::flat_hash_map<std::string, std::string> older;
  for (const auto& [w, s] : renamed) {
    older.emplace(w, s);
    for (const std::string& kind : OptimizerStateNames()) {
      std::string state = absl::StrCat(kind, ".", w), then = absl::StrCat(kind, ".", s);
      if (all_wanted.contains(state) && !all_stored.contains(state) && all_stored.contains(then))
        older.emplace(std::move(state), std::move(then));
    }
  }
  return older;
}

}  // namespace mslua::checkpoint
