#include "core/base/spawn.h"

#include <signal.h>

namespace mslua {

SpawnAttributes::SpawnAttributes(std::initializer_list<int> defaults, short flags) {
  posix_spawnattr_init(&attributes_);
  sigset_t none, normal;
  sigemptyset(&none);
  sigemptyset(&normal);
  for (const int signal : defaults) sigaddset(&normal, signal);
  posix_spawnattr_setsigmask(&attributes_, &none);
  posix_spawnattr_setsigdefault(&attributes_, &normal);
  posix_spawnattr_setflags(&attributes_, static_cast<short>(flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
}

std::vector<char*> SpawnTexts(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace mslua
