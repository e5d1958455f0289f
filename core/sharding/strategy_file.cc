#include "core/sharding/strategy_file.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/json/json.h"
#include "core/sharding/forward_graph.h"
#include "core/sharding/strategy.h"

namespace mslua {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "mslua strategy";
constexpr char kWriteAgain[] = ": write it again with strategy_ckpt_save_file";
constexpr char kOfThis[] = ": give the file that this network wrote, with batches of this size";
constexpr int64_t kMaxBytes = 256 << 20;

std::string TypesOf(const Graph& graph, const Node& n) {
  std::string text;
  for (Value v : n.inputs) absl::StrAppend(&text, ToString(graph.TypeOf(v)), " ");
  return absl::StrCat(text, "-> ", absl::StrJoin(n.outputs, " ", [](std::string* out, const TensorType& t) {
                        absl::StrAppend(out, ToString(t));
                      }));
}

OrderedJson AxesOf(const NodeRule& rule, const Sharding& s) {
  OrderedJson axes = OrderedJson::object();
  for (size_t f = 0; f < s.factors.size(); ++f) {
    if (!s.factors[f].empty()) axes[rule.rule.factors[f].name] = AxisNames(s.factors[f]);
  }
  return axes;
}

StatusOr<Sharding> ParseAxes(const Json& node, const Mesh& mesh, const NodeRule& rule) {
  const auto axes = node.find("axes");
  if (axes == node.end() || !axes->is_object()) return absl::InvalidArgumentError("expected an object 'axes'");
  Sharding s(rule);
  for (const auto& item : axes->items()) {
    const int f = rule.rule.Find(item.key());
    if (f < 0) return absl::InvalidArgumentError(absl::StrCat("axes: the operator has no factor '", item.key(), "'"));
    if (!item.value().is_string())
      return absl::InvalidArgumentError(absl::StrCat("axes of '", item.key(), "': expected a text such as \"ab\""));
    for (char c : item.value().get<std::string>()) {
      if (c < 'a' || c >= 'a' + mesh.axes())
        return absl::InvalidArgumentError(absl::StrCat("axes of '", item.key(), "': the mesh ", mesh.ToString(),
                                                       " has no axis '", std::string(1, c), "'"));
      s.factors[f].push_back(static_cast<int8_t>(c - 'a'));
    }
  }
  std::array<bool, Mesh::kMaxAxes> used{};
  for (const AxisList& list : s.factors) {
    for (int8_t a : list) {
      if (used[a])
        return absl::InvalidArgumentError(absl::StrCat("axis '", std::string(1, AxisName(a)), "' shards two factors"));
      used[a] = true;
    }
  }
  RETURN_IF_ERROR(CheckSharding(mesh, rule, s));
  return s;
}

std::string TextOf(const Json& node, const char* member) {
  const auto found = node.find(member);
  return found != node.end() && found->is_string() ? found->get<std::string>() : "";
}

Status NoFolder(const std::string& path) {
  if (!IsFolder(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("strategy file '", path, "' is a folder, expected the name of a file"));
}

class TextReader {
 public:
  TextReader(const std::string& source, const Graph& graph, const Mesh& mesh)
      : source_(source), graph_(graph), mesh_(mesh) {}

  StatusOr<std::vector<absl::optional<Sharding>>> Run(absl::string_view text) {
    JsonLimits limits;
    limits.bytes = kMaxBytes;
    const auto parsed = ParseJson(text, limits);
    if (!parsed.ok()) return Bad(absl::StrCat("is not readable: ", parsed.status().message(), kWriteAgain));
    const Json& root = *parsed;
    if (!root.is_object() || TextOf(root, "format") != kFormat)
      return Bad("is no strategy file of mslua: give the file that strategy_ckpt_save_file wrote");
    const auto devices = root.find("devices"), nodes = root.find("nodes");
    if (devices == root.end() || !devices->is_number_integer() || nodes == root.end() || !nodes->is_array())
      return Bad(absl::StrCat("is damaged: expected the members 'devices' and 'nodes'", kWriteAgain));
    if (devices->get<int64_t>() != mesh_.ranks())
      return Bad(absl::StrCat("is for ", ShowJson(*devices), " devices, here are ", mesh_.ranks(),
                              ": start that many ranks, or write a file for these with strategy_ckpt_save_file"));
    return Nodes(*nodes);
  }

 private:
  Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("strategy file '", source_, "' ", what));
  }

