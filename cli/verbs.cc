#include "cli/verbs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace mslua::cli {
namespace {

constexpr int kUnlimited = 1 << 20;

FlagDef Make(std::string name, FlagKind kind, std::string value, std::string help) {
  FlagDef flag;
  flag.name = std::move(name);
  flag.kind = kind;
  flag.value = std::move(value);
  flag.help = std::move(help);
  return flag;
}
FlagDef Bool(std::string name, std::string help) { return Make(std::move(name), FlagKind::kBool, "", std::move(help)); }
FlagDef Int(std::string name, std::string value, double minimum, std::string help) {
  FlagDef flag = Make(std::move(name), FlagKind::kInt, std::move(value), std::move(help));
  flag.minimum = minimum;
  return flag;
}
FlagDef Float(std::string name, std::string value, double minimum, std::string help) {
  FlagDef flag = Make(std::move(name), FlagKind::kFloat, std::move(value), std::move(help));
  flag.minimum = minimum;
  return flag;
}
FlagDef String(std::string name, std::string value, std::string help) {
  return Make(std::move(name), FlagKind::kString, std::move(value), std::move(help));
}
FlagDef Enum(std::string name, std::string words, std::string help) {
  return Make(std::move(name), FlagKind::kEnum, std::move(words), std::move(help));
}
// An integer from 1, or one of the words after `N|`.
FlagDef IntOrEnum(std::string name, std::string value, std::string help) {
  FlagDef flag = Make(std::move(name), FlagKind::kIntOrEnum, std::move(value), std::move(help));
  flag.minimum = 1;
  return flag;
}

FlagDef Json() { return Bool("json", "print JSON, one object a line"); }
FlagDef Ranks() { return Int("n", "N", 1, "start N ranks on this machine and watch them").Default("1"); }
FlagDef Backend() {
  return Enum("backend", "native|mpi", "how ranks are connected (default: mpi under mpirun, else native)");
}
FlagDef Interface() { return String("iface", "NAME|SUBNET", "network interface where other ranks reach this one"); }
FlagDef HangTimeout() {
  return Float("hang-timeout", "S", 1, "seconds that ranks wait for one that makes no progress").Default("600");
}
FlagDef HeartbeatTimeout() {
  return Float("heartbeat-timeout", "S", 1, "a rank that is silent for S seconds counts as dead").Default("2.5");
}
FlagDef LogRanks() { return String("log-ranks", "all|0,2", "ranks that print their loss").Default("0"); }
FlagDef Device() { return Enum("device", "cpu|cuda", "where to compute").Default("cpu"); }
FlagDef Preset() { return String("preset", "P", "take the recipe's parameters of preset P"); }
FlagDef Seed() { return Int("seed", "S", 0, "seed of weights, shuffling and dropout, instead of the recipe's"); }
FlagDef Checkpoint() {
  return String("ckpt", "best|last|PATH", "the weights to load: of this recipe's last run").Default("last");
}

VerbDef NotBuilt(VerbDef verb) {
  verb.built = false;
  return verb;
}

// clang-format off
std::vector<VerbDef> MakeVerbs() {
  // name, usage, doc, fewest and most arguments, whether it takes key=value, flags, examples, actions
  return {
      {"train", "RECIPE [key=value ...] [flags]", "train a recipe; losses to stdout, the rest to stderr", 1, 1, true,
       {Ranks(), Device(), Preset(), Seed(),
        String("out", "DIR", "run folder: logs, metrics, checkpoints (default runs/<id>)"),
        String("resume", "last|best|PATH", "resume from a checkpoint").Bare("last"),
        IntOrEnum("log-every", "N|epoch", "print the loss every N steps or once an epoch").Default("1"),
        LogRanks(), Backend(), Interface(),
        Int("max-steps", "N", 1, "stop after N steps"),
        Int("fast-dev-run", "N", 1, "N steps of training and of eval, nothing saved").Bare("1"),
        Int("overfit", "N", 1, "train on the first N batches only"),
        String("profile", "S:N", "profile N steps from step S").NotBuilt(),
        Enum("on-error", "stop|repl", "what a Lua error does").Default("stop").NotBuilt(),
        HangTimeout(), HeartbeatTimeout(),
        Bool("no-attach", "open no endpoint for attach")},
       {"mslua train recipes/quickstart.lua -n 2", "mslua train recipes/lenet_mnist.lua data_path=/data/mnist epochs=2",
        "mslua train recipes/resnet18_cifar10.lua --out runs/a --resume train.epochs=20"}},
      {"eval", "RECIPE [key=value ...] [flags]", "metrics of a recipe on its eval_dataset", 1, 1, true,
       {Ranks(), Checkpoint(), Bool("partial", "load what fits of the checkpoint; the rest keeps its initial values"),
        Device(), Preset(), Json(), LogRanks(), Backend(), Interface(), HangTimeout(), HeartbeatTimeout()},
       {"mslua eval recipes/lenet_mnist.lua", "mslua eval recipes/lenet_mnist.lua --ckpt last data_path=/data/mnist",
        "mslua eval recipes/resnet18_cifar10.lua -n 2 --ckpt runs/a/ckpt --json"}},
      {"run", "SCRIPT [argument ...] [flags]", "run an imperative Lua script", 1, kUnlimited, true,
       {Ranks(), Device(), Preset(), Seed(), Int("max-steps", "N", 1, "stop each training after N steps"), LogRanks(),
        Interface(), HangTimeout(), HeartbeatTimeout()},
       {"mslua run script.lua lr=0.1", "mslua run recipes/examples/all_gather.lua -n 4",
        "mslua run script.lua -- -5 input.txt"}},
      {"repl", "[RECIPE] [key=value ...] [flags]", "interactive Lua, eager tensors, a recipe's parts in scope", 0, 1,
       true, {Device(), Preset(), Seed()},
       {"mslua repl", "mslua repl recipes/quickstart.lua", "echo 'ms.ones{2,2} * 3' | mslua repl"}},
      {"graph", "RECIPE|FILE.ir [key=value ...] [flags]", "the compiled graph of a recipe's step", 1, 1, true,
       {Enum("format", "text|dot|json", "how to print it").Default("text"), Preset(),
        String("pass", "NAME", "the graph after this pass, instead of the final one"),
        Int("n", "N", 1, "number of ranks, without having them").Default("1"),
        Int("rank", "R", 0, "of which the program of this one").Default("0")},
       {"mslua graph recipes/quickstart.lua --format dot", "mslua graph recipes/quickstart.lua -n 8 --rank 3",
        "mslua graph rank_0/03_cse.ir"}},
      {"data", "ACTION [argument ...] [flags]", "data sets: list, make a learnable stand-in, verify", 0, 0, false,
       {Int("samples", "N", 1, "number of training samples").Of({"make"}),
        Int("seed", "S", 0, "seed").Default("1").Of({"make"}), Json().Of({"ls", "verify"})},
       {"mslua data ls", "mslua data make cifar10 /data/cifar-10-batches-bin", "mslua data verify mnist /data/mnist"},
       {{"ls", "", 0, 0}, {"make", "cifar10|mnist|text PATH", 2, 2}, {"verify", "KIND PATH", 2, 2}}},
      {"recipes", "ACTION [argument ...] [flags]", "the recipe library: list, show, copy, check", 0, 0, true,
       {Json().Of({"ls"})},
       {"mslua recipes ls", "mslua recipes show quickstart", "mslua recipes check my_recipe.lua"},
       {{"ls", "", 0, 0},
        {"show", "RECIPE [key=value ...]", 1, 1},
        {"copy", "RECIPE PATH", 2, 2},
        {"check", "RECIPE [key=value ...]", 1, 1}}},
      {"verify", "RECIPE [key=value ...] [flags]", "train a recipe and check its expect", 1, 1, true,
       {Ranks(), Device(), Preset(), Backend(), Interface(), Json()},
       {"mslua verify recipes/quickstart.lua", "mslua verify recipes/lenet_mnist.lua --preset smoke",
        "mslua verify recipes/quickstart.lua --json"}},
      {"prof", "RECIPE [key=value ...] [flags]", "time of a training step by operator, beside the machine's limits", 1,
       1, true,
       {Int("steps", "N", 1, "steps to measure").Default("10"), Bool("steps-only", "time whole steps alone"),
        String("trace", "FILE", "write a Chrome trace of one step"), Device(), Preset(), Json()},
       {"mslua prof recipes/quickstart.lua", "mslua prof recipes/quickstart.lua --trace step.json",
        "mslua prof recipes/lenet_mnist.lua --steps 50 --json"}},
      {"ckpt", "ACTION PATH [argument ...] [flags]", "checkpoints: show, verify, merge, reshard", 0, 0, false,
       {Json().Of({"ls", "show"})},
       {"mslua ckpt ls runs/a", "mslua ckpt show runs/a/net-5_4.ckpt", "mslua ckpt verify runs/a/net-5_4.ckpt"},
       {{"ls", "[DIR|last]", 0, 1},
        {"show", "CKPT|last|best", 1, 1},
        {"verify", "CKPT", 1, 1},
        {"merge", "CKPT OUT.safetensors", 2, 2},
        {"reshard", "CKPT OUT RANKS", 3, 3},
        {"convert", "CKPT OUT", 2, 2, false}}},
      {"doctor", "[flags]", "check this machine and say what to fix", 0, 0, false,
       {Bool("calibrate", "measure what strategy search counts with, and keep it"), Json()},
       {"mslua doctor", "mslua doctor --json", "mslua doctor --calibrate"}},
      {"version", "[flags]", "version, libraries and processor features", 0, 0, false, {Json()},
       {"mslua version", "mslua --version", "mslua version --json"}},
      {"completion", "SHELL", "the completion script of a shell", 0, 0, false, {},
       {"mslua completion bash > ~/.local/share/bash-completion/completions/mslua",
        "mslua completion zsh > ~/.zsh/completions/_mslua",
        "mslua completion fish > ~/.config/fish/completions/mslua.fish"},
       {{"bash", "", 0, 0}, {"zsh", "", 0, 0}, {"fish", "", 0, 0}}},
      {"plan", "RECIPE [key=value ...] [flags]", "compile for N ranks without having them", 1, 1, true,
       {Int("n", "N", 1, "number of ranks").Default("1"),
        String("explain", "OP", "predicted steps with other strategies of OP"),
        String("cluster", "FILE", "how fast the devices and their links are, as JSON"), Preset(), Json()},
       {"mslua plan recipes/quickstart.lua -n 8", "mslua plan recipes/quickstart.lua -n 8 --explain MatMul",
        "mslua plan recipes/char_gpt.lua -n 64 --cluster cluster.json --json"}},
      {"sched", "[flags]", "the scheduler of a cluster without MPI: gathers the workers and watches them", 0, 0, false,
       {String("host", "H", "address to listen on (default MS_SCHED_HOST, else 127.0.0.1)"),
        Int("port", "P", 0, "port; 0 takes a free one (default MS_SCHED_PORT, else 0)"),
        Int("workers", "N", 1, "how many workers to wait for (default MS_WORKER_NUM)"),
        HeartbeatTimeout()},
       {"mslua sched --workers 8", "mslua sched --workers 8 --port 8118",
        "MS_WORKER_NUM=8 MS_SCHED_PORT=8118 mslua sched"}},
      {"ps", "[flags]", "running jobs", 0, 0, false, {Json()},
       {"mslua ps", "mslua ps --json", "mslua ps --json | head -1"}},
      {"attach", "[RUN] [flags]", "look into a running job: its folder, id, or last", 0, 1, false,
       {Bool("rw", "take the writer lock, to steer"),
        String("e", "CMD", "run CMD and leave; may be repeated").Repeated(), Json()},
       {"mslua attach", "mslua attach last -e .ranks", "mslua attach runs/a --rw -e .pause -e .save"}},
      {"stop", "[RUN] [flags]", "stop a running job after a checkpoint", 0, 1, false,
       {Bool("now", "without a checkpoint")},
       {"mslua stop", "mslua stop last", "mslua stop runs/a --now"}},
      {"logs", "[RUN] [flags]", "the logs of a job", 0, 1, false,
       {Bool("f", "keep printing as they grow"), Int("rank", "R", 0, "of this rank").Default("0")},
       {"mslua logs", "mslua logs last -f", "mslua logs runs/a --rank 2"}},
      {"diag", "[RUN] [flags]", "which rank hangs where", 0, 1, false, {Json()},
       {"mslua diag", "mslua diag last", "mslua diag runs/a --json"}},
      {"plot", "RUN ... [flags]", "curves of runs, in the terminal or as SVG", 1, kUnlimited, false,
       {String("keys", "K,...", "which metrics").Default("loss"), String("svg", "FILE", "write an SVG")},
       {"mslua plot last", "mslua plot runs/a runs/b", "mslua plot last --keys loss,lr --svg loss.svg"}},
      {"top", "[RUN]", "a running job's ranks, refreshed", 0, 1, false, {},
       {"mslua top", "mslua top last", "mslua top runs/a"}},
      NotBuilt({"certs", "ACTION DIR [flags]", "test certificates", 0, 0, false,
                {Int("days", "N", 1, "how long they hold").Default("30")},
                {"mslua certs init certs", "mslua certs init certs --days 7", "mslua certs show certs"},
                {{"init", "DIR", 1, 1}, {"show", "DIR", 1, 1}}}),
      NotBuilt({"job", "ACTION RECIPE [key=value ...] [flags]", "batch files of cluster schedulers", 0, 0, true,
                {Int("n", "N", 1, "ranks").Default("1")},
                {"mslua job slurm recipes/quickstart.lua -n 8", "mslua job k8s recipes/quickstart.lua -n 4",
                 "mslua job slurm recipes/quickstart.lua -n 2 epochs=1 > job.sbatch"},
                {{"slurm", "RECIPE", 1, 1}, {"k8s", "RECIPE", 1, 1}}}),
  };
}
// clang-format on

// "-n N", "--resume[=last|best|PATH]", "--json".
std::string FlagUsage(const FlagDef& flag) {
  if (flag.kind == FlagKind::kBool) return flag.Spelling();
  if (!flag.bare.empty()) return absl::StrCat(flag.Spelling(), "[=", flag.value, "]");
  return absl::StrCat(flag.Spelling(), " ", flag.value);
}

std::string FlagNotes(const FlagDef& flag) {
  if (!flag.built) return " (not built yet)";
  std::string notes;
  if (!flag.actions.empty()) absl::StrAppend(&notes, " (", absl::StrJoin(flag.actions, ", "), ")");
  if (!flag.bare.empty()) absl::StrAppend(&notes, " (bare: ", flag.bare, ")");
  if (!flag.default_value.empty()) absl::StrAppend(&notes, " (default ", flag.default_value, ")");
  return notes;
}

}  // namespace

