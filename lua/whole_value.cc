#include "lua/whole_value.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/hash.h"
#include "core/graph/builder.h"
#include "core/train/agreement.h"
#include "lua/graph_lua.h"
#include "lua/object.h"
#include "lua/program.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// The program that makes the whole of a rank's part.
StatusOr<Program*> Gatherer(Session& session, const GlobalView::Sharded& sharded) {
  const TensorType whole = sharded.whole();
  const std::string key = absl::StrCat("whole ", ToString(whole), " ", sharded.layout.ToString());
  auto& programs = session.eager_programs;
  if (const auto found = programs.find(key); found != programs.end()) return found->second.get();
  RankState& state = session.state();
  Resharder& resharder = state.view->resharder();
  ASSIGN_OR_RETURN(const ReshardPlan* const plan, resharder.Plan(sharded.layout, Layout(whole.rank()), whole));
  GraphBuilder g("whole_value");
  const Value part = g.Input("part", kData, sharded.local());
  g.Output("whole", EmitReshard(g, resharder.mesh(), state.rank, *plan, part, whole));
  ASSIGN_OR_RETURN(const Graph graph, g.Finish());
  ASSIGN_OR_RETURN(auto program, Program::Compile(session, graph, {}));
  return programs.emplace(key, std::move(program)).first->second.get();
}

// core.is_part(parameter)
StatusOr<int> IsPart(lua_State* L, Session& session) {
  const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, 1);
  if (p == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("is_part: expected a Parameter, got ", Describe(L, 1)));
  ASSIGN_OR_RETURN(const GlobalView::Sharded* const part, PartOf(session.state(), **p));
  lua_pushboolean(L, part != nullptr ? 1 : 0);
  return 1;
}

// core.gather_texts(text, what)
StatusOr<int> GatherTextsOfRanks(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string text, ReadString(L, 1, "gather_texts: text"));
  ASSIGN_OR_RETURN(const std::string what, ReadString(L, 2, "gather_texts: what"));
  std::vector<std::string> texts = {text};
  if (session.groups() != nullptr) {
    ASSIGN_OR_RETURN(texts, GatherTexts(*session.groups(), text, what));
  }
  lua_createtable(L, static_cast<int>(texts.size()), 0);
  for (size_t r = 0; r < texts.size(); ++r) {
    PushString(L, texts[r]);
    lua_rawseti(L, -2, static_cast<int>(r) + 1);
  }
  return 1;
}

// core.check_same(what, tensors)
StatusOr<int> CheckSame(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string what, ReadString(L, 1, "check_same: what"));
  if (lua_type(L, 2) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("check_same: expected tensors, got ", Describe(L, 2)));
  std::vector<std::string> lines;  // a type and a digest for each tensor
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, 2)); ++i) {
    lua_rawgeti(L, 2, i);
    ASSIGN_OR_RETURN(const Tensor t, ReadTensor(session, L, -1, absl::nullopt, what));
    lua_pop(L, 1);
    const absl::string_view bytes(static_cast<const char*>(t.data.get()), static_cast<size_t>(t.type.bytes()));
    lines.push_back(absl::StrCat(ToString(t.type), " ", Blake2bHex(bytes)));
  }
  if (session.groups() == nullptr) return 0;
  ASSIGN_OR_RETURN(const auto texts, GatherTexts(*session.groups(), absl::StrJoin(lines, "\n"), what));
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const std::vector<std::string> first = absl::StrSplit(texts[0], '\n'), other = absl::StrSplit(texts[r], '\n');
    size_t i = 0;
    while (i + 1 < std::min(first.size(), other.size()) && first[i] == other[i]) ++i;
    const std::string a = first[i].substr(0, first[i].find(' ')), b = other[i].substr(0, other[i].find(' '));
    return absl::FailedPreconditionError(absl::StrCat(
        what, ": argument ", i + 1, " of rank ", r, " is ", b, a == b ? " with other numbers than" : " and",
        " that of rank 0", a == b ? "" : absl::StrCat(" is ", a),
        ": the ranks keep parts of the parameters and compute together, and each gives the same"));
  }
  return 0;
}

}  // namespace

StatusOr<Tensor> WholeValue(Session& session, ParameterData& p) {
  ASSIGN_OR_RETURN(const TensorView value, ValueOf(session.state(), p));
  ASSIGN_OR_RETURN(Tensor copy, NewTensor(session.allocator(), value.type));
  std::memcpy(copy.data.get(), value.data, static_cast<size_t>(value.type.bytes()));
  ASSIGN_OR_RETURN(const GlobalView::Sharded* const sharded, PartOf(session.state(), p));
  if (sharded == nullptr) return copy;
  if (session.groups() == nullptr) return CheckWhole(session.state(), p);
  ASSIGN_OR_RETURN(Program* const program, Gatherer(session, *sharded));
  ASSIGN_OR_RETURN(std::vector<Tensor> whole, program->Run(session, {std::move(copy)}));
  return std::move(whole[0]);
}

void OpenWholeValues(lua_State* L) {
  SetFunctions(
      L, {{"is_part", Entry<IsPart>}, {"gather_texts", Entry<GatherTextsOfRanks>}, {"check_same", Entry<CheckSame>}});
}

}  // namespace mslua
