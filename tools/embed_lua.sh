#!/bin/sh
# Prints the source of lua/embedded.h: each Lua file as bytes, under the name that require knows it by.
# Arguments: the files, paths that contain ".../lua/mslua/..." or begin with "recipes/".
set -eu
cat <<'HEAD'
// Generated from lua/mslua and recipes by tools/embed_lua.sh.
#include "lua/embedded.h"

namespace mslua {
namespace {

HEAD
n=0
for f in "$@"; do
  n=$((n + 1))
  echo "const unsigned char kFile$n[] = {"
  od -An -v -tu1 "$f" | sed 's/\([0-9]\{1,3\}\)/\1,/g'
  echo "0};"
done
echo "const EmbeddedChunk kChunks[] = {"
n=0
for f in "$@"; do
  n=$((n + 1))
  case $f in
    recipes/*) path=$f ;;
    *) path=mslua/${f##*lua/mslua/} ;;
  esac
  module=$(echo "${path%.lua}" | tr / .)
  module=${module%.init}
  echo "    {\"$module\", \"$path\", {reinterpret_cast<const char*>(kFile$n), sizeof kFile$n - 1}},"
done
cat <<'TAIL'
};

}  // namespace

absl::Span<const EmbeddedChunk> EmbeddedChunks() { return kChunks; }

const EmbeddedChunk* FindEmbedded(absl::string_view module) {
  for (const EmbeddedChunk& chunk : kChunks) {
    if (module == chunk.module) return &chunk;
  }
  return nullptr;
}

}  // namespace mslua
TAIL
