#include "core/files/token_file.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"

namespace mslua {
namespace {

// llm.c's magic numbers and versions.
constexpr uint32_t kMagic16 = 20240520, kVersion16 = 1;  // GPT-2
constexpr uint32_t kMagic32 = 20240801, kVersion32 = 7;  // Llama 3

uint32_t Little32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

void PutLittle(uint32_t value, int64_t width, uint8_t* bytes) {
  for (int64_t k = 0; k < width; ++k) bytes[k] = static_cast<uint8_t>(value >> (8 * k));
}

}  // namespace

StatusOr<absl::optional<TokenFileHeader>> ReadTokenHeader(const InputFile& file) {
  uint8_t words[12];
  if (file.size() < static_cast<int64_t>(sizeof(words))) return absl::optional<TokenFileHeader>();
  RETURN_IF_ERROR(file.Read(0, sizeof(words), words));
  const uint32_t magic = Little32(words), version = Little32(words + 4), count = Little32(words + 8);
  if (magic != kMagic16 && magic != kMagic32) return absl::optional<TokenFileHeader>();
  TokenFileHeader header;
  header.width = magic == kMagic16 ? 2 : 4;
  header.tokens = count;
  const uint32_t known = magic == kMagic16 ? kVersion16 : kVersion32;
  if (version != known) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": llm.c's header has version ", version, ", expected ", known));
  }
  const int64_t expected = TokenFileHeader::kBytes + header.tokens * header.width;
  if (file.size() != expected) {
    return absl::DataLossError(absl::StrCat(file.path(), ": its header says ", header.tokens, " tokens of ",
                                            header.width, " bytes, ", expected, " bytes in all; the file has ",
                                            file.size(), ": make it again"));
  }
  return absl::make_optional(header);
}

bool HasTokenHeader(const std::string& path) {
  const auto file = InputFile::Open(path);
  if (!file.ok()) return false;
  const auto header = ReadTokenHeader(**file);
  return header.ok() ? header->has_value() : absl::IsDataLoss(header.status());
}

Status WriteTokenFile(const std::string& path, absl::Span<const int32_t> tokens, int64_t width) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokens.size(), " tokens; a file has at most ",
                                                   std::numeric_limits<int32_t>::max(), ": make several files"));
  }
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  std::vector<uint8_t> bytes(TokenFileHeader::kBytes);
  PutLittle(width == 2 ? kMagic16 : kMagic32, 4, bytes.data());
  PutLittle(width == 2 ? kVersion16 : kVersion32, 4, bytes.data() + 4);
  PutLittle(static_cast<uint32_t>(tokens.size()), 4, bytes.data() + 8);
  RETURN_IF_ERROR(file->Write(bytes.data(), bytes.size()));
  constexpr size_t kPiece = 1 << 18;  // tokens
  for (size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const auto piece = tokens.subspan(begin, kPiece);
    bytes.resize(piece.size() * static_cast<size_t>(width));
    uint8_t* out = bytes.data();
    for (const int32_t token : piece) {
      if (token < 0 || (width == 2 && token > 0xffff))
        return absl::InvalidArgumentError(absl::StrCat(path, ": token ", token, " does not fit ", width, " bytes"));
      PutLittle(static_cast<uint32_t>(token), width, out);
      out += width;
    }
    RETURN_IF_ERROR(file->Write(bytes.data(), bytes.size()));
  }
  return file->Commit();
}

}  // namespace mslua
