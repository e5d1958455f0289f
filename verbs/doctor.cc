// mslua doctor
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/common_flags.h"
#include "collectives/backends/registry.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/device/device.h"
#include "core/json/json_string.h"
#include "core/op/registry.h"
#include "lua/calibrate.h"
#include "lua/open_session.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

DEFINE_bool(calibrate, false, "measure what strategy search counts with, and keep it");

namespace mslua {
namespace {

struct Check {
  std::string name;
  enum { kOk, kNote, kBad } verdict;
  std::string found, mend;
};

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string GiB(double bytes) { return absl::StrFormat("%.1f GiB", bytes / (1 << 30)); }

Check CheckInstructionSets() {
  const std::string isa = InstructionSets();
  const bool avx2 = isa.find("avx2") != std::string::npos;
  return {"cpu", avx2 ? Check::kOk : Check::kNote, isa.empty() ? "no AVX2" : isa,
          avx2 ? "" : "kernels fall back to plain code; use a machine with AVX2 for speed"};
}

Check CheckThreads() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency()), threads = ComputeThreads();
  const std::string found = absl::StrCat(threads, " compute threads on ", cores, " cores");
  if (threads <= cores) return {"threads", Check::kOk, found, ""};
  return {"threads", Check::kNote, found,
          absl::StrCat("more threads than cores slow each other down: set OMP_NUM_THREADS=", cores)};
}

Check CheckHugePages() {
  const std::string setting = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty()) return {"huge pages", Check::kNote, "not known here", ""};
  const bool off = setting.find("[never]") != std::string::npos;
  return {"huge pages", off ? Check::kNote : Check::kOk, setting,
          off ? "activations take 4 KiB pages: ask the administrator for 'madvise' in "
                "/sys/kernel/mm/transparent_hugepage/enabled"
              : ""};
}

Check CheckSpace(const char* name, const std::string& path, double wanted, const char* purpose) {
  struct statvfs v;
  if (statvfs(path.c_str(), &v) != 0) return {name, Check::kNote, absl::StrCat(path, " is not there"), purpose};
  const double bytes = static_cast<double>(v.f_bavail) * static_cast<double>(v.f_frsize);
  const bool writable = access(path.c_str(), W_OK) == 0;
  if (!writable)
    return {name, Check::kBad, absl::StrCat(path, " is not writable"),
            absl::StrCat(purpose, "; go to a folder of your own")};
  return {name, bytes >= wanted ? Check::kOk : Check::kNote, absl::StrCat(GiB(bytes), " free in ", path),
          bytes >= wanted ? "" : absl::StrCat(purpose, "; free some space")};
}

Check CheckMemory() {
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return {"memory", bytes >= 2e9 ? Check::kOk : Check::kNote, GiB(bytes),
          bytes >= 2e9 ? "" : "the larger recipes need 2 GiB or more"};
}

Check CheckFiles() {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= 1024;
  return {"open files", enough ? Check::kOk : Check::kNote, absl::StrCat(limit.rlim_cur, " allowed"),
          enough ? "" : "many ranks need more: ulimit -n 4096"};
}

Check CheckOperators() {
  const size_t n = Operators().all().size();
  return {"operators", n > 0 ? Check::kOk : Check::kBad, absl::StrCat(n, " in this build"), ""};
}

// A session that computes: the Lua library loads and a product comes out right.
Check CheckCompute() {
  auto session = OpenSession({});
  Status status = session.status();
  if (status.ok()) {
    status = (*session)->RunText(
        "local core = require 'mslua.core' require 'mslua' local x = core.ones({64, 64}) "
        "assert(core.functions.matmul(x, x):sum():item() == 64 * 64 * 64, 'wrong product')",
        "=doctor");
  }
  return {"computing", status.ok() ? Check::kOk : Check::kBad,
          status.ok() ? "a matrix product is right" : std::string(status.message()),
          status.ok() ? "" : "this is a fault of the build: run ./tools/test"};
}

