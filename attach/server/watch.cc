#include "attach/server/watch.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"
#include "core/checkpoint/tensor_names.h"
#include "core/graph/gradient_marks.h"
#include "core/runtime/shaped_executable.h"
#include "core/sharding/layout.h"

namespace mslua::endpoint {
namespace {

// Grades of fits among candidates of one kind; those of activations follow those of parameters and states.
constexpr int kGrades = 3;

// The one name of those that fit.
StatusOr<std::string> Only(absl::string_view name, const std::vector<std::string>& found) {
  if (found.size() == 1) return found[0];
  const size_t most = std::min<size_t>(found.size(), 6);
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' fits ", found.size(), ": ",
                                                 absl::StrJoin(found.begin(), found.begin() + most, ", "),
                                                 found.size() > most ? ", ..." : ""));
}

Status NothingFits(const char* what, absl::string_view name, const std::vector<std::string>& candidates) {
  return absl::NotFoundError(
      absl::StrCat("there is no ", what, " '", name, "'", DidYouMean({name.data(), name.size()}, candidates)));
}

bool IsGradient(const std::string& scope) { return absl::StartsWith(scope, "grad("); }

}  // namespace

StatusOr<bool> AllAgree(const TrainingView& view, bool mine) {
  if (!view.gather) return mine;
  ASSIGN_OR_RETURN(const auto all, view.gather(mine ? "yes" : "no"));
  return std::count(all.begin(), all.end(), "yes") == static_cast<int64_t>(all.size());
}

Watched::Watched(const TrainingView& view) : view_(view), first_(view.trainer->executable()) {}

// Candidates that are `name`, else those that end with it after a '/' or '.', else those that contain it.
Watched::Fits Watched::FitsOf(absl::string_view name, const std::vector<std::string>& candidates) {
  Fits fits;
  for (; fits.grade < kGrades; ++fits.grade) {
    for (const std::string& c : candidates) {
      const bool fit = fits.grade == 0 ? c == name
                       : fits.grade == 1
                           ? absl::EndsWith(c, absl::StrCat("/", name)) || absl::EndsWith(c, absl::StrCat(".", name))
                           : absl::StrContains(c, name);
      if (fit && std::find(fits.names.begin(), fits.names.end(), c) == fits.names.end()) fits.names.push_back(c);
    }
    if (!fits.names.empty()) break;
  }
  return fits;
}

std::vector<std::string> Watched::StoredNames() const {
  std::vector<std::string> names;
  for (const auto& e : view_.store->entries()) names.push_back(e->name);
  return names;
}

StatusOr<Watched::Fit> Watched::FitOf(absl::string_view name, const std::vector<std::string>& names) {
  const Fits fits = FitsOf(name, names);
  if (fits.names.empty()) return NothingFits("parameter or state", name, names);
  ASSIGN_OR_RETURN(const std::string only, Only(name, fits.names));
  return Fit{only, fits.grade};
}

StatusOr<Named> Watched::FindStored(absl::string_view name) const {
  ASSIGN_OR_RETURN(const Fit fit, FitOf(name, StoredNames()));
  return NamedHere(fit.name, fit.grade);
}

StatusOr<Value> Watched::NumberedValue(absl::string_view name) const {
  const Graph& graph = first_->graph();
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(name.substr(1), absl::MaxSplits(':', 1));
  int64_t node = 0, output = 0;
  if (!absl::SimpleAtoi(parts.first, &node) || (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &output)) ||
      node < 0 || node >= static_cast<int64_t>(graph.nodes.size()) || output < 0 ||
      output >= static_cast<int64_t>(graph.nodes[node].outputs.size()))
    return absl::NotFoundError(absl::StrCat("the graph has no value ", name, " (.graph)"));
  return Value{static_cast<int32_t>(node), static_cast<int32_t>(output)};
}

std::map<std::string, Value> Watched::Activations() const {
  const Graph& graph = first_->graph();
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
  return values;
}

StatusOr<Watched::Fits> Watched::FitsHere(absl::string_view name) const {
  std::vector<std::string> names = StoredNames();
  Fits fits = FitsOf(name, names);
  if (!fits.names.empty()) return fits;
  if (ShapedOf(first_) != nullptr) {
    return absl::UnimplementedError(absl::StrCat("there is no parameter or state '", name,
                                                 "', and where batches have several shapes "
                                                 "(bucket_batch_by_length) what a step computes cannot be shown"));
  }
  if (absl::StartsWith(name, "%")) {
    RETURN_IF_ERROR(NumberedValue(name).status());
    return Fits{kGrades, {std::string(name)}};
  }
  std::vector<std::string> activations;
  for (const auto& v : Activations()) activations.push_back(v.first);
  fits = FitsOf(name, activations);
  names.insert(names.end(), activations.begin(), activations.end());
  if (fits.names.empty()) return NothingFits("parameter, state or activation", name, names);
  fits.grade += kGrades;
  return fits;
}

