// Where the endpoints of a job are, and how clients find them: <sockets>/<id>/ with job.json, the token and one socket
// per rank. <sockets> is the private folder of rendezvous/socket.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::endpoint {

struct Job {
  std::string id;      // "c7d01a"
  std::string name;    // of the recipe
  std::string run;     // the run folder, absolute; empty when nothing is saved
  std::string folder;  // of the sockets
  int pid = 0;         // of rank 0
  int ranks = 1;
  int64_t started = 0;  // seconds since 1970
  std::string SocketOf(int rank) const;
};

// A name for a new job.
StatusOr<std::string> NewJobId();
// Makes the folder with a new token. The run folder gets a pointer file, "attach". `job.folder` is filled in.
Status MakeJobFolder(Job* job);
void RemoveJobFolder(const Job& job);
// DataLoss: the file is not what MakeJobFolder writes.
StatusOr<std::string> ReadToken(const Job& job);

// The jobs of this user on this host whose rank 0 answers, the newest first. Folders that dead jobs have left are
// removed.
StatusOr<std::vector<Job>> ListJobs();
// One job by its id, a beginning of it, its recipe's name, its run folder, "last", or "" where there is only one.
// NotFound and InvalidArgument list the jobs there are.
StatusOr<Job> FindJob(absl::string_view run);

}  // namespace mslua::endpoint
