// Files of tokenizers: what can be read encodes text to ids of its vocabulary, and these to text again. The first byte
// says which format the others are.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/text/tokenizer.h"
#include "core/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = [] {
    std::string path = (std::filesystem::temp_directory_path() / "tokenizer_fuzz_XXXXXX").string();
    if (mkdtemp(&path[0]) == nullptr) std::abort();
    return path;
  }();
  static constexpr const char* kNames[] = {"tokenizer.json", "tokenizer.model", "a.tiktoken", "vocab.txt"};
  if (size == 0) return 0;
  const std::string file = absl::StrCat(folder, "/", kNames[data[0] % 4]);
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::ofstream(file, std::ios::binary) << bytes;  // AtomicFile would wait for the disk
  const auto opened = mslua::text::Tokenizer::Open(file);
  if (!opened.ok()) return 0;
  std::vector<int32_t> ids;
  if (!(*opened)->Encode("Hello, w\u00f6rld! <s> 12345 \u4e00", {}, nullptr, &ids).ok()) return 0;
  for (const int32_t id : ids) {
    if (id < 0 || id >= (*opened)->vocab_size()) std::abort();
  }
  const auto text = (*opened)->Decode(ids, false);
  if (!text.ok() || mslua::text::FindInvalidUtf8(*text) != absl::string_view::npos) std::abort();
  return 0;
}
