// mslua plan
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/common_flags.h"
#include "core/base/text.h"
#include "core/graph/collective_node.h"
#include "core/json/json_string.h"
#include "core/op/marks.h"
#include "core/op/rank_call.h"
#include "core/passes/passes.h"
#include "core/passes/run_passes.h"
#include "core/runtime/device_layout.h"
#include "core/runtime/limits.h"
#include "core/sharding/pipeline.h"
#include "core/sharding/search/plan_report.h"
#include "core/step/global_view.h"
#include "lua/graph_lua.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(explain, "", "predicted steps with other strategies of OP");
DEFINE_string(plan_device, "cpu", "the device, which need not be here");
DEFINE_string(cluster, "", "how fast the devices and their links are, as JSON");

namespace mslua {
namespace {

// One section: rows of named cells, in the order of `columns`.
struct Section {
  std::string name;  // "collectives"
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string summary;
  int stage = -1;              // of the pipeline; -1: of no stage in particular
  std::string explained = "";  // the operator that its rows are of; empty: of none in particular
};

std::string Bytes(int64_t bytes) {
  if (bytes < 1 << 10) return absl::StrCat(bytes, " B");
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// The messages of one step, in the order in which they begin.
Section Collectives(const Graph& graph) {
  Section s{"collectives", "messages of a step", {"operation", "ranks", "tensors", "bytes", "first"}, {}, ""};
  int64_t tensors = 0, bytes = 0;
  for (const Node& n : graph.nodes) {
    const RankCall call = RankCallOf(*n.op);
    if (!IsCollective(n) || n.attrs.Ints("group").size() < 2 || EndsOther(call)) continue;
    int64_t mine = n.inputs.empty() ? n.outputs[0].bytes() : 0;
    for (Value v : n.inputs) mine += graph.TypeOf(v).bytes();
    const bool bucket = call == RankCall::kStartAllReduce;
    const AttrValue* op = n.attrs.Find("op");
    const int64_t members = mark::kMembers.GetOr(n.attrs, std::max<int64_t>(1, static_cast<int64_t>(n.inputs.size())));
    s.rows.push_back({absl::StrCat(bucket ? "all_reduce" : n.op->name, op ? " " : "", op ? n.attrs.Str("op") : ""),
                      absl::StrCat(n.attrs.Ints("group").size()), absl::StrCat(members), absl::StrCat(mine),
                      n.location ? ToString(*n.location) : ""});
    tensors += members;
    bytes += mine;
  }
  s.summary = absl::StrCat(Counted(static_cast<int64_t>(s.rows.size()), "message"), ", ", Counted(tensors, "tensor"),
                           ", ", Bytes(bytes), " a step");
  return s;
}

Section Operators(const Graph& graph) {
  Section s{"operators", "the step", {"operator", "nodes"}, {}, ""};
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) {
    if (n.op->name != "input" && n.op->name != "constant") ++counts[n.op->name];
  }
  int sum = 0;
  for (const auto& [name, count] : counts) {
    s.rows.push_back({name, absl::StrCat(count)});
    sum += count;
  }
  s.summary = absl::StrCat(sum, " nodes");
  return s;
}

void PrintText(const Section& s) {
  if (s.stage >= 0) std::printf("stage %d: ", s.stage);
  std::printf("%s: %s\n", s.title.c_str(), s.summary.c_str());
  if (s.rows.empty()) return;
  std::vector<size_t> width;
  for (const std::string& c : s.columns) width.push_back(c.size());
  for (const auto& row : s.rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = " ";
    // Names to the left, numbers to the right.
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool left = i == 0 || i + 1 == cells.size();
      const int columns = static_cast<int>(width[i]);
      absl::StrAppend(&text, " ",
                      left ? absl::StrFormat("%-*s", columns, cells[i]) : absl::StrFormat("%*s", columns, cells[i]));
    }
    absl::StripTrailingAsciiWhitespace(&text);
    std::printf("%s\n", text.c_str());
  };
  line(s.columns);
  for (const auto& row : s.rows) line(row);
}

void PrintJson(const Section& s) {
  for (const auto& row : s.rows) {
    std::string out = absl::StrCat("{\"section\": ", JsonString(s.name));
    if (s.stage >= 0) absl::StrAppend(&out, ", \"stage\": ", s.stage);
    if (!s.explained.empty()) absl::StrAppend(&out, ", \"operator\": ", JsonString(s.explained));
    for (size_t i = 0; i < row.size(); ++i) {
      double value = 0;
      const bool number = !row[i].empty() && absl::ascii_isdigit(static_cast<unsigned char>(row[i][0])) &&
                          row[i].find_first_not_of("0123456789.e+-") == std::string::npos &&
                          absl::SimpleAtod(row[i], &value) && std::isfinite(value);
      absl::StrAppend(&out, ", ", JsonString(s.columns[i]), ": ", number ? row[i] : JsonString(row[i]));
    }
    std::printf("%s}\n", out.c_str());
  }
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.4g", seconds * 1e3); }

// How each operator is sharded. Text has those that compute, have a strategy or move data; JSON has all.
Section ShardedOperators(const ShardReport& report, const Graph& graph, bool all) {
  Section s{"operators", "sharding of operators", {"operator", "strategy", "layout", "bytes", "ms", "moves"}, {}, ""};
  for (const ShardReport::Operator& o : report.operators) {
    if (!all && !o.arithmetic && o.bytes == 0 && !mark::kUserStrategy.Has(graph.nodes[o.node].attrs)) continue;
    s.rows.push_back({o.name, o.strategy, o.layout, absl::StrCat(o.bytes), Milliseconds(o.seconds), o.moves});
  }
  s.summary = absl::StrCat(s.rows.size(), " of ", report.operators.size(), " operators");
  return s;
}

Section Parameters(const ShardReport& report) {
  Section s{"parameters", "parameters and state of a rank", {"name", "bytes", "layout", "type"}, {}, ""};
  int64_t bytes = 0;
  for (const ShardReport::Parameter& p : report.parameters) {
    s.rows.push_back({p.name, absl::StrCat(p.bytes), p.layout, p.type});
    bytes += p.bytes;
  }
  s.summary = Bytes(bytes);
  return s;
}

// What a rank allocates for a step, to the byte.
Section Memory(const PlanReport& plan) {
  Section s{"memory", "memory of a rank", {"what", "bytes"}, {}, ""};
  const int64_t activations = plan.workspace_bytes + plan.shared_bytes;
  s.rows = {{"parameters and state", absl::StrCat(plan.store_bytes)}, {"activations", absl::StrCat(activations)}};
  s.summary = Bytes(plan.store_bytes + activations);
  return s;
}

// A plan for a device: its name, its figures, what it launches.
struct OnDevice {
  std::string name;
  Cluster cluster;
  DevicePlan plan;
  int64_t copied_bytes = 0;  // of the copy that checkpoints are written from while training continues

  int64_t bytes() const { return plan.device_bytes + copied_bytes; }
};

// What a rank allocates of a device for a step, to the byte.
Section Memory(const OnDevice& d) {
  Section s{"memory", "memory of a rank", {"what", "bytes"}, {}, ""};
  const PlanReport& r = d.plan.report;
  s.rows = {{"parameters and state", absl::StrCat(r.store_bytes)},
            {"activations and workspaces", absl::StrCat(r.workspace_bytes)},
            {"inputs, constants, results", absl::StrCat(d.plan.device_bytes - r.store_bytes - r.workspace_bytes)}};
  if (d.copied_bytes > 0) s.rows.push_back({"copy for checkpoints", absl::StrCat(d.copied_bytes)});
  const bool fits = d.cluster.memory_bytes == 0 || d.bytes() <= d.cluster.memory_bytes;
  s.summary = absl::StrCat(Bytes(d.bytes()), fits ? "" : ": more than ", fits ? "" : d.name,
                           fits ? "" : " has: ", fits ? "" : Bytes(d.cluster.memory_bytes));
  return s;
}

// Seconds of the kernels of a node: the longer one of arithmetic and traffic, and what each launch takes.
double KernelSeconds(const Graph& graph, const OnDevice& d, const std::pair<int32_t, int>& launch) {
  const Node& n = graph.nodes[launch.first];
  if (IsCollective(n) && n.attrs.Ints("group").size() > 1) return 0;
  const NodeWork w = WorkOf(graph, n);
  return std::max(w.flops / d.cluster.flops_per_second.Of(w.type), w.bytes / d.cluster.bytes_per_second) +
         launch.second * d.cluster.launch_seconds;
}

// Seconds of a message between the ranks of a node's group, over the slowest link.
double MessageSeconds(const Graph& graph, const OnDevice& d, const Node& n) {
  const RankCall call = RankCallOf(*n.op);
  if (!IsCollective(n) || n.attrs.Ints("group").size() < 2 || EndsOther(call)) return 0;
  const double ranks = static_cast<double>(n.attrs.Ints("group").size()), rounds = std::log2(ranks);
  double bytes = 0;
  for (Value v : n.inputs) bytes += static_cast<double>(graph.TypeOf(v).bytes());
  LinkCosts::Link link;
  if (!d.cluster.links.axes.empty()) link = d.cluster.links.axes[0];
  for (const LinkCosts::Link& l : d.cluster.links.axes) link = l.beta > link.beta ? l : link;
  const bool reduces = call == RankCall::kAllReduce || call == RankCall::kStartAllReduce;
  const double received = reduces                        ? 2 * bytes * (ranks - 1) / ranks
                          : call == RankCall::kAllGather ? bytes * (ranks - 1)
                                                         : bytes;
  return (1 + (reduces ? 2 : 1) * rounds) * link.alpha + received * link.beta;
}

// What a step takes there, every launch and message after the one before.
Section Step(const Graph& graph, const OnDevice& d) {
  Section s{"device", absl::StrCat("a step on ", d.name), {"what", "value"}, {}, ""};
  int64_t kernels = 0;
  double computing = 0, messages = 0;
  for (const auto& launch : d.plan.launches) {
    kernels += launch.second;
    computing += KernelSeconds(graph, d, launch);
    messages += MessageSeconds(graph, d, graph.nodes[launch.first]);
  }
  s.rows = {{"kernels", absl::StrCat(kernels)},
            {"ms of launches", Milliseconds(static_cast<double>(kernels) * d.cluster.launch_seconds)},
            {"ms of kernels", Milliseconds(computing)},
            {"ms of messages", Milliseconds(messages)},
            {"ms a step", Milliseconds(computing + messages)}};
  s.summary = absl::StrCat(Milliseconds(computing + messages), " ms predicted, ", kernels, " kernels");
  return s;
}

Section Operators(const Graph& graph, const OnDevice& d) {
  Section s{"operators", "the step", {"operator", "nodes", "kernels", "ms"}, {}, ""};
  struct Row {
    int nodes = 0, kernels = 0;
    double seconds = 0;
  };
  std::map<std::string, Row> rows;
  for (const auto& launch : d.plan.launches) {
    Row& row = rows[graph.nodes[launch.first].op->name];
    ++row.nodes;
    row.kernels += launch.second;
    row.seconds += KernelSeconds(graph, d, launch) + MessageSeconds(graph, d, graph.nodes[launch.first]);
  }
  for (const auto& [name, row] : rows)
    s.rows.push_back({name, absl::StrCat(row.nodes), absl::StrCat(row.kernels), Milliseconds(row.seconds)});
  s.summary = absl::StrCat(d.plan.launches.size(), " nodes");
  return s;
}

Section Predicted(const ShardReport& report, const GlobalView& view, int64_t memory) {
  const GlobalView::Planned& planned = *view.planned();
  Section s{"prediction", "prediction", {"what", "value"}, {}, ""};
  s.rows = {{"ms a step", Milliseconds(report.seconds)},
            {"ms of arithmetic", Milliseconds(report.compute_seconds)},
            {"bytes received by a rank", absl::StrCat(report.bytes)},
            {"bytes of memory of a rank", absl::StrCat(memory)},
            {"constants", view.cluster_source()}};
  s.summary = absl::StrCat(Milliseconds(report.seconds), " ms a step, ", Bytes(memory), " a rank");
  if (!planned.found) return s;
  const SearchResult& found = *planned.found;
  s.rows.push_back({"search_mode", Name(*planned.mode)});
  s.rows.push_back({"ms of search", Milliseconds(found.search_seconds)});
  s.rows.push_back({"gap", GapText(found, *planned.mode)});
  return s;
}

// What a step takes where a graph has these strategies, found the way that the plan was.
StatusOr<Prediction> Predict(GlobalView& view, const Graph& graph) {
  const GlobalView::Planned& planned = *view.planned();
  const Mesh& mesh = view.resharder().mesh();
  if (planned.mode) {
    SearchOptions options;
    options.mode = *planned.mode;
    options.cluster = view.cluster();
    options.propagate = planned.options;
    ASSIGN_OR_RETURN(const SearchResult found, Search(graph, mesh, options));
    return Prediction{found.seconds, found.memory_bytes};
  }
  PropagateOptions options = planned.options;
  options.chosen.clear();
  ASSIGN_OR_RETURN(const ShardPlan plan, Propagate(graph, view.resharder(), options));
  ASSIGN_OR_RETURN(const ShardReport report, ReportOf(graph, plan, options, view.cluster(), view.resharder()));
  return Prediction{report.seconds, report.memory};
}

// One operator's other strategies.
StatusOr<Section> Explained(GlobalView& view, const ShardReport& report, const ShardReport::Operator& o) {
  ASSIGN_OR_RETURN(const std::vector<Alternative> all,
                   AlternativesOf(view.planned()->graph, view.resharder().mesh(), o.node,
                                  [&](const Graph& graph) { return Predict(view, graph); }));
  Section s{"explain",
            absl::StrCat("other strategies of ", o.name),
            {"strategy", "ms a step", "estimated memory", "difference"},
            {},
            ""};
  for (const Alternative& a : all) {
    if (!a.fits)
      s.rows.push_back({a.strategy, "-", "-", "exceeds the memory"});
    else
      s.rows.push_back(
          {a.strategy, Milliseconds(a.seconds), absl::StrCat(a.memory),
           a.strategy == o.strategy ? "chosen" : absl::StrFormat("%+.2f %%", (a.seconds / report.seconds - 1) * 100)});
  }
  s.explained = o.name;
  s.summary = absl::StrCat(o.strategy, ", ", Milliseconds(report.seconds), " ms a step");
  return s;
}

// The operators that `name` means: "Net/block/MatMul:29", or that without the line, the outer cells or both.
StatusOr<std::vector<const ShardReport::Operator*>> Meant(const ShardReport& report, const std::string& name) {
  std::vector<const ShardReport::Operator*> meant;
  std::vector<std::string> names;
  for (const ShardReport::Operator& o : report.operators) {
    const std::string without_line = o.name.substr(0, o.name.rfind(':'));
    const auto last = [](const std::string& text) { return text.substr(text.rfind('/') + 1); };
    const auto ends = [&](const std::string& text) { return text == name || absl::EndsWith(text, "/" + name); };
    if (ends(o.name) || ends(without_line)) meant.push_back(&o);
    names.insert(names.end(), {o.name, without_line, last(o.name), last(without_line)});
  }
  if (!meant.empty()) return meant;
  return absl::NotFoundError(absl::StrCat("--explain: no operator is named '", name, "'", DidYouMean(name, names)));
}

// Of the last graph that was sharded.
StatusOr<ShardReport> ReportOf(GlobalView& view) {
  const GlobalView::Planned& planned = *view.planned();
  return ReportOf(planned.graph, planned.plan, planned.options, view.cluster(), view.resharder());
}

StatusOr<std::vector<Section>> ExplainSections(GlobalView& view, const cli::CommandLine& command) {
  ASSIGN_OR_RETURN(const ShardReport report, ReportOf(view));
  ASSIGN_OR_RETURN(const auto meant, Meant(report, command.String("explain")));
  std::vector<Section> sections;
  for (const ShardReport::Operator* o : meant) {
    ASSIGN_OR_RETURN(Section s, Explained(view, report, *o));
    sections.push_back(std::move(s));
  }
  return sections;
}

// `memory`: bytes of a rank.
StatusOr<std::vector<Section>> ShardSections(GlobalView& view, const cli::CommandLine& command, int64_t memory) {
  ASSIGN_OR_RETURN(const ShardReport report, ReportOf(view));
  return std::vector<Section>{ShardedOperators(report, view.planned()->graph, command.Bool("json")), Parameters(report),
                              Predicted(report, view, memory)};
}

// "embed, blocks.0": the network's cells that a program's forward nodes are of.
std::string CellsOf(const Graph& graph) {
  std::vector<std::string> cells;
  for (const Node& n : graph.nodes) {
    const RankCall call = RankCallOf(*n.op);
    if (!n.location || call == RankCall::kRecv || EndsOther(call)) continue;
    absl::string_view scope = n.location->scope;
    if (!absl::ConsumePrefix(&scope, "PipelineCell/network/")) continue;
    absl::ConsumePrefix(&scope, "backbone/");  // of a WithLossCell
    const std::string cell(scope.substr(0, scope.find('/')));
    if (std::find(cells.begin(), cells.end(), cell) == cells.end()) cells.push_back(cell);
  }
  return SomeOf(cells, 8);
}

// The stages of a pipeline, and the most that one of them is predicted to work in a step.
struct Stages {
  Section section;
  double slowest_seconds = 0;
};

// What the ranks of a stage have and do.
std::vector<std::string> StageRow(const Graph& graph, const GlobalView& view, double seconds) {
  int64_t operators = 0, parameters = 0, parameter_bytes = 0, sent = 0;
  for (const Node& n : graph.nodes) {
    operators += n.op->name != "input" && n.op->name != "constant";
    if (RankCallOf(*n.op) == RankCall::kStartSend) sent += n.outputs[0].bytes();
    if (n.op->name != "input" || n.attrs.Str("kind") != kParameter) continue;
    ++parameters;
    parameter_bytes += n.outputs[0].bytes();
  }
  const int64_t first = view.mesh().first(), last = first + view.mesh().ranks() - 1;
  return {absl::StrCat(view.stage()),    first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last),
          absl::StrCat(operators),       absl::StrCat(parameters),
          absl::StrCat(parameter_bytes), absl::StrCat(sent),
          Milliseconds(seconds),         CellsOf(graph)};
}

StatusOr<std::vector<Section>> Sections(const cli::CommandLine& command, int64_t ranks, int64_t rank = 0,
                                        Stages* stages = nullptr);

// Of every stage: its first rank's program.
StatusOr<std::vector<Section>> StageSections(const cli::CommandLine& command, int64_t ranks, const GlobalView& first) {
  const int64_t micros = first.micro_batches();
  const double bubble = PipelineBubble(first.stages(), micros);
  Stages stages;
  stages.section.name = "stages";
  stages.section.title = "pipeline";
  stages.section.columns = {"stage",           "ranks",      "operators", "parameters",
                            "parameter bytes", "bytes sent", "ms",        "cells"};
  std::vector<Section> all;
  for (int s = 0; s < first.stages(); ++s) {
    ASSIGN_OR_RETURN(auto sections, Sections(command, ranks, s * first.mesh().ranks(), &stages));
    for (Section& section : sections) {
      section.stage = s;
      all.push_back(std::move(section));
    }
  }
  stages.section.summary = absl::StrFormat(
      "%d stages of %s, %d micro-batches, %.1f %% of a step idle (the bubble), %s ms a step predicted", first.stages(),
      Counted(first.mesh().ranks(), "rank"), micros, bubble * 100, Milliseconds(stages.slowest_seconds / (1 - bubble)));
  all.insert(all.begin(), std::move(stages.section));
  return all;
}

// Of every stage that has an operator of that name.
StatusOr<std::vector<Section>> ExplainInStages(const cli::CommandLine& command, int64_t ranks,
                                               const GlobalView& first) {
  std::vector<Section> all;
  Status none;
  Stages unused;
  for (int s = 0; s < first.stages(); ++s) {
    auto sections = Sections(command, ranks, s * first.mesh().ranks(), &unused);
    if (absl::IsNotFound(sections.status())) {
      none = sections.status();
      continue;
    }
    RETURN_IF_ERROR(sections.status());
    for (Section& section : *sections) {
      section.stage = s;
      all.push_back(std::move(section));
    }
  }
  if (all.empty()) return none;
  return all;
}

StatusOr<OnDevice> PlanFor(const std::string& device, const Graph& graph, const GlobalView* view, int64_t ranks) {
  OnDevice on;
  on.name = device;
  if (view != nullptr) {
    on.cluster = view->cluster();
  } else {
    ASSIGN_OR_RETURN(const std::string text, DeviceFiguresText(device));
    ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Of(ranks));
    ASSIGN_OR_RETURN(on.cluster, ParseCluster(text, mesh));
  }
  ASSIGN_OR_RETURN(on.plan, PlanOnDevice(graph));
  return on;
}

