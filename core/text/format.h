// Formats of tokenizer files. A file of core/text/formats declares one; the build finds it by its folder.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/text/tokenizer.h"

#define MSLUA_TOKENIZER_FORMAT(name) FormatDef Format_##name()

namespace mslua::text {

struct FormatDef {
  std::string doc;  // "tokenizer.json"
  int order = 0;    // where a folder has files of several formats, the lowest one is read
  // The paths of its files, if `path`, a folder or a file, has them; else empty.
  std::vector<std::string> (*find)(const std::string& path);
  // Reads them. Errors need not name the file.
  StatusOr<TokenizerParts> (*read)(const std::vector<std::string>& files);
};

// A file of text, at most kLargestTokenizerFile bytes.
StatusOr<std::string> ReadTokenizerFile(const std::string& path);
constexpr int64_t kLargestTokenizerFile = int64_t{256} << 20;

// The folder of a path, "." where it has none.
std::string FolderOf(const std::string& path);

}  // namespace mslua::text
