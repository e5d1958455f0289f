// What posix_spawn takes.
#pragma once

#include <spawn.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace mslua {

// Attributes of a process that blocks no signal when it begins, whatever the thread that starts it blocks.
class SpawnAttributes {
 public:
  // `defaults`: signals that the process handles by default, though this one may ignore them. `flags`:
  // POSIX_SPAWN_SETPGROUP (it leads a process group of its own), POSIX_SPAWN_SETSID, or 0.
  explicit SpawnAttributes(std::initializer_list<int> defaults = {}, short flags = 0);
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

// Arguments, or variables of the environment: pointers to the texts, which must outlive them, and a null at the end.
std::vector<char*> SpawnTexts(const std::vector<std::string>& texts);

}  // namespace mslua