// What `rank` would run. `stages` gets a row of its stage where it is not null; else all stages are gone through.
StatusOr<std::vector<Section>> Sections(const cli::CommandLine& command, int64_t ranks, int64_t rank, Stages* stages) {
  SessionOptions options = OptionsOf(command);
  options.ranks = static_cast<int>(ranks);
  options.rank = static_cast<int>(rank);
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(session->RunText("return require('mslua.verbs').plan()", "=mslua/verb"));
  // The number of ranks that the recipe asks for, where the command line has none.
  if (lua_type(session->lua(), -1) == LUA_TNUMBER && !command.Given("n")) {
    const auto asked = static_cast<int64_t>(lua_tonumber(session->lua(), -1));
    if (asked != ranks) return Sections(command, asked);
  }
  const auto* traced = ToObject<std::shared_ptr<TracedGraph>>(session->lua(), -1);
  if (traced == nullptr) return absl::InternalError("mslua.verbs.plan() gave no graph");
  GlobalView* const view = session->state().view.get();
  const bool sharded = view != nullptr && view->planned() != nullptr;
  if (!sharded && (command.Given("explain") || command.Given("cluster")))
    return absl::InvalidArgumentError(absl::StrCat(
        "--", command.Given("explain") ? "explain" : "cluster",
        " needs a recipe in semi_auto_parallel or auto_parallel and -n 2 or more: nothing is sharded here"));
  if (view != nullptr && view->stages() > 1) {
    if (stages == nullptr)
      return command.Given("explain") ? ExplainInStages(command, ranks, *view) : StageSections(command, ranks, *view);
    double seconds = 0;
    if (sharded) {
      ASSIGN_OR_RETURN(const ShardReport report, ReportOf(*view));
      seconds = report.seconds;
    }
    stages->slowest_seconds = std::max(stages->slowest_seconds, seconds);
    stages->section.rows.push_back(StageRow((*traced)->graph, *view, seconds));
  }
  if (sharded && command.Given("explain")) return ExplainSections(*view, command);
  const std::string device = command.String("device");
  CompileOptions compile;
  compile.share = ranks > 1;
  const bool on_device = device != "cpu";
  ASSIGN_OR_RETURN(const Graph graph,
                   on_device ? RunPassesForDevice((*traced)->graph, compile) : RunPasses((*traced)->graph, compile));
  std::vector<Section> sections;
  if (on_device) {
    ASSIGN_OR_RETURN(OnDevice on, PlanFor(device, graph, view, ranks));
    // Ranks that have parts of the tensors save them together, and wait.
    if (lua_toboolean(session->lua(), -2) != 0 && view == nullptr) on.copied_bytes = SnapshotBytes(graph);
    if (sharded) {
      ASSIGN_OR_RETURN(sections, ShardSections(*view, command, on.bytes()));
    }
    sections.push_back(Memory(on));
    sections.push_back(Step(graph, on));
    sections.push_back(Operators(graph, on));
    sections.push_back(Collectives(graph));
    return sections;
  }
  ASSIGN_OR_RETURN(const PlanReport plan, PlanOf(graph, compile));
  if (sharded) {
    ASSIGN_OR_RETURN(sections,
                     ShardSections(*view, command, plan.store_bytes + plan.workspace_bytes + plan.shared_bytes));
  }
  sections.push_back(Memory(plan));
  sections.push_back(Operators(graph));
  sections.push_back(Collectives(graph));
  return sections;
}

int RunPlan(const cli::CommandLine& command) {
  if (const Status readable = CheckRecipe(command.positional[0]); !readable.ok()) return Report(readable);
  const auto sections = Sections(command, command.Int("n"));
  if (!sections.ok()) return Report(sections.status());
  for (const Section& s : *sections) {
    if (command.Bool("json"))
      PrintJson(s);
    else
      PrintText(s);
  }
  return 0;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(plan) {
  VerbDef verb;
  verb.name = "plan";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "compile for N ranks without having them";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {RanksWithoutThem(),
                Text(FLAGS_explain, "OP"),
                Text(FLAGS_cluster, "FILE"),
                OneOf(FLAGS_plan_device, absl::StrCat("cpu|cuda|", KnownDevices())).As("device"),
                Preset(),
                Json()};
  verb.examples = {"mslua plan recipes/quickstart.lua -n 8 --explain MatMul",
                   "mslua plan recipes/quickstart.lua -n 8 --device h200",
                   "mslua plan recipes/quickstart.lua -n 64 --cluster cluster.json --json"};
  verb.place = 505;
  verb.run = RunPlan;
  return verb;
}

}  // namespace mslua::cli
