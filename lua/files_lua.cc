#include "lua/files_lua.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/data/file.h"
#include "lua/object.h"

namespace mslua {
namespace {

// Files on their way into a folder that is there already.
struct NewFiles {
  std::string folder;
  std::unique_ptr<AtomicFolder> beside;  // in the folder; null once it is closed
};

}  // namespace

template <>
struct KindName<NewFiles> {
  static constexpr const char* value = "NewFiles";
};

namespace {

// core.write_file(path, text)
StatusOr<int> WriteFile(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "write_file: path"));
  ASSIGN_OR_RETURN(const std::string text, ReadString(L, 2, "write_file: text"));
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  return 0;
}

// core.open_files(folder)
StatusOr<int> OpenNewFiles(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string folder, ReadString(L, 1, "open_files: folder"));
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    return absl::InvalidArgumentError(absl::StrCat("there is no folder '", folder, "': make it first"));
  RemoveLeftovers(folder);
  ASSIGN_OR_RETURN(auto beside, AtomicFolder::Create(absl::StrCat(folder, "/new")));
  const std::string path = beside->path();
  PushObject<NewFiles>(L, {folder, std::move(beside)});
  PushString(L, path);
  return 2;
}

// In descending order of names: config.json and adapter_config.json, which make a folder a model, come after the
// tensors that they describe.
Status Move(const NewFiles& files) {
  const std::string& from = files.beside->path();
  ASSIGN_OR_RETURN(std::vector<std::string> names, data::ListFolder(from));
  std::sort(names.rbegin(), names.rend());
  for (const std::string& name : names) {
    std::error_code error;
    if (std::filesystem::is_directory(absl::StrCat(files.folder, "/", name), error)) {
      return WithExitCode(absl::FailedPreconditionError(absl::StrCat("cannot write ", files.folder, "/", name,
                                                                     ": a folder is there; nothing was written")),
                          kExitStorage);
    }
  }
  for (const std::string& name : names) {
    const std::string to = absl::StrCat(files.folder, "/", name);
    if (std::rename(absl::StrCat(from, "/", name).c_str(), to.c_str()) != 0) {
      const int code = errno;
      return WithExitCode(absl::ErrnoToStatus(code, absl::StrCat("cannot write ", to)), kExitStorage);
    }
  }
  return absl::OkStatus();
}

// core.close_files(files, keep)
StatusOr<int> CloseNewFiles(lua_State* L, Session&) {
  auto* files = ToObject<NewFiles>(L, 1);
  if (files == nullptr || files->beside == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("close_files: expected open files, got ", Describe(L, 1)));
  const Status moved = lua_toboolean(L, 2) ? Move(*files) : absl::OkStatus();
  files->beside.reset();
  RETURN_IF_ERROR(moved);
  return 0;
}

}  // namespace

void OpenFiles(lua_State* L) {
  NewKind<NewFiles>(L);
  lua_pop(L, 1);
  SetFunctions(
      L,
      {{"write_file", Entry<WriteFile>}, {"open_files", Entry<OpenNewFiles>}, {"close_files", Entry<CloseNewFiles>}});
}

}  // namespace mslua
