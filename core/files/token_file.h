// Files of token ids for TextDataset: uint16 or uint32 numbers, plain as nanoGPT writes them, or behind llm.c's header,
// which says how many there are and how wide they are.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/input_file.h"
#include "core/base/status.h"

namespace mslua {

struct TokenFileHeader {
  static constexpr int64_t kBytes = 1024;
  int64_t width = 2;  // bytes of a token
  int64_t tokens = 0;
};

// Bytes of a token where ids are below `vocab_size`: 2 or 4.
inline int64_t TokenWidth(int64_t vocab_size) { return vocab_size <= int64_t{1} << 16 ? 2 : 4; }

// The header; none: the file is plain. DATA_LOSS: the file has more or fewer tokens than its header says, or another
// version.
StatusOr<absl::optional<TokenFileHeader>> ReadTokenHeader(const InputFile& file);

// Whether the file begins with a header, that of a damaged file too. False for what cannot be read.
bool HasTokenHeader(const std::string& path);

// Writes the file with a header, atomically. INVALID_ARGUMENT: more tokens than a header can tell, or an id that has
// not the width.
Status WriteTokenFile(const std::string& path, absl::Span<const int32_t> tokens, int64_t width);

}  // namespace mslua
