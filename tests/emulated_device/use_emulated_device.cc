#include "tests/emulated_device/use_emulated_device.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace mslua::testing {

Status UseEmulatedDevice() {
  constexpr char kLibrary[] = "tests/emulated_device/libmslua_emulated.so";
  char* const path = realpath(kLibrary, nullptr);
  if (path == nullptr) return absl::NotFoundError(absl::StrCat(kLibrary, " is not there"));
  const char* const scratch = getenv("TEST_TMPDIR");
  const std::string folder = absl::StrCat(scratch == nullptr ? "/tmp" : scratch, "/emulated");
  mkdir(folder.c_str(), 0700);
  for (const char* name : {"libcuda.so.1", "libnvrtc.so.12"}) {
    const std::string link = absl::StrCat(folder, "/", name);
    unlink(link.c_str());
    if (symlink(path, link.c_str()) != 0) return absl::InternalError(absl::StrCat(link, " cannot be made"));
  }
  free(path);
  setenv("MSLUA_CUDA_LIBRARIES", folder.c_str(), 1);
  if (scratch != nullptr) setenv("XDG_CACHE_HOME", scratch, 1);
  return absl::OkStatus();
}

}  // namespace mslua::testing
