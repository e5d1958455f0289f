#include "core/checkpoint/tensor_names.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/optim/registry.h"

namespace mslua::checkpoint {
namespace {

using NameSet = absl::flat_hash_set<absl::string_view>;

// Every end of a path: "a.b.c" has "b.c" and "c".
template <class Visit>
void EachEnd(absl::string_view path, Visit visit) {
  for (size_t dot = path.find('.'); dot != absl::string_view::npos; dot = path.find('.', dot + 1))
    visit(path.substr(dot + 1));
}

// The names of `all` that are neither in `others` nor an optimizer's state.
NameSet Unmatched(const NameSet& all, const NameSet& others) {
  NameSet rest;
  for (absl::string_view name : all) {
    if (!others.contains(name) && StateOf(name, all).empty()) rest.insert(name);
  }
  return rest;
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
  const NameSet lacking = Unmatched(all_wanted, all_stored), left = Unmatched(all_stored, all_wanted);
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
    EachEnd(s, [&](absl::string_view end) {
      if (lacking.contains(end)) add(end, s);
    });
  }
  absl::flat_hash_map<std::string, std::string> older;
  for (const auto& [w, candidate] : of_lacking) {
    if (candidate.count != 1 || of_left[candidate.name].count != 1) continue;
    older.emplace(w, candidate.name);
    for (const std::string& kind : OptimizerStateNames()) {
      std::string state = absl::StrCat(kind, ".", w), then = absl::StrCat(kind, ".", candidate.name);
      if (all_wanted.contains(state) && !all_stored.contains(state) && all_stored.contains(then))
        older.emplace(std::move(state), std::move(then));
    }
  }
  return older;
}

}  // namespace mslua::checkpoint
