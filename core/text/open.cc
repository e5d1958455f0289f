// Finds the format of a path and reads it.
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/text/config.h"
#include "core/text/format.h"

namespace mslua::text {

std::vector<FormatDef> AllFormats();

namespace {

// In the order in which they are looked for.
std::vector<FormatDef> SortedFormats() {
  std::vector<FormatDef> formats = AllFormats();
  std::sort(formats.begin(), formats.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  return formats;
}

}  // namespace

std::vector<std::string> Tokenizer::FilesAt(const std::string& path) {
  for (const FormatDef& format : SortedFormats()) {
    std::vector<std::string> files = format.find(path);
    if (!files.empty()) return files;
  }
  return {};
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Open(const std::string& path) {
  const std::vector<FormatDef> formats = SortedFormats();
  for (const FormatDef& format : formats) {
    const std::vector<std::string> files = format.find(path);
    if (files.empty()) continue;
    StatusOr<TokenizerParts> parts = format.read(files);
    if (!parts.ok()) return Annotate(parts.status(), absl::StrJoin(files, ", "));
    parts->files = files;
    RETURN_IF_ERROR(ReadTokenizerConfig(FolderOf(files[0]), &*parts));
    auto tokenizer = Make(*std::move(parts));
    return tokenizer.ok() ? tokenizer : Annotate(tokenizer.status(), absl::StrJoin(files, ", "));
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return absl::NotFoundError(absl::StrCat("no folder or file '", path, "'"));
  const auto doc = [](std::string* out, const FormatDef& format) { out->append(format.doc); };
  return absl::NotFoundError(
      absl::StrCat("'", path, "' holds no tokenizer; expected ", absl::StrJoin(formats, ", or ", doc)));
}

}  // namespace mslua::text
