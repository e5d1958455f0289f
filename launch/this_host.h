// The host that this process runs on: its name, who shares its memory, its cores.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/base/status.h"
#include "rendezvous/identity.h"

namespace mslua {

// "vm1".
std::string HostName();
// The same for processes that can hand each other memory (one boot, network, file system and user) and for no others:
// "vm1:3fa2c19e".
std::string HostKey();
// Processors of the host.
int HostCores();

// What a rank's environment is to say about compute threads and does not yet: its share of the `cores` that
// `ranks` ranks of a host have together, and that waiting threads sleep: at once where ranks x threads exceed the
// cores, else after some microseconds. One rank uses all cores without being told.
Environment ThreadVariables(const Environment& environment, int ranks, int cores);

// What one process, and all of them, may have.
struct HostLimits {
  int64_t open_files = std::numeric_limits<int64_t>::max();  // of this process (ulimit -n)
  int64_t tasks = std::numeric_limits<int64_t>::max();       // processes and their threads, of this user or the host
  const char* tasks_from = "ulimit -u";                      // what says so
  int64_t memory = std::numeric_limits<int64_t>::max();      // MiB that are free now, or can be made so
};
HostLimits LimitsHere();
// Whether a launcher can start so many ranks and watch them. The error says what they need, the limit, and how to fix
// it.
Status CheckRanks(int64_t ranks, const HostLimits& limits);
// Whether a process may open as many files as a training, or a scheduler, needs before it has any of its own.
Status CheckOpenFiles(const HostLimits& limits);

// The file of the program that runs.
std::string ProgramFile();

// The text of a file of /proc, whose length is not known before: empty where it cannot be read, as of a process that
// ends.
std::string ReadProcFile(const std::string& path);

// The environment of this process.
Environment OwnEnvironment();

}  // namespace mslua
