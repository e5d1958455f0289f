#include "verbs/support/write_files.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"

namespace mslua {

std::string FolderOf(std::string argument) {
  while (argument.size() > 1 && argument.back() == '/') argument.pop_back();
  return argument;
}

Status WriteFiles(const std::string& folder, const Files& files) {
  RETURN_IF_ERROR(MakeFolders(folder));
  for (const auto& [name, text] : files) RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/", name), text));
  return absl::OkStatus();
}

Status NoneIsThere(const std::string& folder, const Files& files) {
  for (const auto& file : files) {
    const std::string path = absl::StrCat(folder, "/", file.first);
    if (access(path.c_str(), F_OK) == 0)
      return absl::AlreadyExistsError(absl::StrCat(path, " is there already; give another folder"));
  }
  return absl::OkStatus();
}

}  // namespace mslua
