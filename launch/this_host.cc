#include "launch/this_host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/hash.h"

extern char** environ;

namespace mslua {
namespace {

std::string LinkTarget(const char* path) {
  char target[4096];
  const ssize_t n = readlink(path, target, sizeof target);
  return n > 0 ? std::string(target, n) : "";
}

}  // namespace

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name == 0 ? "localhost" : name;
}

std::string HostKey() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string all =
      absl::StrCat(boot, " ", LinkTarget("/proc/self/ns/net"), " ", LinkTarget("/proc/self/ns/mnt"), " ", geteuid());
  return absl::StrCat(HostName(), ":", absl::Hex(Crc32c(all.data(), all.size()), absl::kZeroPad8));
}

int HostCores() { return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

Environment ThreadVariables(const Environment& environment, int ranks, int cores) {
  Environment set;
  int threads = std::max(1, cores / std::max(1, ranks));
  const auto given = environment.find("OMP_NUM_THREADS");
  if (given == environment.end() || given->second.empty()) {
    set["OMP_NUM_THREADS"] = absl::StrCat(threads);
  } else if (!absl::SimpleAtoi(given->second, &threads)) {
    threads = cores;  // a list, for nested regions
  }
  if (environment.count("OMP_WAIT_POLICY") == 0 && ranks * threads > cores) set["OMP_WAIT_POLICY"] = "passive";
  return set;
}

std::string ProgramFile() { return LinkTarget("/proc/self/exe"); }

Environment OwnEnvironment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

}  // namespace mslua
