#include "tests/emulated_device/use_emulated_device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace mslua::testing {

bool OnRealDevice() {
  const char* const device = getenv("MSLUA_TEST_DEVICE");
  return device != nullptr && std::string(device) == "real";
}

Status UseEmulatedDevice() {
  if (OnRealDevice()) return absl::OkStatus();
  constexpr char kLibrary[] = "tests/emulated_device/libmslua_emulated.so";
  char* const path = realpath(kLibrary, nullptr);
  if (path == nullptr) return absl::NotFoundError(absl::StrCat(kLibrary, " is not there"));
  const char* const scratch = getenv("TEST_TMPDIR");
  const std::string folder = absl::StrCat(scratch == nullptr ? "/tmp" : scratch, "/emulated");
  mkdir(folder.c_str(), 0700);
  for (const char* name : {"libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12", "libcudnn.so.9", "libnccl.so.2"}) {
    const std::string link = absl::StrCat(folder, "/", name);
    unlink(link.c_str());
    if (symlink(path, link.c_str()) != 0) return absl::InternalError(absl::StrCat(link, " cannot be made"));
  }
  free(path);
  setenv("MSLUA_CUDA_LIBRARIES", folder.c_str(), 1);
  if (scratch != nullptr) setenv("XDG_CACHE_HOME", scratch, 1);
  return absl::OkStatus();
}

StatusOr<Emulation> FindEmulation() {
  const char* const folder = getenv("MSLUA_CUDA_LIBRARIES");
  void* const library = dlopen(absl::StrCat(folder == nullptr ? "" : folder, "/libcuda.so.1").c_str(), RTLD_NOW);
  if (library == nullptr) return absl::NotFoundError(dlerror());
  Emulation e = {};
  const auto find = [&](const char* name, auto* to) {
    *to = reinterpret_cast<std::remove_reference_t<decltype(*to)>>(dlsym(library, name));
    return *to != nullptr;
  };
  if (!find("mslua_emulate_fail", &e.fail) || !find("mslua_emulate_failed", &e.failed) ||
      !find("mslua_emulate_order", &e.order) || !find("mslua_emulate_held", &e.held) ||
      !find("mslua_emulate_forget", &e.forget))
    return absl::NotFoundError("the library is not the emulation");
  return e;
}

}  // namespace mslua::testing
