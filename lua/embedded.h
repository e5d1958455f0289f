// The Lua files inside the binary: the library (lua/mslua) and the recipes, found by the names `require` knows them
// under.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mslua {

struct EmbeddedChunk {
  const char* module;  // "mslua.nn.dense", "recipes.quickstart"; a folder's init.lua goes by the folder's name
  const char* path;    // "mslua/nn/cells/dense.lua", "recipes/quickstart.lua"
  absl::string_view source;
};

// All of them, generated (tools of lua/BUILD).
absl::Span<const EmbeddedChunk> EmbeddedChunks();
// Null when there is no such module.
const EmbeddedChunk* FindEmbedded(absl::string_view module);
// The library's recipe of that name ("quickstart"); null when there is none.
const EmbeddedChunk* FindRecipe(const std::string& name);

}  // namespace mslua
