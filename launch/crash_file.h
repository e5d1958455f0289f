// What a process that crashes leaves: a file with the signal, the address, the step, the registers and the backtrace.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace mslua {

// While it lives, a crash of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, on any thread) appends its report
// to `path` and says so in one line of standard error, before the signal ends the process as it always does. Where the
// file cannot be written the report goes to standard error. A report that crashes itself leaves what it has written:
// the signal, the step and the registers come first. One at a time.
class CrashFile {
 public:
  // `who`: "rank 1/4 (pid 812, host a)"; `step`: what is done, may be null and outlives the object.
  CrashFile(const std::string& path, const std::string& who, const std::atomic<int64_t>* step);
  ~CrashFile();
  CrashFile(const CrashFile&) = delete;
  CrashFile& operator=(const CrashFile&) = delete;
};

}  // namespace mslua
