// tools/fuzz/shapes: draws shapes, types and threads for products, convolutions and their gradients, pooling and
// attention, and compares the kernels with f64. Cases run in child processes, so that a crash is counted and the rest
// still runs.
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/processor.h"
#include "core/kernels/select/bilinear_guard.h"
#include "core/kernels/select/kernel_verdicts.h"
#include "gflags/gflags.h"
#include "tools/fuzz/shapes_case.h"

DEFINE_int64(cases, 1000, "number of cases");
DEFINE_int64(first, 0, "number of the first case");
DEFINE_uint64(seed, 1, "seed that draws the cases");
DEFINE_int32(longest, 600, "seconds after which a case counts as crashed");
DEFINE_string(operators, "", "operators to draw, separated by commas; empty: all");
DEFINE_string(types, "", "float32, bfloat16, float16, separated by commas; empty: all");
DEFINE_string(threads, "1,2,3", "numbers of compute threads to draw from");
DEFINE_bool(list, false, "print each case before it runs");
DEFINE_bool(unguarded, false, "run kernels as oneDNN gives them, without table and checks");

namespace {

using mslua::fuzz::Case;
using mslua::fuzz::Choice;

constexpr char kUsage[] =
    R"(usage: tools/fuzz/shapes [--cases N] [--seed S] [--first I] [--operators A,B] [--types A,B]
                         [--threads 1,2,3] [--longest S] [--list] [--unguarded]

Runs cases I to I + N - 1 (default: 0 to 999) of seed S (default 1): random products, convolutions and their gradients,
pooling and attention, compared with f64. The last line says how many cases ran, how many gave a wrong result and how
many crashed; exit code 0 when none did.

  --operators  of: matmul conv2d conv2d_grad_input conv2d_grad_weight max_pool2d max_pool2d_grad avg_pool2d
               avg_pool2d_grad scaled_dot_product_attention (default: all)
  --types      of: float32 bfloat16 float16 (default: all)
  --threads    compute threads to draw from (default: 1,2,3)
  --longest    seconds after which a case counts as crashed (default: 600)
  --list       prints each case before it runs
  --unguarded  kernels as oneDNN gives them, without the table and the checks of core/kernels/select/bilinear_guard.h:
               finds what the table lacks
)";

// Whether each of the names, separated by commas, is known; prints the first that is not.
bool Among(const char* flag, const std::string& names, const std::vector<std::string>& known) {
  const std::vector<std::string> given = absl::StrSplit(names, ',', absl::SkipEmpty());
  for (const std::string& name : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::fprintf(stderr, "tools/fuzz/shapes: --%s: '%s' is unknown, expected one of: %s\n", flag, name.c_str(),
                 absl::StrJoin(known, " ").c_str());
    return false;
  }
  return true;
}

// The numbers of "1,2,3"; nothing where one is not from 1 to 256.
std::optional<std::vector<int>> Threads(const std::string& text) {
  std::vector<int> threads;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int n = 0;
    if (!absl::SimpleAtoi(word, &n) || n < 1 || n > 256) return std::nullopt;
    threads.push_back(n);
  }
  return threads;
}

bool NotNegative(const char*, gflags::int64 n) { return n >= 0; }
bool IsPositive(const char*, gflags::int32 n) { return n >= 1; }
bool KnowsOperators(const char* flag, const std::string& names) { return Among(flag, names, mslua::fuzz::Drawn()); }
bool KnowsTypes(const char* flag, const std::string& names) {
  return Among(flag, names, {"float32", "bfloat16", "float16"});
}
bool AreThreads(const char*, const std::string& text) { return Threads(text).has_value(); }

DEFINE_validator(cases, &NotNegative);
DEFINE_validator(first, &NotNegative);
DEFINE_validator(longest, &IsPositive);
DEFINE_validator(operators, &KnowsOperators);
DEFINE_validator(types, &KnowsTypes);
DEFINE_validator(threads, &AreThreads);

struct Options {
  int64_t cases = 1000, first = 0;
  int longest = 600;  // seconds of a case; after that it counts as one that hangs
  uint64_t seed = 1;
  Choice choice;
  bool list = false, unguarded = false;
};

// The flags, checked already.
Options OptionsOfFlags() {
  Options o;
  o.cases = FLAGS_cases;
  o.first = FLAGS_first;
  o.longest = FLAGS_longest;
  o.seed = FLAGS_seed;
  o.list = FLAGS_list;
  o.unguarded = FLAGS_unguarded;
  if (!FLAGS_operators.empty()) o.choice.operators = absl::StrSplit(FLAGS_operators, ',');
  if (!FLAGS_types.empty()) o.choice.types = absl::StrSplit(FLAGS_types, ',');
  o.choice.threads = *Threads(FLAGS_threads);
  return o;
}

// What a child tells of a case: `kind` 'b' begins it, 'w' gives its wrong result, 'e' ends it.
void Tell(int fd, char kind, int64_t index, const std::string& text = "") {
  const std::string line = absl::StrCat(std::string(1, kind), " ", index, " ", text, "\n");
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = write(fd, line.data() + done, line.size() - done);
    if (n < 0) _exit(1);
    done += static_cast<size_t>(n);
  }
}

