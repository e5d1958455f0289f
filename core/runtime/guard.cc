#include "core/runtime/guard.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/round_up.h"

namespace mslua {
namespace {

bool AskedFor() {
  const char* const asked = getenv("MSLUA_GUARD_MEMORY");
  return asked != nullptr && std::strcmp(asked, "1") == 0;
}

void Protect(uintptr_t begin, uintptr_t end, int access) {
  if (begin >= end || mprotect(reinterpret_cast<void*>(begin), end - begin, access) == 0) return;
  std::fprintf(stderr, "mslua: MSLUA_GUARD_MEMORY: mprotect: %s\n", strerror(errno));
  abort();
}

uintptr_t Page() {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return page;
}

}  // namespace

bool GuardsMemory() {
  static const bool guards = AskedFor();
  return guards;
}

void CloseMemory(void* data, int64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(data), page = Page();
  Protect(RoundUp(at, page), (at + static_cast<uintptr_t>(bytes)) / page * page, PROT_NONE);
}

void OpenMemory(void* data, int64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(data), page = Page();
  if (bytes > 0) Protect(at / page * page, RoundUp(at + static_cast<uintptr_t>(bytes), page), PROT_READ | PROT_WRITE);
}

}  // namespace mslua