  StatusOr<std::vector<absl::optional<Sharding>>> Nodes(const Json& nodes) const {
    ASSIGN_OR_RETURN(const ForwardGraph forward, ForwardOf(graph_));
    std::vector<absl::optional<Sharding>> chosen(graph_.nodes.size());
    for (size_t k = 0; k < std::min(nodes.size(), forward.nodes.size()); ++k) {
      const int32_t i = forward.nodes[k];
      const Node& n = graph_.nodes[i];
      if (!nodes[k].is_object()) return Bad(absl::StrCat("node ", k + 1, ": expected an object"));
      const std::string there = absl::StrCat(TextOf(nodes[k], "operator"), ": ", TextOf(nodes[k], "types")),
                        here = absl::StrCat(n.op->name, ": ", TypesOf(graph_, n));
      if (there != here) {
        const std::string scope = TextOf(nodes[k], "scope");
        return Bad(absl::StrCat("is for another network: its node ", k + 1, scope.empty() ? "" : " (", scope,
                                scope.empty() ? "" : ")", " is ", there, ", here it is ", here, " (", NameOf(n), ")",
                                kOfThis));
      }
      auto sharding = ParseAxes(nodes[k], mesh_, forward.rules[i]);
      if (!sharding.ok()) return Bad(absl::StrCat("node ", k + 1, " (", NameOf(n), "): ", sharding.status().message()));
      RETURN_IF_ERROR(CheckText(nodes[k], absl::StrCat("node ", k + 1, " (", NameOf(n), ")"),
                                StrategyOf(mesh_, forward.rules[i], *sharding)));
      chosen[i] = *std::move(sharding);
    }
    if (nodes.size() != forward.nodes.size())
      return Bad(absl::StrCat("is for another network: it has ", nodes.size(), " nodes, here are ",
                              forward.nodes.size(), kOfThis));
    return chosen;
  }

  // Who edits the text for readers alone would change nothing.
  Status CheckText(const Json& node, absl::string_view name, const Strategy& of_axes) const {
    const std::string text = TextOf(node, "strategy");
    const auto parsed = ParseStrategy(text);
    if (parsed.ok() && *parsed == of_axes) return absl::OkStatus();
    return Bad(absl::StrCat(name, ": its strategy is \"", text, "\", expected \"", ToString(of_axes),
                            "\", which its axes ", ShowJson(*node.find("axes")), " of the mesh ", mesh_.ToString(),
                            " give: change both members alike, or give the operator a strategy in the recipe and "
                            "write the file again"));
  }

  const std::string& source_;
  const Graph& graph_;
  const Mesh& mesh_;
};

}  // namespace

Status SaveStrategy(const std::string& path, const Graph& graph, const Mesh& mesh,
                    const std::vector<absl::optional<Sharding>>& chosen) {
  RETURN_IF_ERROR(NoFolder(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty())
    RETURN_IF_ERROR(Annotate(MakeFolders(folder.string()), absl::StrCat("strategy file '", path, "'")));
  ASSIGN_OR_RETURN(const std::string text, StrategyText(graph, mesh, chosen));
  return WriteFileAtomically(path, text);
}

StatusOr<std::string> StrategyText(const Graph& graph, const Mesh& mesh,
                                   const std::vector<absl::optional<Sharding>>& chosen) {
  ASSIGN_OR_RETURN(const ForwardGraph forward, ForwardOf(graph));
  std::string text = absl::StrCat("{\"format\": \"", kFormat, "\", \"devices\": ", mesh.ranks(), ", \"nodes\": [");
  const char* separator = "\n";
  for (int32_t i : forward.nodes) {
    const Node& n = graph.nodes[i];
    if (static_cast<size_t>(i) >= chosen.size() || !chosen[i])
      return absl::InternalError(absl::StrCat(NameOf(n), " has no sharding to save"));
    const OrderedJson line = {{"operator", n.op->name},
                              {"scope", n.location ? n.location->scope : ""},
                              {"types", TypesOf(graph, n)},
                              {"strategy", ToString(StrategyOf(mesh, forward.rules[i], *chosen[i]))},
                              {"axes", AxesOf(forward.rules[i], *chosen[i])}};
    absl::StrAppend(&text, separator, line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    separator = ",\n";
  }
  return absl::StrCat(text, "\n]}\n");
}

StatusOr<std::vector<absl::optional<Sharding>>> ParseStrategyText(absl::string_view text, const std::string& source,
                                                                  const Graph& graph, const Mesh& mesh) {
  return TextReader(source, graph, mesh).Run(text);
}

StatusOr<std::vector<absl::optional<Sharding>>> LoadStrategy(const std::string& path, const Graph& graph,
                                                             const Mesh& mesh) {
  RETURN_IF_ERROR(NoFolder(path));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return ParseStrategyText(text, path, graph, mesh);
}

}  // namespace mslua