FlagDef FlagDef::Default(std::string text) && {
  default_value = std::move(text);
  return std::move(*this);
}
FlagDef FlagDef::Bare(std::string text) && {
  bare = std::move(text);
  return std::move(*this);
}
FlagDef FlagDef::Repeated() && {
  repeated = true;
  return std::move(*this);
}
FlagDef FlagDef::NotBuilt() && {
  built = false;
  return std::move(*this);
}

FlagDef FlagDef::Of(std::vector<std::string> names) && {
  actions = std::move(names);
  return std::move(*this);
}

std::string FlagDef::Spelling() const { return absl::StrCat(name.size() == 1 ? "-" : "--", name); }

std::vector<std::string> FlagDef::Words() const {
  if (kind != FlagKind::kEnum && kind != FlagKind::kIntOrEnum) return {};
  std::vector<std::string> words = absl::StrSplit(value, '|');
  if (kind == FlagKind::kIntOrEnum) words.erase(words.begin());
  return words;
}

const std::vector<VerbDef>& Verbs() {
  static const auto* verbs = new std::vector<VerbDef>(MakeVerbs());
  return *verbs;
}

const VerbDef* FindVerb(const std::string& name) {
  for (const VerbDef& verb : Verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

const FlagDef* FindFlag(const VerbDef& verb, const std::string& name) {
  for (const FlagDef& flag : verb.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

const ActionDef* FindAction(const VerbDef& verb, const std::string& name) {
  for (const ActionDef& action : verb.actions) {
    if (action.name == name) return &action;
  }
  return nullptr;
}

std::string OverviewText() {
  std::string text = "usage: mslua VERB [argument ...] [key=value ...] [flags]\n\n";
  std::vector<std::string> later;
  for (const VerbDef& verb : Verbs()) {
    if (verb.built) {
      absl::StrAppend(&text, absl::StrFormat("  %-11s %s\n", verb.name, verb.doc));
    } else {
      later.push_back(verb.name);
    }
  }
  absl::StrAppend(&text, "\nnot built yet: ", absl::StrJoin(later, " "), "\n");
  absl::StrAppend(&text, "\nexamples\n", "  mslua train recipes/quickstart.lua\n", "  mslua help train\n",
                  "  mslua repl recipes/quickstart.lua\n");
  return text;
}

std::string HelpText(const VerbDef& verb) {
  std::string text = absl::StrCat("usage: mslua ", verb.name, " ", verb.usage, "\n  ", verb.doc,
                                  verb.built ? "" : " (not built yet)", "\n");
  if (!verb.actions.empty()) {
    absl::StrAppend(&text, "\nactions\n");
    for (const ActionDef& action : verb.actions) {
      const char* later = action.built ? "" : " (not built yet)";
      absl::StrAppend(&text, absl::StripSuffix(absl::StrCat("  ", action.name, " ", action.usage), " "), later, "\n");
    }
  }
  size_t width = 0;
  for (const FlagDef& flag : verb.flags) width = std::max(width, FlagUsage(flag).size());
  if (!verb.flags.empty()) absl::StrAppend(&text, "\nflags\n");
  for (const FlagDef& flag : verb.flags) {
    absl::StrAppend(&text, absl::StrFormat("  %-*s  %s%s\n", width, FlagUsage(flag), flag.help, FlagNotes(flag)));
  }
  absl::StrAppend(&text, "\nexamples\n");
  for (const std::string& example : verb.examples) absl::StrAppend(&text, "  ", example, "\n");
  return text;
}

}  // namespace mslua::cli
