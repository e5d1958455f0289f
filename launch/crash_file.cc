#include "launch/crash_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "absl/debugging/symbolize.h"
#include "core/base/unwind.h"
#include "core/base/version.h"

namespace mslua {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kFrames = 128;
constexpr unsigned kReportSeconds = 10;
constexpr size_t kPath = 4096, kWho = 256, kStack = 128 << 10;

// What the handler reads. It reaches nothing but statics.
struct Place {
  char path[kPath], who[kWho];
  const std::atomic<int64_t>* step;
};
Place places[2];                           // the one that counts, and the one that is written
std::atomic<const Place*> place{nullptr};  // null: no report
std::atomic<pid_t> reporter{0};            // the thread that reports; 0: none
int first_signal = 0;                      // that it reports
StackCopy stack_copy;
char alternate_stack[kStack];  // for a stack that overflowed; of the thread that trains

// Text in memory of its own, written as it fills: a handler must not allocate.
class Text {
 public:
  explicit Text(int fd) : fd_(fd) {}
  ~Text() { Flush(); }
  Text& operator<<(const char* text) {
    for (; *text != 0; ++text) Put(*text);
    return *this;
  }
  void Flush() {
    const char* begin = bytes_;
    while (used_ > 0) {
      const ssize_t n = write(fd_, begin, used_);
      if (n <= 0) break;
      begin += n;
      used_ -= static_cast<size_t>(n);
    }
    used_ = 0;
  }
  Text& operator<<(int64_t n) {
    if (n < 0) Put('-');
    return Digits(n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n), 10);
  }
  Text& operator<<(const void* address) {
    *this << "0x";
    return Digits(reinterpret_cast<uintptr_t>(address), 16);
  }
  void Put(char c) {
    if (used_ == sizeof bytes_) Flush();
    bytes_[used_++] = c;
  }

 private:
  Text& Digits(uint64_t n, uint64_t base) {
    char digits[24];
    char* end = digits + sizeof digits;
    *--end = 0;
    do *--end = "0123456789abcdef"[n % base];
    while ((n /= base) != 0);
    return *this << end;
  }

  const int fd_;
  char bytes_[1024];
  size_t used_ = 0;
};

// General registers, as far as they are known here.
void WriteRegisters(Text& out, const void* context) {
#if defined(__x86_64__)
  constexpr struct {
    const char* name;
    int at;
  } kRegisters[] = {{"rip", REG_RIP}, {"rsp", REG_RSP}, {"rbp", REG_RBP}, {"rax", REG_RAX}, {"rbx", REG_RBX},
                    {"rcx", REG_RCX}, {"rdx", REG_RDX}, {"rsi", REG_RSI}, {"rdi", REG_RDI}, {"r8", REG_R8},
                    {"r9", REG_R9},   {"r10", REG_R10}, {"r11", REG_R11}, {"r12", REG_R12}, {"r13", REG_R13},
                    {"r14", REG_R14}, {"r15", REG_R15}};
  const auto& values = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  out << "registers:";
  for (const auto& r : kRegisters) out << " " << r.name << " " << reinterpret_cast<const void*>(values[r.at]);
  out << "\n";
#else
  (void)out;
  (void)context;
#endif
}

// The lines of /proc/self/maps with code: what `addr2line` needs for frames without a name.
void WriteModules(Text& out) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  char line[512];
  size_t size = 0;
  char bytes[1024];
  for (ssize_t n; (n = read(maps, bytes, sizeof bytes)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) {
      if (bytes[i] != '\n') {
        if (size < sizeof line - 1) line[size++] = bytes[i];
        continue;
      }
      line[size] = 0;
      size = 0;
      if (std::strstr(line, " r-xp ") != nullptr) out << "  " << line << "\n";
    }
  }
  close(maps);
}

void WriteHeading(Text& out, const Place& p, int signal, const siginfo_t& info) {
  const char* const name = sigdescr_np(signal);
  out << p.who << " crashed: signal " << int64_t{signal} << " (" << (name == nullptr ? "?" : name) << ")";
  // Of a signal that another process, or abort(), has sent there is no address.
  if (info.si_code > 0) out << " at address " << info.si_addr;
  if (p.step != nullptr) out << ", after step " << p.step->load();
}

void WriteCause(Text& out, const Place& p, int signal, const siginfo_t& info, const void* context) {
  out << "mslua " << kVersion << ": ";
  WriteHeading(out, p, signal, info);
  out << ", thread " << int64_t{syscall(SYS_gettid)} << "\n";
  WriteRegisters(out, context);
  out.Flush();
}

void WriteBacktrace(Text& out, const void* context) {
  uintptr_t frames[kFrames];
  stack_copy.Take(context);
  const int count = Unwind(stack_copy, frames, kFrames);
  for (int i = 0; i < count; ++i) {
    char name[512];
    void* const at = reinterpret_cast<void*>(frames[i]);
    // An address that a call returns to is behind the call; the first one is where the signal came.
    const bool known = absl::Symbolize(static_cast<char*>(at) - (i > 0 ? 1 : 0), name, sizeof name);
    out << "  #" << int64_t{i} << " " << at << " " << (known ? name : "?") << "\n";
    out.Flush();
  }
  out << "code:\n";
  WriteModules(out);
  out << "\n";
}

// Ends the process as the signal does by itself.
[[noreturn]] void EndBy(int signal) {
  struct sigaction normal = {};
  normal.sa_handler = SIG_DFL;
  sigaction(signal, &normal, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  _exit(128 + signal);
}

void OnCrash(int signal, siginfo_t* info, void* context) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  pid_t nobody = 0;
  if (!reporter.compare_exchange_strong(nobody, self)) {
    // Another thread that crashes meanwhile waits for the end.
    while (nobody != self) pause();
    // The report has crashed: what it has written tells of the first signal.
    EndBy(first_signal);
  }
  first_signal = signal;
  // A report that hangs ends all the same.
  std::signal(SIGALRM, SIG_DFL);
  alarm(kReportSeconds);
  if (const Place* const p = place.load()) {
    const int fd = open(p->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    Text out(fd < 0 ? STDERR_FILENO : fd);
    WriteCause(out, *p, signal, *info, context);
    if (fd >= 0) {
      Text line(STDERR_FILENO);
      line << "mslua: ";
      WriteHeading(line, *p, signal, *info);
      line << "; backtrace in " << p->path << "\n";
    }
    WriteBacktrace(out, context);
  }
  EndBy(signal);
}

// Once in a process, by the thread that trains.
void Install() {
  stack_t stack = {};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof alternate_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = OnCrash;
  // A second fault within the report reaches the handler, too.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace

CrashFile::CrashFile(const std::string& path, const std::string& who, const std::atomic<int64_t>* step) {
  if (path.size() >= kPath) return;
  Place& next = place == &places[0] ? places[1] : places[0];
  std::strcpy(next.path, path.c_str());
  who.copy(next.who, kWho - 1);
  next.who[std::min(who.size(), kWho - 1)] = 0;
  next.step = step;
  place = &next;
  static const bool installed = (Install(), true);
  (void)installed;
}

CrashFile::~CrashFile() { place = nullptr; }

}  // namespace mslua
