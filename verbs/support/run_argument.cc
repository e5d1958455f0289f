#include "verbs/support/run_argument.h"

#include <sys/stat.h>

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attach/client/connection.h"
#include "core/base/folder.h"
#include "train/run_folder.h"

namespace mslua::repl {
namespace {

// The folder of the newest running job of the recipe that has `part` in it.
StatusOr<std::string> FolderOfJob(const std::string& recipe, const std::string& part) {
  ASSIGN_OR_RETURN(const std::vector<endpoint::Job> jobs, endpoint::ListJobs());
  for (const endpoint::Job& job : jobs) {
    struct stat info;
    if (job.name == recipe && !job.run.empty() && stat(absl::StrCat(job.run, "/", part).c_str(), &info) == 0)
      return job.run;
  }
  return absl::NotFoundError(absl::StrCat("no job of ", recipe, " runs"));
}

}  // namespace

StatusOr<std::string> FolderOfRun(const std::string& run, const std::string& part) {
  if (IsFolder(run)) return run;
  const std::string recipe = run == "last" ? "" : run;
  StatusOr<std::string> found = absl::NotFoundError("");
  if (!recipe.empty()) found = FolderOfJob(recipe, part);
  if (!found.ok()) found = LastRunFolder(recipe, part);
  if (!found.ok()) {
    const auto job = endpoint::FindJob(run);
    if (job.ok() && !job->run.empty()) found = job->run;
  }
  if (found.ok())
    std::fprintf(stderr, "mslua: %s\n", found->c_str());
  else if (!recipe.empty())
    return absl::NotFoundError(absl::StrCat("'", run, "' is no run folder, no recipe with a run under runs/",
                                            part == kRunLock ? "" : absl::StrCat(" that has ", part),
                                            ", and no running job (mslua ps)"));
  return found;
}

}  // namespace mslua::repl