// NVIDIA's driver, the devices that it shows, and the libraries that --device cuda opens. A machine without a device is
// as good as any.
std::vector<Check> CheckCuda() {
  const auto driver = cuda::OpenDriver();
  if (absl::IsUnimplemented(driver.status()))
    return {{"cuda", Check::kOk, "this program has no code of devices (--config=cpu)", ""}};
  if (!driver.ok()) return {{"cuda", Check::kOk, "no NVIDIA driver here: training uses the CPU", ""}};
  std::vector<Check> checks;
  int version = 0;
  (*driver)->call.cuDriverGetVersion(&version);
  checks.push_back({"cuda driver", Check::kOk,
                    absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10, ", ", (*driver)->path), ""});
  const auto listed = ListDevices();
  if (!listed.ok()) {
    checks.push_back(
        {"cuda devices", Check::kNote, std::string(listed.status().message()), "--device cuda is refused"});
    return checks;
  }
  for (const DeviceInfo& d : *listed) {
    checks.push_back({absl::StrCat("cuda device ", d.ordinal), d.usable ? Check::kOk : Check::kNote,
                      absl::StrCat(d.name, ", ", GiB(static_cast<double>(d.memory_bytes)), ", ", d.architecture),
                      d.usable ? "" : "mslua needs compute capability 8.0 or newer"});
  }
  if (listed->empty())
    checks.push_back({"cuda devices", Check::kNote, "the driver finds none", "--device cuda is refused"});
  const auto nvrtc = cuda::OpenNvrtc();
  int major = 0, minor = 0;
  if (nvrtc.ok()) (*nvrtc)->call.nvrtcVersion(&major, &minor);
  checks.push_back({"cuda compiler", nvrtc.ok() ? Check::kOk : Check::kNote,
                    nvrtc.ok() ? absl::StrCat("NVRTC ", major, ".", minor, ", ", (*nvrtc)->path)
                               : std::string(nvrtc.status().message()),
                    nvrtc.ok() ? "" : "--device cuda is refused"});
  const auto cublas = cuda::OpenCublasLt();
  checks.push_back({"cublas", cublas.ok() ? Check::kOk : Check::kNote,
                    cublas.ok()
                        ? absl::StrCat("cuBLASLt ", cuda::CublasVersionText((*cublas)->call.cublasLtGetVersion()), ", ",
                                       (*cublas)->path)
                        : std::string(cublas.status().message()),
                    cublas.ok() ? "" : "products run in mslua's own kernels, which are slower"});
  const auto cudnn = cuda::OpenCudnn();
  checks.push_back({"cudnn", cudnn.ok() ? Check::kOk : Check::kNote,
                    cudnn.ok() ? absl::StrCat("cuDNN ", cuda::CudnnVersionText((*cudnn)->call.cudnnGetVersion()), ", ",
                                              (*cudnn)->path)
                               : std::string(cudnn.status().message()),
                    cudnn.ok() ? "" : "convolutions and attention run in mslua's own kernels, which are slower"});
  return checks;
}

// The backends of collectives; those of devices where there is a device of theirs.
std::vector<Check> CheckBackends() {
  std::vector<Check> checks;
  for (const BackendDef& backend : Backends()) {
    if (backend.device == "cuda" && !cuda::OpenDriver().ok()) continue;
    const auto there = backend.available();
    checks.push_back({absl::StrCat("backend ", backend.name), there.ok() ? Check::kOk : Check::kNote,
                      there.ok() ? *there : std::string(there.status().message()), there.ok() ? "" : backend.without});
  }
  return checks;
}

int RunDoctor(const cli::CommandLine& command) {
  const bool device = command.Given("device") && command.String("device") == "cuda";
  if (command.Bool("calibrate")) return Report(device ? CalibrateDevice() : Calibrate());
  if (device) return Report(absl::InvalidArgumentError("--device says what --calibrate measures: add --calibrate"));
  std::vector<Check> checks = {
      CheckInstructionSets(),
      CheckThreads(),
      CheckMemory(),
      CheckHugePages(),
      CheckSpace("shared memory", "/dev/shm", 64 << 20, "ranks of one machine exchange tensors there"),
      CheckSpace("disk", ".", 1 << 30, "run folders and checkpoints go there"),
      CheckFiles(),
      CheckOperators(),
      CheckCompute()};
  for (Check& c : CheckCuda()) checks.push_back(std::move(c));
  for (Check& c : CheckBackends()) checks.push_back(std::move(c));
  constexpr const char* kVerdicts[] = {"ok", "note", "BAD"};
  bool bad = false;
  for (const Check& c : checks) {
    bad = bad || c.verdict == Check::kBad;
    if (command.Bool("json")) {
      std::printf("{\"check\": %s, \"verdict\": \"%s\", \"found\": %s, \"fix\": %s}\n", JsonString(c.name).c_str(),
                  kVerdicts[c.verdict], JsonString(c.found).c_str(), JsonString(c.mend).c_str());
      continue;
    }
    std::printf("%-4s  %-13s  %s\n", kVerdicts[c.verdict], c.name.c_str(), c.found.c_str());
    if (!c.mend.empty()) std::printf("      %-13s  %s\n", "", c.mend.c_str());
  }
  return bad ? kExitEnvironment : kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(doctor) {
  VerbDef verb;
  verb.name = "doctor";
  verb.usage = "[flags]";
  verb.doc = "check this machine and say what to fix";
  verb.flags = {Switch(FLAGS_calibrate), Device().Help("what --calibrate measures"), Json()};
  verb.examples = {"mslua doctor", "mslua doctor --json", "mslua doctor --calibrate"};
  verb.place = 700;
  verb.run = RunDoctor;
  return verb;
}

}  // namespace mslua::cli
