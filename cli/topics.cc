#include "cli/topics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"

namespace mslua::cli {
namespace {

constexpr size_t kWidth = 100;

TopicRow CodeRow(ExitCode code, const char* doc) { return {absl::StrCat(static_cast<int>(code)), doc}; }

std::vector<TopicRow> EnvironmentRows() {
  return {
      {"MSLUA_NAME", "parameter NAME of the recipe: MSLUA_LR=0.05; key=value of the command line overrides it"},
      {"DATA_PATH", "the parameter data_path of recipes that leave it empty, and the folder of `mslua data ls`"},
      {"OMP_NUM_THREADS", "compute threads of each rank (default: cores / ranks on the host)"},
      {"OMP_WAIT_POLICY",
       "passive: waiting threads sleep (default where ranks have more threads than there are cores)"},
      {"MSLUA_JOB_SECRET_FILE", "file with the secret that all processes of a job on several hosts prove to know"},
      {"MSLUA_PLAINTEXT", "1: connections between hosts may be unencrypted, as --insecure-network"},
      {"MSLUA_TLS", "TLS configuration (JSON) for connections between hosts; --tls overrides it"},
      {"MSLUA_CUDA_LIBRARIES", "folders of NVIDIA's libraries, separated by colons; they are looked for nowhere else"},
      {"MSLUA_SHARE_DEVICE", "1: with --device cuda more ranks of a host than it has devices share them"},
      {"NCCL_SOCKET_IFNAME", "network interface whose address other hosts use (--iface overrides it)"},
      {"MS_ROLE", "MS_WORKER or MS_SCHED: part of this process in a cluster with a scheduler"},
      {"MS_WORKER_NUM", "number of workers that the scheduler waits for"},
      {"MS_SCHED_HOST", "address of the scheduler"},
      {"MS_SCHED_PORT", "port of the scheduler"},
      {"MS_NODE_ID", "name of the worker; all digits: the rank that it asks for"},
      {"MS_CLUSTER_TIMEOUT", "seconds that processes wait for each other at the start (default 600)"},
      {"MS_ENABLE_RECOVERY",
       "1: a cluster of a scheduler and workers continues when one of them has died and was started again"},
      {"MS_RECOVERY_PATH", "with MS_ENABLE_RECOVERY=1: folder of what the scheduler remembers"},
      {"MSLUA_SPARES", "with MS_ENABLE_RECOVERY=1: workers beyond MS_WORKER_NUM that wait for a place"},
      {"MSLUA_ELASTIC", "with MS_ENABLE_RECOVERY=1: MIN:MAX, the ranks that the job may continue with"},
      {"MSLUA_REPLACE_AFTER", "with MS_ENABLE_RECOVERY=1: seconds that a lost worker is waited for (30)"},
      {"RANK_TABLE_FILE", "JSON file that lists the ranks and their hosts"},
      {"RANK_ID", "with RANK_TABLE_FILE: rank of this process"},
      {"RANK_SIZE", "with RANK_TABLE_FILE: number of ranks"},
      {"DEVICE_ID", "with RANK_TABLE_FILE: device of this process"},
      {"RANK", "rank, as torchrun sets it, with WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
      {"OMPI_COMM_WORLD_RANK", "rank, as mpirun sets it, with OMPI_COMM_WORLD_SIZE and the LOCAL variables"},
      {"SLURM_PROCID", "rank, as srun sets it, with SLURM_NTASKS, SLURM_LOCALID, SLURM_NNODES and SLURM_JOB_ID"},
      {"MSLUA_FAULT",
       "abort@rank=R,step=S: that rank crashes after each step S that it makes; scribble@rank=R,step=S: once, after it "
       "has written random bytes over the memory of recovery"},
      {"MSLUA_VERIFY_PASSES", "1: the graph is verified after every pass of the compiler, as in the tests"},
      {"XDG_RUNTIME_DIR", "folder of the sockets of running jobs (default: a folder of the user in TMPDIR or /tmp)"},
      {"XDG_CACHE_HOME", "folder of plans and measurements that are kept (default ~/.cache)"},
      {"XDG_STATE_HOME", "folder of the history of the REPL (default ~/.local/state)"},
  };
}

std::vector<TopicRow> ExitCodeRows() {
  return {
      CodeRow(kExitOk, "success"),
      {"1", "a line failed that repl or chat read from a script; at a terminal that is no failure"},
      CodeRow(kExitUsage, "mistake in the command line or in the recipe"),
      CodeRow(kExitData, "data is missing or damaged"),
      CodeRow(kExitEnvironment, "ranks or a job do not answer, or the machine lacks something"),
      CodeRow(kExitRankCrashed, "a rank crashed"),
      CodeRow(kExitHang, "a rank makes no progress, or ranks call different collectives"),
      CodeRow(kExitDiverged, "the loss is NaN or infinite"),
      CodeRow(kExitExpect, "the recipe's expect is not met"),
      CodeRow(kExitStorage, "a checkpoint or another file cannot be read or written"),
      CodeRow(kExitSecurity, "authentication failed"),
      CodeRow(kExitInternal, "a bug of mslua"),
      CodeRow(kExitCheckpointed, "stopped after a checkpoint was saved; --resume continues"),
      CodeRow(kExitInterrupted, "stopped by Ctrl-C, or by another signal before a checkpoint was saved"),
  };
}

// LastRunFolder in train/run_folder.h, FolderOfRun in verbs/support/run_argument.h, and endpoint::FindJob.
std::vector<TopicRow> LastRows() {
  return {
      {"--ckpt, --resume, --init-from", "of the recipe's runs, the one that saved a checkpoint last"},
      {"ckpt", "of the runs of all recipes, the one that saved a checkpoint last"},
      {"plot, report, runs compare", "the run that wrote metrics.jsonl last"},
      {"logs", "the run that wrote rank_R.log last, with the R of --rank"},
      {"runs rm", "the run that began last"},
      {"attach, top, stop, diag",
       "of the jobs that run on this host now, the one that began last: the first of `mslua ps`"},
      {"a recipe's name for RUN",
       "plot, report, runs compare, logs: its newest running job, else its last run. runs rm: its only run. A run is "
       "found below runs/, whatever the folder's name; of one elsewhere (--out) give the folder"},
  };
}

}  // namespace

const std::vector<Topic>& Topics() {
  static const auto* topics = new std::vector<Topic>{
      {"environment", "environment variables that mslua reads", EnvironmentRows()},
      {"exit-codes", "exit codes of mslua", ExitCodeRows()},
      {"last", "the run that `last` means: the one that wrote last what the command reads", LastRows()}};
  return *topics;
}

const Topic* FindTopic(const std::string& name) {
  for (const Topic& topic : Topics()) {
    if (topic.name == name) return &topic;
  }
  return nullptr;
}

std::string TopicText(const Topic& topic) {
  size_t column = 0;
  for (const TopicRow& row : topic.rows) column = std::max(column, row.name.size());
  column += 4;  // 2 before the name, 2 behind it
  std::string text = absl::StrCat(topic.doc, "\n\n");
  for (const TopicRow& row : topic.rows) {
    std::string line = absl::StrCat("  ", row.name);
    line.resize(column - 1, ' ');
    for (const absl::string_view word : absl::StrSplit(row.doc, ' ')) {
      if (line.size() + 1 + word.size() > kWidth) {
        absl::StrAppend(&text, line, "\n");
        line.assign(column - 1, ' ');
      }
      absl::StrAppend(&line, " ", word);
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace mslua::cli
