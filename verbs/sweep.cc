// mslua sweep
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/common_flags.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/base/parallel_for.h"
#include "core/base/text.h"
#include "core/files/file_lock.h"
#include "core/json/json_string.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "repl/interrupt.h"
#include "train/run_folder.h"
#include "train/run_settings.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"
#include "verbs/support/run_record.h"
#include "verbs/support/run_summary.h"
#include "verbs/support/text_table.h"

DEFINE_int64(seeds, 1, "train each combination with the seeds 1 to N");
DEFINE_int64(jobs, 1, "train N at once");
DEFINE_string(sweep_out, "", "folder of the run folders (default runs/sweep-RECIPE)");

namespace mslua {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

// One training of the sweep.
struct Trial {
  Settings settings;
  int64_t seed = 1;  // of --seeds; the key seed of the settings comes before it
  std::string folder;
  pid_t pid = 0;      // while it runs
  int code = -1;      // how it ended; -1: it has not
  std::string cause;  // of a failure
};

// The values of "a,b,{1,2}": commas in braces separate nothing.
std::vector<std::string> ValuesOf(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && depth == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

constexpr char kSeed[] = "seed";

// What the trial's settings say of the seed; null: nothing.
const std::string* SeedOf(const Settings& settings) {
  const auto found = std::find_if(settings.begin(), settings.end(), [](const auto& s) { return s.first == kSeed; });
  return found == settings.end() ? nullptr : &found->second;
}

// The name of a trial's folder: the same settings always have the same one.
std::string FolderName(const Trial& trial) {
  std::string name;
  for (const auto& [key, value] : trial.settings) absl::StrAppend(&name, key, "=", value, ",");
  if (SeedOf(trial.settings) == nullptr) absl::StrAppend(&name, "seed=", trial.seed, ",");
  name.pop_back();
  std::string safe;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || std::string("=,._-+").find(c) != std::string::npos)
      safe += c;
    else
      absl::StrAppendFormat(&safe, "%%%02x", static_cast<unsigned char>(c));
  }
  constexpr size_t kLongest = 150, kDigits = 16;
  if (safe.size() > kLongest) safe = absl::StrCat(safe.substr(0, kLongest), "-", Blake2bHex(name).substr(0, kDigits));
  return safe;
}

std::string ValueOf(const RunSettings& settings, const std::string& name) {
  const auto found = settings.values.find(name);
  return found == settings.values.end() ? "" : found->second;
}

// "1 (preset smoke)"
std::string ValueText(const RunSettings& settings, const std::string& name) {
  const std::string value = ValueOf(settings, name);
  const auto origin = settings.origins.find(name);
  return absl::StrCat(value.empty() ? "none" : value,
                      origin == settings.origins.end() ? "" : absl::StrCat(" (", origin->second, ")"));
}

// Writes `text`, as much of it as the pipe takes before its reader goes.
void Send(absl::string_view text, int fd) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// What is written into the pipe, until its end, which is closed.
std::string ReadAll(int fd) {
  std::string text;
  char bytes[4096];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR))
    text.append(bytes, std::max<ssize_t>(n, 0));
  close(fd);
  return text;
}

class Sweep {
 public:
  explicit Sweep(const cli::CommandLine& command) : command_(command), jobs_(command.Int("jobs")) {}

  Status Prepare() {
    const std::string& recipe = command_.positional[0];
    RETURN_IF_ERROR(CheckRecipe(recipe));
    const std::string file = recipe.substr(recipe.rfind('/') + 1);
    out_ =
        command_.Given("out") ? command_.String("out") : absl::StrCat("runs/sweep-", absl::StripSuffix(file, ".lua"));
    return MakeTrials();
  }

  // Loads the recipe with each value once, so that a name which it does not have or a value which it does not take ends
  // the sweep before a training begins; gives the exit code.
  int TryValues() {
    std::set<std::pair<std::string, std::string>> tried;
    for (const Trial& trial : trials_) {
      bool is_new = tried.empty();
      for (const auto& setting : trial.settings) is_new |= tried.insert(setting).second;
      if (!is_new) continue;
      if (const int code = TryRecipe(trial); code != kExitOk) return code;
    }
    return kExitOk;
  }

