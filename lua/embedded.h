// The Lua library inside the binary: the files of lua/mslua, found by the names `require` knows them under.
#pragma once

#include "absl/strings/string_view.h"

namespace mslua {

struct EmbeddedChunk {
  const char* module;  // "mslua.nn.dense"; a folder's init.lua goes by the folder's name
  const char* path;    // "mslua/nn/dense.lua"
  absl::string_view source;
};

// Null when the library has no such module. The list is generated (tools of lua/BUILD), sorted by module.
const EmbeddedChunk* FindEmbedded(absl::string_view module);

}  // namespace mslua
