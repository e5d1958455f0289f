#include "core/base/processor.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>
#endif

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mslua {
namespace {

// The note of type NT_GNU_BUILD_ID of a loaded object, or empty.
std::string BuildIdOf(const dl_phdr_info& object) {
  const auto aligned = [](size_t bytes) { return (bytes + 3) & ~size_t{3}; };
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(object.dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const value = name + aligned(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && absl::string_view(name, note.n_namesz) == absl::string_view("GNU", 4))
        return absl::BytesToHexString(absl::string_view(value, note.n_descsz));
      at = value + aligned(note.n_descsz);
    }
  }
  return "";
}

}  // namespace

#if defined(__x86_64__)
namespace {
constexpr unsigned kFlush = 1U << 15 | 1U << 6;  // of MXCSR: flush to zero, denormals are zero
}
void FlushDenormals(bool flush) { _mm_setcsr(flush ? _mm_getcsr() | kFlush : _mm_getcsr() & ~kFlush); }
bool FlushesDenormals() { return (_mm_getcsr() & kFlush) == kFlush; }
#elif defined(__aarch64__)
namespace {
constexpr uint64_t kFlush = uint64_t{1} << 24;  // of FPCR: flush to zero, operands too
uint64_t Control() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
}  // namespace
void FlushDenormals(bool flush) {
  asm volatile("msr fpcr, %0" ::"r"(flush ? Control() | kFlush : Control() & ~kFlush));
}
bool FlushesDenormals() { return (Control() & kFlush) != 0; }
#else
void FlushDenormals(bool) {}
bool FlushesDenormals() { return false; }
#endif

#if defined(__x86_64__)
bool ProcessorHasTiles() {
  // Leaf 7: AMX-BF16 and AMX-TILE in edx, AVX512F, DQ, BW and VL in ebx; its subleaf 1: AVX512-BF16 in eax.
  unsigned a, b, c, d;
  const auto ask = [&](unsigned leaf, unsigned subleaf) {
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(leaf), "2"(subleaf));
  };
  ask(0, 0);
  if (a < 7) return false;
  ask(7, 1);
  if ((a >> 5 & 1) == 0) return false;
  ask(7, 0);
  if ((d >> 22 & 1) == 0 || (d >> 24 & 1) == 0 || (b >> 16 & 1) == 0 || (b >> 17 & 1) == 0 || (b >> 30 & 1) == 0 ||
      (b >> 31 & 1) == 0)
    return false;
  // Linux hands out the tiles' registers on request: ARCH_REQ_XCOMP_PERM for XTILEDATA.
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#else
bool ProcessorHasTiles() { return false; }
#endif

std::string InstructionSets() {
  std::string out;
#if defined(__x86_64__)
  const auto add = [&out](const char* name, bool has) {
    if (has) absl::StrAppend(&out, out.empty() ? "" : " ", name);
  };
  add("amx", ProcessorHasTiles());
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
#endif
  return out;
}

std::string BuildId() {
  std::string id;
  // The first object is the program itself.
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* result) {
        *static_cast<std::string*>(result) = BuildIdOf(*object);
        return 1;
      },
      &id);
  return id;
}

}  // namespace mslua