[[noreturn]] void RunCases(const Options& o, int64_t first, int fd) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  mslua::FlushDenormals();
  for (int64_t i = first; i < o.first + o.cases; ++i) {
    Tell(fd, 'b', i);
    alarm(static_cast<unsigned>(o.longest));
    const mslua::Status s = mslua::fuzz::RunCase(mslua::fuzz::DrawCase(o.seed, i, o.choice), static_cast<uint64_t>(i));
    Tell(fd, s.ok() ? 'e' : 'w', i, std::string(s.message()));
  }
  _exit(0);
}

// The command that repeats one case.
std::string Repeat(const Options& o, int64_t index) {
  std::string line = absl::StrCat("tools/fuzz/shapes --seed ", o.seed, " --first ", index, " --cases 1");
  const auto add = [&](const char* name, const std::string& value) { absl::StrAppend(&line, " ", name, " ", value); };
  if (!o.choice.operators.empty()) add("--operators", absl::StrJoin(o.choice.operators, ","));
  if (!o.choice.types.empty()) add("--types", absl::StrJoin(o.choice.types, ","));
  if (o.choice.threads != Choice().threads) add("--threads", absl::StrJoin(o.choice.threads, ","));
  if (o.unguarded) line += " --unguarded";
  return line;
}

std::string Describe(const Options& o, int64_t index) {
  return absl::StrCat(ToString(mslua::fuzz::DrawCase(o.seed, index, o.choice)), "\n  repeat: ", Repeat(o, index));
}

struct Tally {
  int64_t ran = 0, wrong = 0, crashed = 0;
  void Print() const {
    std::printf("%lld cases, %lld wrong, %lld crashes\n", static_cast<long long>(ran), static_cast<long long>(wrong),
                static_cast<long long>(crashed));
    std::fflush(stdout);
  }
};

// What a child that runs cases has told.
struct Told {
  int64_t begun = 0;  // the last case
  bool open = false;  // it has not ended
};

// Reads until the child ends; counts and prints what was wrong.
Told Listen(const Options& o, FILE* from, int64_t first, Tally* tally) {
  Told told;
  told.begun = first - 1;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, from) > 0) {
    long long index = 0;
    char kind = 0;
    int at = 0;
    if (std::sscanf(line, "%c %lld %n", &kind, &index, &at) < 2) continue;
    told.open = kind == 'b';
    told.begun = index;
    if (told.open) {
      if (o.list) std::printf("%lld %s\n", index, ToString(mslua::fuzz::DrawCase(o.seed, index, o.choice)).c_str());
      continue;
    }
    ++tally->ran;
    if (kind == 'w') {
      ++tally->wrong;
      std::printf("WRONG %s\n  %s", Describe(o, index).c_str(), line + at);
      std::fflush(stdout);
    }
    if (tally->ran % 10000 == 0) tally->Print();
  }
  std::free(line);
  return told;
}

std::string EndOf(const Options& o, int status) {
  if (!WIFSIGNALED(status)) return absl::StrCat("exit code ", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return absl::StrCat("not done after ", o.longest, " s");
  return absl::StrCat("killed by SIG", sigabbrev_np(WTERMSIG(status)));
}

// Runs cases from `first` on in a child, until all are done or one ends it; the next case, or -1 where there
// can be no child.
int64_t RunInChild(const Options& o, int64_t first, Tally* tally) {
  int fds[2];
  if (pipe(fds) != 0) {
    std::perror("tools/fuzz/shapes: pipe");
    return -1;
  }
  const pid_t child = fork();
  if (child < 0) {
    std::perror("tools/fuzz/shapes: fork");
    return -1;
  }
  if (child == 0) {
    close(fds[0]);
    RunCases(o, first, fds[1]);
  }
  close(fds[1]);
  FILE* const from = fdopen(fds[0], "r");
  const Told told = Listen(o, from, first, tally);
  std::fclose(from);
  int status = 0;
  waitpid(child, &status, 0);
  if (!told.open && WIFEXITED(status) && WEXITSTATUS(status) == 0) return told.begun + 1;
  ++tally->ran;
  ++tally->crashed;
  std::printf("CRASH %s\n  %s\n", Describe(o, told.begun).c_str(), EndOf(o, status).c_str());
  std::fflush(stdout);
  return told.begun + 1;
}

}  // namespace

int main(int argc, char** argv) {
  mslua::OfferKernelChecks(argc, argv);
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (argc > 1) {
    std::fprintf(stderr, "tools/fuzz/shapes: unexpected argument %s\n%s", argv[1], kUsage);
    return mslua::kExitUsage;
  }
  const Options o = OptionsOfFlags();

  // No user trains these shapes.
  mslua::ForgetVerdicts();
  if (o.unguarded) mslua::TrustAllKernels();

  Tally tally;
  for (int64_t next = o.first; next < o.first + o.cases;) {
    next = RunInChild(o, next, &tally);
    if (next < 0) return mslua::kExitEnvironment;
  }
  tally.Print();
  return tally.wrong + tally.crashed == 0 && tally.ran > 0 ? 0 : 1;
}