Named Watched::NamedHere(const std::string& full, int grade) const {
  Named named;
  named.name = full;
  named.kept = grade < kGrades;
  if (named.kept) {
    named.stored = view_.store->Find(full);
    if (named.stored != nullptr) named.type = named.stored->type;
    return named;
  }
  if (ShapedOf(first_) != nullptr) return named;
  if (absl::StartsWith(full, "%")) {
    named.value = NumberedValue(full).value_or(Value());
  } else {
    const std::map<std::string, Value> values = Activations();
    if (const auto found = values.find(full); found != values.end()) named.value = found->second;
  }
  if (named.value.valid()) named.type = first_->graph().TypeOf(named.value);
  return named;
}

// Says which part of the whole this rank has, which is that of `stored` in the store.
void Watched::Locate(const std::string& stored, Named* named) const {
  named->part = named->type;
  const TensorPlace place = view_.place ? view_.place(stored) : TensorPlace();
  if (place.own || place.part.whole.empty() || place.part.whole == named->type.shape) return;
  named->gathered = true;
  named->type.shape = place.part.whole;
  named->begin = place.part.begin;
}

// The node that makes the gradient of `parameter` which its update reads, of the shape that the update has; or none.
StatusOr<Named> Watched::FindGradientHere(absl::string_view parameter) const {
  ASSIGN_OR_RETURN(const Named p, FindStored(parameter));
  const Graph& graph = first_->graph();
  const bool trained = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                   [&](const GraphOutput& o) { return o.updates == p.name; });
  if (!trained) return absl::NotFoundError(absl::StrCat(p.name, " is not trained: it has no gradient"));
  absl::flat_hash_set<absl::string_view> kept;
  for (const auto& e : view_.store->entries()) kept.insert(e->name);
  if (const absl::string_view of = checkpoint::StateOf(p.name, kept); !of.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(p.name, " is an optimizer's state of ", of,
                                                   ", which has no gradient; that of the parameter: .grad ", of));
  }
  // Where it lies: as the parameter or as the optimizer's state of it.
  std::vector<std::string> like = {p.name};
  for (const auto& e : view_.store->entries()) {
    if (absl::EndsWith(e->name, absl::StrCat(".", p.name))) like.push_back(e->name);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    for (const GradientMark& mark : GradientMarksOf(n)) {
      if (mark.parameter != p.name) continue;
      const TensorType& type = n.outputs[mark.inside ? 0 : mark.place];
      for (const std::string& stored : like) {
        if (view_.store->Find(stored)->type != type) continue;
        Named named;
        named.name = absl::StrCat("grad(", p.name, ")");
        named.type = type;
        named.value = {static_cast<int32_t>(i), mark.place};
        if (mark.inside) named.inside = mark.place;
        Locate(stored, &named);
        // Of a slice of the elements the whole is flat; where p is a part too, the whole has more elements than it.
        if (named.gathered && type.shape.size() == 1 && named.type.elements() == p.type.elements())
          named.type.shape = p.type.shape;
        return named;
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the gradient of ", p.name, " is no value of the compiled graph: it was fused into its update"));
}

namespace {

// What a rank says of a gradient: "have NAME;TYPE;PART;BEGIN", or why it has none.
std::string TextOf(const StatusOr<Named>& found) {
  if (!found.ok()) return absl::StrCat(absl::IsNotFound(found.status()) ? "none " : "wrong ", found.status().message());
  return absl::StrCat("have ", found->name, ";", found->gathered, ";", Name(found->type.dtype), ";",
                      absl::StrJoin(found->type.shape, ","), ";", absl::StrJoin(found->part.shape, ","), ";",
                      absl::StrJoin(found->begin, ","));
}

Shape ShapeOf(absl::string_view text) {
  Shape shape;
  for (absl::string_view number : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    shape.push_back(0);
    if (!absl::SimpleAtoi(number, &shape.back())) shape.back() = 0;
  }
  return shape;
}

}  // namespace

// What the ranks have together; `all`: what TextOf gives on each.
StatusOr<Named> Watched::Together(absl::string_view asked, const StatusOr<Named>& mine,
                                  const std::vector<std::string>& all) const {
  bool everywhere = true;
  std::vector<absl::string_view> fields;  // of a rank that has it
  for (absl::string_view text : all) {
    if (absl::ConsumePrefix(&text, "wrong ")) return absl::InvalidArgumentError(text);
    if (!absl::ConsumePrefix(&text, "have ")) {
      everywhere = false;
      continue;
    }
    const std::vector<absl::string_view> here = absl::StrSplit(text, ';');
    if (!fields.empty() && here[0] != fields[0])
      return absl::InvalidArgumentError(absl::StrCat("'", asked, "' fits ", fields[0], " and ", here[0]));
    fields = here;
  }
  if (fields.size() != 6) return mine.ok() ? absl::NotFoundError("no rank has it") : mine;
  if (everywhere && fields[1] == "0") return mine;
  Named named = mine.ok() ? *mine : Named();
  named.name = std::string(fields[0]);
  named.gathered = true;
  if (!mine.ok()) {
    named.type = {ParseDType(fields[2]).value_or(DType::kF32), ShapeOf(fields[3])};
    return named;
  }
  // Of ranks with one part the first one gives it. What every rank of a stage has whole begins at 0.
  if (named.begin.empty()) named.begin.assign(named.type.shape.size(), 0);
  const auto same = std::find(all.begin(), all.end(), TextOf(mine));
  named.contributes = same - all.begin() == view_.rank;
  return named;
}

StatusOr<Named> Watched::FindGradient(absl::string_view parameter) const {
  StatusOr<Named> mine = FindGradientHere(parameter);
  if (!view_.gather) return mine;
  ASSIGN_OR_RETURN(const std::vector<std::string> all, view_.gather(TextOf(mine)));
  return Together(parameter, mine, all);
}

StatusOr<Named> Watched::FindWhole(absl::string_view name) const {
  ASSIGN_OR_RETURN(const Named found, Find(name));
  if (!found.kept || !view_.gather) return found;
  StatusOr<Named> mine = absl::NotFoundError(absl::StrCat(found.name, " is on other ranks"));
  if (found.stored != nullptr) {
    mine = found;
    Locate(found.name, &*mine);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, view_.gather(TextOf(mine)));
  const std::string part = absl::StrCat("have ", found.name, ";1;");
  if (std::none_of(all.begin(), all.end(), [&](const std::string& text) { return absl::StartsWith(text, part); }))
    return found;
  ASSIGN_OR_RETURN(Named whole, Together(name, mine, all));
  whole.kept = true;
  whole.owners = found.owners;
  return whole;
}

StatusOr<Named> Watched::Find(absl::string_view name) const {
  absl::string_view parameter = name;
  if (absl::ConsumePrefix(&parameter, "grad(") && absl::ConsumeSuffix(&parameter, ")")) return FindGradient(parameter);
  return FindOnRanks(name);
}

StatusOr<Named> Watched::FindOnRanks(absl::string_view name) const {
  const StatusOr<Fits> mine = FitsHere(name);
  if (!view_.gather) {
    RETURN_IF_ERROR(mine.status());
    ASSIGN_OR_RETURN(const std::string full, Only(name, mine->names));
    return NamedHere(full, mine->grade);
  }
  // Each rank's best fits are lines behind their grade; a rank without one says why.
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   view_.gather(mine.ok() ? absl::StrCat(mine->grade, "\n", absl::StrJoin(mine->names, "\n"))
                                          : std::string(mine.status().message())));
  int best = INT_MAX;
  std::string why;
  std::vector<std::string> names;
  std::map<std::string, std::vector<int>> owners;
  for (size_t r = 0; r < all.size(); ++r) {
    const std::vector<std::string> lines = absl::StrSplit(all[r], '\n');
    int grade = 0;
    if (lines.size() < 2 || !absl::SimpleAtoi(lines[0], &grade)) {
      if (all[r].size() > why.size()) why = all[r];  // the one that suggests a name, where one does
      continue;
    }
    if (grade > best) continue;
    if (grade < best) {
      names.clear();
      owners.clear();
    }
    best = grade;
    for (size_t i = 1; i < lines.size(); ++i) {
      std::vector<int>& ranks = owners[lines[i]];
      if (ranks.empty()) names.push_back(lines[i]);
      ranks.push_back(static_cast<int>(r));
    }
  }
  if (names.empty()) return absl::NotFoundError(why);
  ASSIGN_OR_RETURN(const std::string full, Only(name, names));
  Named named = NamedHere(full, best);
  if (owners[full].size() < all.size()) named.owners = owners[full];
  return named;
}

namespace {

// Gives a fused node one more output, which an instruction of its program makes.
Value AddOutput(Graph* graph, Value at, int32_t instruction) {
  Node& n = graph->nodes[at.node];
  const TensorType type = n.outputs[0];
  n.attrs.Set("program", absl::StrCat(n.attrs.Str("program"), ",", instruction));
  n.attrs.Set("dtypes", absl::StrCat(n.attrs.Str("dtypes"), ",", Name(type.dtype)));
  n.outputs.push_back(type);
  return {at.node, static_cast<int32_t>(n.outputs.size()) - 1};
}

}  // namespace

Status Watched::Show(const std::vector<Named>& wanted) {
  std::vector<std::string> names;
  for (const Named& named : wanted) names.push_back(named.name);
  if (names == shown_) return absl::OkStatus();
  Graph graph = first_->graph();
  const size_t first = graph.outputs.size();
  std::vector<std::pair<std::string, int>> outputs;
  for (const Named& named : wanted) {
    if (!named.value.valid()) continue;  // of other ranks
    const Value v = named.inside < 0 ? named.value : AddOutput(&graph, named.value, named.inside);
    outputs.emplace_back(named.name, static_cast<int>(graph.outputs.size()));
    graph.outputs.push_back({absl::StrCat("watch", graph.outputs.size() - first), v, ""});
  }
  std::unique_ptr<Executable> next;
  if (!wanted.empty()) {
    StatusOr<std::unique_ptr<Executable>> made = std::unique_ptr<Executable>();
    if (!outputs.empty()) {
      made = view_.compile(graph);
      // Compiling drops nothing: every node was alive.
      if (made.ok() && (*made)->graph().outputs.size() != graph.outputs.size())
        made = absl::InternalError("a plan with watches has other outputs");
    }
    if (view_.gather) {
      ASSIGN_OR_RETURN(const bool everywhere, AllAgree(view_, made.ok()));
      if (made.ok() && !everywhere) made = absl::AbortedError("another rank could not plan again with that value");
    }
    ASSIGN_OR_RETURN(next, std::move(made));
  }
  view_.trainer->ReplaceExecutable(next == nullptr ? first_ : next.get());
  second_ = std::move(next);
  shown_ = std::move(names);
  outputs_ = std::move(outputs);
  return absl::OkStatus();
}

bool Watched::Shows(const Named& named) const {
  return named.kept || std::find(shown_.begin(), shown_.end(), named.name) != shown_.end();
}

StatusOr<TensorView> Watched::Here(const Named& named) const {
  if (named.stored != nullptr) return view_.store->Read(*named.stored);
  const auto at =
      std::find_if(outputs_.begin(), outputs_.end(), [&](const auto& output) { return output.first == named.name; });
  return at == outputs_.end() ? TensorView{named.part, nullptr} : second_->Output(at->second);
}

StatusOr<TensorView> Watched::ValueOf(const Named& named) {
  ASSIGN_OR_RETURN(const TensorView here, Here(named));
  if (!named.gathered) return here;
  // Shape and place of this rank's part, then its bytes.
  std::string mine;
  if (named.contributes && here.data != nullptr) {
    mine = absl::StrCat(absl::StrJoin(named.part.shape, ","), ";", absl::StrJoin(named.begin, ","), "\n");
    mine.append(static_cast<const char*>(here.data), static_cast<size_t>(here.type.bytes()));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, view_.gather(mine));
  whole_ = Block(named.type.bytes());
  for (const std::string& text : all) {
    const size_t line = text.find('\n');
    if (line == text.npos) continue;
    const std::vector<std::string> head = absl::StrSplit(text.substr(0, line), ';');
    Shape sizes = ShapeOf(head[0]);
    const Shape begin = ShapeOf(head[1]);
    // A slice of the elements lies in the whole as a row does; the last one has padding.
    Shape whole = named.type.shape;
    if (begin.size() != whole.size()) whole = {named.type.elements()};
    if (whole.size() == 1) sizes[0] = std::min(sizes[0], whole[0] - begin[0]);
    if (NumElements(sizes) <= 0) continue;
    const Shape zeros(sizes.size(), 0);
    CopyBox(named.type.dtype, sizes, {ShapeOf(head[0]), zeros}, text.data() + line + 1, {whole, begin}, whole_.data());
  }
  return TensorView{named.type, whole_.data()};
}

std::string RangesOf(const Part& part) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < part.begin.size(); ++d)
    ranges.push_back(absl::StrCat(part.begin[d] + 1, ":", part.begin[d] + part.size[d]));
  return absl::StrCat("[", absl::StrJoin(ranges, ","), "]");
}

absl::optional<Part> PartOf(const TrainingView& view, const Named& named) {
  if (named.gathered || named.stored == nullptr || !view.place) return absl::nullopt;
  Part part = view.place(named.name).part;
  if (part.whole.empty() || part.all()) return absl::nullopt;
  return part;
}

std::string WhoseText(const TrainingView& view, const Named& named) {
  const bool own = (named.value.valid() && !IsGradient(named.name)) ||
                   (named.stored != nullptr && view.place && view.place(named.name).own);
  if (view.ranks == 1 || named.gathered) return "";
  if (const auto part = PartOf(view, named)) {
    return absl::StrCat(", rank ", view.rank, "'s part ", RangesOf(*part), " of ",
                        ToString(TensorType{named.type.dtype, part->whole}));
  }
  return own ? absl::StrCat(", rank ", view.rank, "'s value") : "";
}

}  // namespace mslua::endpoint
