#include "core/device/libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <array>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"

namespace mslua::cuda {
namespace {

constexpr char kFolders[] = "MSLUA_CUDA_LIBRARIES";

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  if (const char* const named = std::getenv(kFolders); named != nullptr && *named != '\0') {
    for (absl::string_view folder : absl::StrSplit(named, ':', absl::SkipEmpty())) folders.emplace_back(folder);
    return folders;
  }
  folders.emplace_back();  // where the loader looks
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    folders.push_back(absl::StrCat(home, "/lib64"));
    folders.push_back(absl::StrCat(home, "/lib"));
  }
  glob_t found = {};
  if (glob("/usr/local/cuda*/lib*", GLOB_NOSORT, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) folders.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  return folders;
}

struct Opened {
  void* handle;
  std::string path;
};

// The first of `names` that a folder has.
StatusOr<Opened> Open(const std::vector<std::string>& names, absl::string_view mend) {
  std::string broken;
  for (const std::string& folder : Folders()) {
    for (const std::string& name : names) {
      const std::string path = folder.empty() ? name : absl::StrCat(folder, "/", name);
      if (void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        struct link_map* map = nullptr;
        const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0';
        return Opened{handle, known ? map->l_name : path};
      }
      const char* const why = dlerror();
      if (broken.empty() && why != nullptr && !absl::StrContains(why, "No such file")) broken = why;
    }
  }
  const char* const named = std::getenv(kFolders);
  const bool only = named != nullptr && *named != '\0';
  return WithExitCode(absl::NotFoundError(absl::StrCat(
                          absl::StrJoin(names, " or "), " was not found",
                          only ? absl::StrCat(" in the folders of ", kFolders, " (", named, ")") : "",
                          broken.empty() ? "" : absl::StrCat("; one could not be opened: ", broken), ": ", mend)),
                      kExitEnvironment);
}

Status Missing(const std::string& path, const char* name) {
  const char* const needed = absl::StartsWith(name, "nccl")    ? "NCCL 2.14"
                             : absl::StartsWith(name, "cudnn") ? "cuDNN 9"
                                                               : "CUDA 12.0";
  return WithExitCode(absl::NotFoundError(absl::StrCat(path, " has no function ", name, ": mslua needs ", needed,
                                                       " or newer; install a newer version")),
                      kExitEnvironment);
}

#define MSLUA_CUDA_FIND(name, parameters)                                                         \
  library.call.name = reinterpret_cast<decltype(library.call.name)>(dlsym(opened.handle, #name)); \
  if (library.call.name == nullptr) return Missing(opened.path, #name);

#define MSLUA_CUDA_FINDER(Functions, FUNCTIONS)                                                           \
  StatusOr<Library<Functions>> Find##Functions(const std::vector<std::string>& names, const char* mend) { \
    ASSIGN_OR_RETURN(const Opened opened, Open(names, mend));                                             \
    Library<Functions> library;                                                                           \
    library.path = opened.path;                                                                           \
    FUNCTIONS(MSLUA_CUDA_FIND)                                                                            \
    return library;                                                                                       \
  }
MSLUA_CUDA_FINDER(Driver, MSLUA_CUDA_DRIVER)
MSLUA_CUDA_FINDER(Nvrtc, MSLUA_CUDA_NVRTC)
#define MSLUA_CUBLAS_LT_ALL(F) MSLUA_CUBLAS_LT(F) MSLUA_CUBLAS_LT_VERSION(F)
MSLUA_CUDA_FINDER(CublasLt, MSLUA_CUBLAS_LT_ALL)
#undef MSLUA_CUBLAS_LT_ALL
#define MSLUA_CUDNN_ALL(F) MSLUA_CUDNN(F) MSLUA_CUDNN_VERSION(F) MSLUA_CUDNN_TEXT(F) MSLUA_CUDNN_LAST(F)
MSLUA_CUDA_FINDER(Cudnn, MSLUA_CUDNN_ALL)
#undef MSLUA_CUDNN_ALL
#define MSLUA_NCCL_ALL(F) MSLUA_NCCL(F) MSLUA_NCCL_TEXT(F)
MSLUA_CUDA_FINDER(Nccl, MSLUA_NCCL_ALL)
#undef MSLUA_NCCL_ALL

#undef MSLUA_CUDA_FINDER
#undef MSLUA_CUDA_FIND

}  // namespace

// Libraries stay open: kernels and callbacks of the driver live as long as the process.
StatusOr<const Library<Driver>*> OpenDriver() {
  static const auto* const library = new StatusOr<Library<Driver>>(FindDriver(
      {"libcuda.so.1"}, "install NVIDIA's driver, or train on the CPU: leave out --device cuda and device_target"));
  if (!library->ok()) return library->status();
  return &**library;
}

StatusOr<const Library<Nvrtc>*> OpenNvrtc() {
  static const auto* const library = new StatusOr<Library<Nvrtc>>(
      FindNvrtc({"libnvrtc.so.13", "libnvrtc.so.12"},
                "install the CUDA toolkit's run-time compiler (cuda-nvrtc), or name the folder that has it in "
                "MSLUA_CUDA_LIBRARIES"));
  if (!library->ok()) return library->status();
  return &**library;
}

StatusOr<const Library<CublasLt>*> OpenCublasLt() {
  static const auto* const library = new StatusOr<Library<CublasLt>>(
      FindCublasLt({"libcublasLt.so.13", "libcublasLt.so.12"},
                   "install the CUDA toolkit's cuBLAS, or name the folder that has it in MSLUA_CUDA_LIBRARIES"));
  if (!library->ok()) return library->status();
  return &**library;
}

StatusOr<const Library<Cudnn>*> OpenCudnn() {
  static const auto* const library = new StatusOr<Library<Cudnn>>(
      FindCudnn({"libcudnn.so.9"}, "install cuDNN 9, or name the folder that has it in MSLUA_CUDA_LIBRARIES"));
  if (!library->ok()) return library->status();
  return &**library;
}

StatusOr<const Library<Nccl>*> OpenNccl() {
  static const auto* const library = new StatusOr<Library<Nccl>>(
      FindNccl({"libnccl.so.2"}, "install NCCL (libnccl2), or name the folder that has it in MSLUA_CUDA_LIBRARIES"));
  if (!library->ok()) return library->status();
  return &**library;
}

Status Check(Result result, const char* function) {
  if (ABSL_PREDICT_TRUE(result == kSuccess)) return absl::OkStatus();
  const char* name = nullptr;
  const auto driver = OpenDriver();
  if (driver.ok()) (*driver)->call.cuGetErrorName(result, &name);
  const std::string text =
      absl::StrCat("device: ", function, ": ", name != nullptr ? name : absl::StrCat("error ", result));
  const Status status = result == kOutOfMemory ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
  return WithExitCode(status, kExitEnvironment);
}

Status CheckNccl(const Library<Nccl>& library, Result result, const char* function) {
  if (ABSL_PREDICT_TRUE(result == kSuccess)) return absl::OkStatus();
  const char* const name = library.call.ncclGetErrorString(result);
  return WithExitCode(
      absl::InternalError(absl::StrCat("device: ", function, ": ", name != nullptr ? name : "unknown error", " (",
                                       result, "); NCCL_DEBUG=WARN says more")),
      kExitEnvironment);
}

Status CheckCudnn(const Library<Cudnn>& library, Result result, const char* function) {
  if (ABSL_PREDICT_TRUE(result == kSuccess)) return absl::OkStatus();
  const char* const name = library.call.cudnnGetErrorString(result);
  std::array<char, 512> more = {};
  library.call.cudnnGetLastErrorString(more.data(), more.size() - 1);
  const absl::string_view said = absl::StripAsciiWhitespace(more.data());
  const std::string text = absl::StrCat("device: ", function, ": ", name != nullptr ? name : "error of cuDNN", " (",
                                        result, ")", said.empty() ? "" : ": ", said);
  const bool lacking = result / 1000 == kDnnNotSupported / 1000;
  return WithExitCode(lacking ? absl::UnimplementedError(text) : absl::InternalError(text), kExitEnvironment);
}

std::string LibrariesText() {
  std::string text;
  const auto add = [&](const std::string& name) { absl::StrAppend(&text, text.empty() ? " with " : ", ", name); };
  int major = 0, minor = 0;
  if (const auto library = OpenNvrtc(); library.ok() && (*library)->call.nvrtcVersion(&major, &minor) == 0)
    add(absl::StrCat("NVRTC ", major, ".", minor));
  if (const auto library = OpenCublasLt(); library.ok())
    add(absl::StrCat("cuBLASLt ", CublasVersionText((*library)->call.cublasLtGetVersion())));
  if (const auto library = OpenCudnn(); library.ok())
    add(absl::StrCat("cuDNN ", CudnnVersionText((*library)->call.cudnnGetVersion())));
  return text;
}

std::string CublasVersionText(size_t version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::string CudnnVersionText(size_t version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

}  // namespace mslua::cuda
