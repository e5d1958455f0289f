// Files of Lua that make or change samples on the loader's threads: each thread loads the file into a session of its
// own (lua/mslua/dataset/worker.lua).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/data/sample_code.h"
#include "lua/session.h"

namespace mslua {

struct SampleFile {
  std::string path;
  std::string text;       // of the file
  std::string arguments;  // what it gets as `...`: Lua text of one value, "nil" for none
  uint64_t seed = 0;
  bool traceback = false;
  double limit_seconds = 60;
};

// How sessions are made: OpenSession, which knows more modules than this one.
using SessionOpener = StatusOr<std::unique_ptr<Session>> (*)(SessionOptions options);
// Keeps it in the state for SessionOpenerOf, which gives null where there is none.
void SetSessionOpener(lua_State* L, SessionOpener open);
SessionOpener SessionOpenerOf(lua_State* L);

std::shared_ptr<const data::SampleCode> MakeSampleCode(SampleFile file, SessionOpener open);

}  // namespace mslua