  // Loads the recipe with a trial's settings, and takes note of the first one's parameters; gives the exit code. The
  // recipe runs in a process of its own, and leaves nothing else of it here.
  int TryRecipe(const Trial& trial) {
    SessionOptions options = OptionsOf(command_);
    options.verb = "train";
    options.overrides = trial.settings;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Report(absl::ErrnoToStatus(errno, "cannot make a pipe"));
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return Report(absl::ErrnoToStatus(errno, "cannot start a process"));
    if (pid == 0) {
      close(ends[0]);
      if (const int null = open("/dev/null", O_WRONLY); null >= 0) dup2(null, STDOUT_FILENO);
      auto session = OpenSession(std::move(options));
      const Status loaded = session.ok() ? CallVerb(**session, "config") : session.status();
      if (loaded.ok()) Send(lua_tostring((*session)->lua(), -1), ends[1]);
      _exit(Report(loaded));
    }
    close(ends[1]);
    const auto settings = ParseRunSettings(ReadAll(ends[0]));
    if (settings.ok() && &trial == &trials_[0]) settings_ = *settings;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    return Report(absl::InternalError(absl::StrCat(command_.positional[0], " ended by signal ", WTERMSIG(status))));
  }

  Status Begin() {
    RETURN_IF_ERROR(MakeFolders(out_));
    int64_t done = 0;
    for (Trial& trial : trials_) {
      if (Summarize(trial.folder).state != "done") continue;
      RETURN_IF_ERROR(CheckSame(trial));
      trial.code = kExitOk;
      ++done;
    }
    std::fprintf(stderr, "mslua: %s in %s%s\n", Counted(static_cast<int64_t>(trials_.size()), "training").c_str(),
                 out_.c_str(), done > 0 ? absl::StrCat(", ", done, " of them are done already").c_str() : "");
    return absl::OkStatus();
  }

