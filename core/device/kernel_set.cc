#include "core/device/kernel_set.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/round_up.h"
#include "core/device/libraries.h"

namespace mslua {
namespace {

constexpr size_t kDigestDigits = 32;

std::string Digest(absl::string_view text) {
  Blake2b hash;
  hash.Update(text.data(), static_cast<int64_t>(text.size()));
  return hash.HexDigest().substr(0, kDigestDigits);
}

std::string NameOf(int number) { return absl::StrCat("mslua_", number); }

// The contents of a file of this user that nobody else may write; empty where there is none.
std::string ReadPrivate(const std::string& path) {
  struct stat s = {};
  if (lstat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 022) != 0) return "";
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status CheckNvrtc(cuda::Result result, const char* function) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("device: ", function, ": error ", result, " of NVRTC"));
}

}  // namespace

StatusOr<std::string> CompileKernels(const std::string& text, const std::string& architecture) {
  ASSIGN_OR_RETURN(const auto* nvrtc, cuda::OpenNvrtc());
  const cuda::Nvrtc& call = nvrtc->call;
  cuda::Program program = nullptr;
  RETURN_IF_ERROR(CheckNvrtc(call.nvrtcCreateProgram(&program, text.c_str(), "mslua.cu", 0, nullptr, nullptr),
                             "nvrtcCreateProgram"));
  // Denormal numbers count as zero, as on the CPU (decision 14). a * b + c may be contracted.
  const std::string target = absl::StrCat("--gpu-architecture=", architecture);
  const char* const options[] = {target.c_str(), "--std=c++17", "--ftz=true", "--prec-div=true", "--prec-sqrt=true"};
  const Status compiled = CheckNvrtc(call.nvrtcCompileProgram(program, static_cast<int>(std::size(options)), options),
                                     "nvrtcCompileProgram");
  std::string out;
  const auto read = [&](auto size_of, const char* size_name, auto get, const char* name) -> Status {
    size_t bytes = 0;
    RETURN_IF_ERROR(CheckNvrtc(size_of(program, &bytes), size_name));
    out.resize(bytes);
    return CheckNvrtc(get(program, out.data()), name);
  };
  if (!compiled.ok()) {
    read(call.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize", call.nvrtcGetProgramLog, "nvrtcGetProgramLog")
        .IgnoreError();
    call.nvrtcDestroyProgram(&program);
    return Annotate(compiled, absl::StrCat(out.c_str(), "\n", text, "\nmslua: a kernel does not compile"));
  }
  const Status got = read(call.nvrtcGetCUBINSize, "nvrtcGetCUBINSize", call.nvrtcGetCUBIN, "nvrtcGetCUBIN");
  call.nvrtcDestroyProgram(&program);
  RETURN_IF_ERROR(got);
  return out;
}

std::string KernelSet::UserFolder() {
  const std::string cache = UserCacheFolder();
  return cache.empty() ? "" : absl::StrCat(cache, "/kernels");
}

int KernelSet::Add(const std::string& body, int pointers) {
  const std::string key = absl::StrCat(pointers, "\n", body);
  const auto [at, added] = numbers_.try_emplace(key, size());
  if (added) texts_.push_back(absl::StrCat("(", NameOf(at->second), ", ", pointers, ") {\n", body, "}\n"));
  return at->second;
}

StatusOr<std::string> KernelSet::Cubin(const std::string& text) const {
  ASSIGN_OR_RETURN(const auto* nvrtc, cuda::OpenNvrtc());
  int major = 0, minor = 0;
  RETURN_IF_ERROR(CheckNvrtc(nvrtc->call.nvrtcVersion(&major, &minor), "nvrtcVersion"));
  const std::string path = absl::StrCat(
      folder_, "/",
      Digest(absl::StrCat(major, ".", minor, "\n", nvrtc->path, "\n", device_->info().architecture, "\n", text)));
  if (!folder_.empty()) {
    const std::string kept = ReadPrivate(path);
    if (kept.size() > kDigestDigits && kept.substr(0, kDigestDigits) == Digest(kept.substr(kDigestDigits)))
      return kept.substr(kDigestDigits);
  }
  ASSIGN_OR_RETURN(std::string cubin, CompileKernels(text, device_->info().architecture));
  // A cache that cannot be written costs time, not the run.
  if (!folder_.empty() && MakeFolders(folder_).ok())
    WriteFileAtomically(path, absl::StrCat(Digest(cubin), cubin)).IgnoreError();
  return cubin;
}

Status KernelSet::Compile() {
  const auto count = static_cast<int>(texts_.size());
  const int first = static_cast<int>(functions_.size());
  const int programs = CeilDiv(count - first, of_a_program_);
  std::vector<StatusOr<std::string>> cubins(static_cast<size_t>(programs), std::string());
  const auto compile = [&](int program) {
    std::string text = prelude_;
    const int begin = first + program * of_a_program_;
    for (int k = begin; k < std::min(count, begin + of_a_program_); ++k)
      absl::StrAppend(&text, "MSLUA_KERNEL", texts_[static_cast<size_t>(k)]);
    cubins[static_cast<size_t>(program)] = Cubin(text);
  };
  std::vector<std::thread> threads;
  const int workers = std::min<int>(programs, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      for (int p = w; p < programs; p += workers) compile(p);
    });
  }
  for (std::thread& t : threads) t.join();
  for (int p = 0; p < programs; ++p) {
    RETURN_IF_ERROR(cubins[static_cast<size_t>(p)].status());
    std::vector<std::string> names;
    for (int k = first + p * of_a_program_; k < std::min(count, first + (p + 1) * of_a_program_); ++k)
      names.push_back(NameOf(k));
    ASSIGN_OR_RETURN(const auto functions, device_->Load(*cubins[static_cast<size_t>(p)], names));
    functions_.insert(functions_.end(), functions.begin(), functions.end());
  }
  return absl::OkStatus();
}

}  // namespace mslua
