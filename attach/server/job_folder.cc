#include "attach/server/job_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "core/base/atomic_file.h"
#include "core/base/authentication.h"
#include "core/base/clock.h"
#include "core/json/json.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/socket.h"
#include "rendezvous/stale_folders.h"

namespace mslua::endpoint {
namespace {

StatusOr<std::string> RandomHex(size_t bytes) {
  ASSIGN_OR_RETURN(const std::string random, RandomBytes(bytes));
  return absl::BytesToHexString(random);
}

std::string AbsolutePath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

// The start of a small file; empty when it cannot be read.
std::string ReadSmall(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char buffer[4096];
  const ssize_t n = fd ? read(fd.get(), buffer, sizeof buffer) : 0;
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
}

// Makes the file, which nobody else may read. What is there already is an error.
Status WritePrivate(const std::string& path, const std::string& text) {
  const auto failed = [&path](const char* why) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", why));
  };
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return failed(std::strerror(errno));
  const ssize_t written = write(fd.get(), text.data(), text.size());
  if (written < 0) return failed(std::strerror(errno));
  if (static_cast<size_t>(written) < text.size()) return failed("the disk is full");
  return absl::OkStatus();
}

// Numbers and texts as MakeJobFolder writes them; false for anything else.
bool ReadJob(const std::string& folder, Job* job) {
  const auto parsed = ParseJson(ReadSmall(folder + "/job.json"));
  if (!parsed.ok() || !parsed->is_object()) return false;
  const Json& json = *parsed;
  for (const char* key : {"id", "name", "run"}) {
    if (!json.contains(key) || !json[key].is_string()) return false;
  }
  for (const char* key : {"pid", "ranks", "started"}) {
    if (!json.contains(key) || !json[key].is_number_integer()) return false;
  }
  *job = {json["id"], json["name"], json["run"], folder, json["pid"], json["ranks"], json["started"]};
  return true;
}

void RemoveFolder(const std::string& folder) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, 0);
  }
  closedir(dir);
  rmdir(folder.c_str());
}

std::string Listed(const std::vector<Job>& jobs) {
  if (jobs.empty()) return "no job of this user runs on this host (mslua ps)";
  std::string text = "running:";
  for (const Job& j : jobs) absl::StrAppend(&text, " ", j.id, " (", j.name, ")");
  return text;
}

}  // namespace

std::string Job::SocketOf(int rank) const { return absl::StrCat(folder, "/rank_", rank, ".sock"); }

StatusOr<std::string> NewJobId() { return RandomHex(3); }

Status MakeJobFolder(Job* job) {
  ASSIGN_OR_RETURN(job->folder, MakeHeldFolder(job->id));
  if (!job->run.empty()) job->run = AbsolutePath(job->run);
  ASSIGN_OR_RETURN(const std::string token, RandomHex(32));
  RETURN_IF_ERROR(WritePrivate(job->folder + "/token", token));
  const Json json = {{"id", job->id},   {"name", job->name},   {"run", job->run},
                     {"pid", job->pid}, {"ranks", job->ranks}, {"started", job->started}};
  RETURN_IF_ERROR(WritePrivate(job->folder + "/job.json", Dump(json) + "\n"));
  return job->run.empty() ? absl::OkStatus() : WriteFileAtomically(job->run + "/attach", job->id + "\n");
}

void RemoveJobFolder(const Job& job) {
  RemoveFolder(job.folder);
  ReleaseFolder(job.folder);
  if (!job.run.empty()) unlink((job.run + "/attach").c_str());
}

StatusOr<std::string> ReadToken(const Job& job) {
  const std::string token = ReadSmall(job.folder + "/token");
  if (token.size() != 64) return absl::DataLossError(absl::StrCat(job.folder, "/token is not a job's token"));
  return token;
}

StatusOr<std::vector<Job>> ListJobs() {
  ASSIGN_OR_RETURN(const std::string root, SocketRoot());
  RemoveDeadMeetings();
  std::vector<Job> jobs;
  DIR* dir = opendir(root.c_str());
  if (dir == nullptr) return jobs;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) names.push_back(entry->d_name);
  closedir(dir);
  for (const std::string& name : names) {
    Job job;
    if (name[0] == '.' || !ReadJob(absl::StrCat(root, "/", name), &job)) continue;
    if (ConnectUnix(job.SocketOf(0), MonotonicNow()).ok())
      jobs.push_back(job);
    else if (kill(job.pid, 0) != 0 && errno == ESRCH)
      RemoveJobFolder(job);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Job& a, const Job& b) { return a.started != b.started ? a.started > b.started : a.id > b.id; });
  return jobs;
}

StatusOr<Job> FindJob(absl::string_view run) {
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, ListJobs());
  if (jobs.empty()) return absl::NotFoundError(Listed(jobs));
  if (run == "last" || (run.empty() && jobs.size() == 1)) return jobs[0];
  if (run.empty()) return absl::InvalidArgumentError(absl::StrCat("which job? ", Listed(jobs)));
  const std::string path = AbsolutePath(std::string(run));
  std::vector<Job> found;
  for (const Job& j : jobs) {
    if (absl::StartsWith(j.id, run) || j.name == run || (!j.run.empty() && j.run == path)) found.push_back(j);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) return absl::NotFoundError(absl::StrCat("no job '", run, "' runs; ", Listed(jobs)));
  return absl::InvalidArgumentError(absl::StrCat("'", run, "' fits ", found.size(), " jobs; ", Listed(found)));
}

}  // namespace mslua::endpoint