  // Trains until all trials have ended, or until Ctrl-C.
  void Run() {
    const repl::InterruptScope interrupts;
    size_t next = 0;
    int asked = 0;  // how often Ctrl-C has been pressed
    for (;;) {
      if (repl::TakeInterrupt()) {
        // A training ends after its step at the first Ctrl-C, at once at the second.
        const int number = asked++ < 2 ? SIGINT : SIGKILL;
        interrupted_ = true;
        for (const Trial& trial : trials_) {
          if (trial.pid > 0) kill(trial.pid, number);
        }
      }
      while (!interrupted_ && next < trials_.size() && Running() < jobs_) {
        if (trials_[next].code < 0) Start(&trials_[next]);
        ++next;
      }
      for (Trial& trial : trials_) Collect(&trial);
      if (Running() == 0 && (interrupted_ || next == trials_.size())) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  // Prints a row for each trial, the best first; gives the exit code.
  int Print() const {
    struct Row {
      const Trial* trial;
      RunSummary run;
      double rank;  // smaller is better
    };
    std::vector<Row> rows;
    int code = interrupted_ ? kExitInterrupted : kExitOk;
    for (const Trial& trial : trials_) {
      Row row{&trial, RunSummary(), 0};
      bool more = false;
      const auto record = ReadRunRecord(trial.folder);
      if (record.ok()) row.run = Summarize(trial.folder, *record);
      if (record.ok()) BestKey(*record, &more);
      const std::optional<double> value = row.run.best ? row.run.best : row.run.loss;
      row.rank = trial.code != kExitOk || !value ? HUGE_VAL : more ? -*value : *value;
      if (trial.code > 0 && code == kExitOk) code = trial.code;
      rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
    std::vector<std::string> titles;
    std::vector<size_t> varied;
    for (size_t k = 0; k < trials_[0].settings.size(); ++k) {
      if (!Varies(k) || trials_[0].settings[k].first == kSeed) continue;  // the seed has a column of its own
      varied.push_back(k);
      titles.push_back(trials_[0].settings[k].first);
    }
    titles.insert(titles.end(), {kSeed, "best", "last loss", "steps", "state", "run"});
    TextTable table(titles);
    for (const Row& row : rows) {
      const std::string state = StateOf(*row.trial);
      if (command_.Bool("json")) {
        PrintJson(*row.trial, row.run, state);
        continue;
      }
      std::vector<std::string> cells;
      for (const size_t k : varied) cells.push_back(row.trial->settings[k].second);
      const auto number = [](const std::optional<double>& v) { return v ? absl::StrFormat("%.5g", *v) : "-"; };
      cells.insert(cells.end(),
                   {SeedText(*row.trial),
                    row.run.best_key.empty() ? "-" : absl::StrCat(row.run.best_key, " ", number(row.run.best)),
                    number(row.run.loss), absl::StrCat(row.run.steps), state, row.trial->folder});
      table.Add(cells);
    }
    if (!command_.Bool("json")) std::fputs(table.Text().c_str(), stdout);
    return code;
  }

 private:
  Status MakeTrials() {
    std::vector<Settings> all(1);
    std::map<std::string, int> given;
    for (const auto& [key, text] : command_.overrides) {
      if (++given[key] > 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("sweep: ", key, " is given twice; give all its values in one: ", key, "=A,B"));
      }
      if (key == kSeed && command_.Given("seeds"))
        return absl::InvalidArgumentError(absl::StrCat("sweep: seed=", text, " and --seeds: give one of them"));
      std::set<std::string> distinct;
      const std::vector<std::string> values = ValuesOf(text);
      for (const std::string& value : values) {
        if (value.empty()) {
          return absl::InvalidArgumentError(
              absl::StrCat("sweep: ", key, "=", text, " has an empty value; expected such as ", key, "=A,B"));
        }
        if (!distinct.insert(value).second) {
          return absl::InvalidArgumentError(
              absl::StrCat("sweep: ", key, "=", text, " has ", value, " twice; give each value once"));
        }
      }
      std::vector<Settings> longer;
      for (const Settings& settings : all) {
        for (const std::string& value : values) {
          longer.push_back(settings);
          longer.back().emplace_back(key, value);
        }
      }
      all = std::move(longer);
      constexpr size_t kMost = 10000;
      if (all.size() > kMost)
        return absl::InvalidArgumentError(absl::StrCat("sweep: more than ", kMost, " combinations; give fewer values"));
    }
    for (const Settings& settings : all) {
      for (int64_t seed = 1; seed <= command_.Int("seeds"); ++seed) {
        Trial trial;
        trial.settings = settings;
        trial.seed = seed;
        trial.folder = absl::StrCat(out_, "/", FolderName(trial));
        trials_.push_back(std::move(trial));
      }
    }
    return absl::OkStatus();
  }

  // Refuses a training that is done with other parameters than it would have now; those that the sweep sets are in the
  // folder's name.
  Status CheckSame(const Trial& trial) const {
    const auto had = ReadRunSettings(trial.folder);
    if (!had.ok()) return absl::OkStatus();
    const auto set_here = [&](const std::string& name) {
      return name == kSeed || std::any_of(trial.settings.begin(), trial.settings.end(), [&](const auto& s) {
               return name == s.first || absl::StartsWith(name, absl::StrCat(s.first, "."));
             });
    };
    const std::string remedy =
        absl::StrCat(": give another --out, or remove that run (mslua runs rm ", trial.folder, ")");
    if (had->recipe != settings_.recipe) {
      return absl::InvalidArgumentError(
          absl::StrCat("sweep: ", trial.folder, " is done, and the recipe's text has changed since", remedy));
    }
    std::set<std::string> names;
    for (const RunSettings* settings : {&*had, &settings_}) {
      for (const auto& value : settings->values) names.insert(value.first);
    }
    for (const std::string& name : names) {
      const std::string before = ValueText(*had, name), now = ValueText(settings_, name);
      if (set_here(name) || ValueOf(*had, name) == ValueOf(settings_, name)) continue;
      return absl::InvalidArgumentError(absl::StrCat("sweep: ", trial.folder, " is done, with ", name, " ", before,
                                                     ", and this sweep has ", name, " ", now, remedy));
    }
    return absl::OkStatus();
  }

  // Whether the trials differ in setting k.
  bool Varies(size_t k) const {
    return std::any_of(trials_.begin(), trials_.end(),
                       [&](const Trial& trial) { return trial.settings[k].second != trials_[0].settings[k].second; });
  }

  int64_t Running() const {
    return std::count_if(trials_.begin(), trials_.end(), [](const Trial& trial) { return trial.pid > 0; });
  }

  static std::string SeedText(const Trial& trial) {
    const std::string* const own = SeedOf(trial.settings);
    return own != nullptr ? *own : absl::StrCat(trial.seed);
  }

  static std::string MessagesOf(const Trial& trial) { return trial.folder + ".err"; }

  std::string StateOf(const Trial& trial) const {
    if (trial.code < 0) return "not trained";
    if (trial.code == kExitOk) return "done";
    if (interrupted_ && (trial.code == kExitInterrupted || trial.code == kExitCheckpointed)) return "stopped";
    return absl::StrCat("failed: ", trial.cause);
  }

  static void PrintJson(const Trial& trial, const RunSummary& run, const std::string& state) {
    std::string line = "{";
    for (const auto& [key, value] : trial.settings) {
      if (key != kSeed) absl::StrAppend(&line, JsonString(key), ":", JsonString(value), ",");
    }
    const std::string seed = SeedText(trial);
    int64_t whole = 0;
    const auto number = [](const std::optional<double>& v) { return v ? absl::StrFormat("%.9g", *v) : "null"; };
    absl::StrAppend(&line, "\"seed\":", absl::SimpleAtoi(seed, &whole) ? absl::StrCat(whole) : JsonString(seed),
                    ",\"best_metric\":", JsonString(run.best_key), ",\"best\":", number(run.best),
                    ",\"loss\":", number(run.loss), ",\"steps\":", run.steps, ",\"state\":", JsonString(state),
                    ",\"run\":", JsonString(trial.folder), "}");
    std::printf("%s\n", line.c_str());
  }

  void Fail(Trial* trial, const Status& why) {
    trial->code = ExitCodeOf(why);
    trial->cause = std::string(why.message());
  }

  // What is left of a training that was stopped begins again.
  Status Clear(const Trial& trial) {
    if (!IsRunFolder(trial.folder)) return absl::OkStatus();
    RETURN_IF_ERROR(CheckOnlyARun(trial.folder));
    ASSIGN_OR_RETURN(const auto lock,
                     FileLock::Acquire(absl::StrCat(trial.folder, "/", kRunLock), absl::ZeroDuration()));
    return RemoveAtomically(trial.folder);
  }

  void Start(Trial* trial) {
    if (const Status cleared = Clear(*trial); !cleared.ok()) return Fail(trial, cleared);
    std::vector<std::string> words = {"mslua", "train", command_.positional[0]};
    for (const auto& [key, value] : trial->settings) words.push_back(absl::StrCat(key, "=", value));
    if (SeedOf(trial->settings) == nullptr) words.insert(words.end(), {"--seed", absl::StrCat(trial->seed)});
    words.insert(words.end(), {"--out", trial->folder, "--progress", "off"});
    for (const char* flag : {"preset", "device"}) {
      if (command_.Given(flag)) words.insert(words.end(), {absl::StrCat("--", flag), command_.String(flag)});
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string threads = absl::StrCat(std::max<int64_t>(1, ComputeThreads() / jobs_));
    const std::string messages = MessagesOf(*trial);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return Fail(trial, absl::ErrnoToStatus(errno, "cannot start a process"));
    if (pid == 0) {
      // A group of its own: Ctrl-C at the terminal reaches it through the sweep alone.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kExitInterrupted);
      signal(SIGINT, SIG_DFL);
      // Trainings at once share the cores: threads that wait for each other by spinning would take them away.
      if (jobs_ > 1) {
        setenv("OMP_NUM_THREADS", threads.c_str(), 0);
        setenv("OMP_WAIT_POLICY", "passive", 0);
      }
      const int null = open("/dev/null", O_RDWR);
      const int file = open(messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      dup2(null, STDIN_FILENO);
      dup2(null, STDOUT_FILENO);
      dup2(file < 0 ? null : file, STDERR_FILENO);
      execv("/proc/self/exe", arguments.data());
      _exit(kExitEnvironment);
    }
    trial->pid = pid;
    std::fprintf(stderr, "mslua: %s\n", trial->folder.c_str());
  }

  // Takes note of the end of a training that has ended.
  void Collect(Trial* trial) {
    int status = 0;
    if (trial->pid <= 0 || waitpid(trial->pid, &status, WNOHANG) != trial->pid) return;
    trial->pid = 0;
    constexpr int kBySignal = 128;
    trial->code = WIFEXITED(status) ? WEXITSTATUS(status) : kBySignal + WTERMSIG(status);
    if (trial->code == kExitOk) {
      unlink(MessagesOf(*trial).c_str());
      return;
    }
    trial->cause = WIFEXITED(status) ? absl::StrCat("exit code ", trial->code)
                                     : absl::StrCat("ended by signal ", WTERMSIG(status));
    const auto messages = ReadFile(MessagesOf(*trial), int64_t{1} << 30);
    if (!messages.ok()) return;
    for (absl::string_view line : absl::StrSplit(*messages, '\n')) {
      if (absl::ConsumePrefix(&line, "mslua: error: ")) trial->cause = std::string(line);
    }
  }

  const cli::CommandLine& command_;
  const int64_t jobs_;
  std::string out_;
  std::vector<Trial> trials_;
  RunSettings settings_;  // of the first trial
  bool interrupted_ = false;
};

int RunSweep(const cli::CommandLine& command) {
  Sweep sweep(command);
  if (const Status prepared = sweep.Prepare(); !prepared.ok()) return Report(prepared);
  if (const int code = sweep.TryValues(); code != kExitOk) return code;
  if (const Status begun = sweep.Begin(); !begun.ok()) return Report(begun);
  sweep.Run();
  return sweep.Print();
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(sweep) {
  VerbDef verb;
  verb.name = "sweep";
  verb.usage = "RECIPE key=value,... [flags]";
  verb.doc = "train every combination of values; a table of the results, the best first";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Integer(FLAGS_seeds, "N", 1),
                Integer(FLAGS_jobs, "N", 1),
                Text(FLAGS_sweep_out, "DIR").As("out"),
                Device(),
                Preset(),
                Json()};
  verb.examples = {"mslua sweep recipes/quickstart.lua lr=0.1,0.2",
                   "mslua sweep recipes/quickstart.lua lr=0.1,0.2 --json",
                   "mslua sweep recipes/quickstart.lua lr=0.1,0.2 epochs=1 --seeds 2 --jobs 2 --out runs/two"};
  verb.place = 150;
  verb.run = RunSweep;
  return verb;
}

}  // namespace mslua::cli
