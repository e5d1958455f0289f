#include "core/text/format.h"

#include "core/base/input_file.h"

namespace mslua::text {

StatusOr<std::string> ReadTokenizerFile(const std::string& path) { return ReadFile(path, kLargestTokenizerFile); }

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace mslua::text
