#include "core/checkpoint/file_image.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/parallel_for.h"

namespace mslua::checkpoint {
namespace {

// Bytes of the file that lie somewhere in memory.
struct Piece {
  int64_t begin, size;  // in the file
  const char* data;
};

// Copies bytes [begin, end) of the file to `out`; `pieces` are in order and without gaps.
void CopyPieces(const std::vector<Piece>& pieces, int64_t begin, int64_t end, char* out) {
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), begin,
                                [](int64_t at, const Piece& p) { return at < p.begin + p.size; });
  for (; begin < end; ++piece) {
    const int64_t n = std::min(end, piece->begin + piece->size) - begin;
    if (n > 0) std::memcpy(out, piece->data + (begin - piece->begin), static_cast<size_t>(n));
    out += n;
    begin += n;
  }
}

}  // namespace

Status FileImage::Reserve(int64_t bytes) {
  if (shared_ != nullptr) shared_->Clear();
  if (bytes <= capacity_) return absl::OkStatus();
  memory_.reset();  // before the new memory, so that both need not fit
  shared_.reset();
  capacity_ = 0;
  if (shares_) {
    auto shared = SaveMemory::Make(bytes);
    if (shared.ok()) shared_ = *std::move(shared);
  } else {
    memory_ = AllocateAligned(bytes);
  }
  if (memory_ == nullptr && shared_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes that async_save copies; set async_save = false"));
  }
  capacity_ = bytes;
  return absl::OkStatus();
}

StatusOr<int> FileImage::Complete(const std::string& path, const std::string& manifest) {
  RETURN_IF_ERROR(shared_->Complete(path, manifest, size_));
  return shared_->descriptor();
}

StatusOr<Manifest> FileImage::Make(const std::vector<TensorData>& tensors) {
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(StoredOf(tensors), {}));
  RETURN_IF_ERROR(Reserve(layout.size));
  std::vector<Piece> pieces = {{0, static_cast<int64_t>(layout.start.size()), layout.start.data()}};
  const std::vector<const char*> values = DataOf(tensors, layout.tensors);
  for (size_t i = 0; i < values.size(); ++i)
    pieces.push_back({layout.tensors[i].begin, layout.tensors[i].type.bytes(), values[i]});
  FileDigester digester(layout.size);
  ParallelFor(digester.chunks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      char* out = data() + chunk * kChunkBytes;
      CopyPieces(pieces, chunk * kChunkBytes, chunk * kChunkBytes + digester.SizeOfChunk(chunk), out);
      digester.Hash(chunk, out);  // while it is in cache
    }
  });
  return PartOf(tensors, layout.size, &digester);
}

StatusOr<Manifest> FileImage::Make(const std::vector<TensorData>& tensors, const ReadTensor& read) {
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(StoredOf(tensors), {}));
  RETURN_IF_ERROR(Reserve(layout.size));
  std::memcpy(data(), layout.start.data(), layout.start.size());
  absl::flat_hash_map<absl::string_view, size_t> numbers;
  for (size_t i = 0; i < tensors.size(); ++i) numbers[tensors[i].name] = i;
  for (const StoredTensor& t : layout.tensors) RETURN_IF_ERROR(read(numbers.at(t.name), data() + t.begin));
  FileDigester digester(layout.size);
  ParallelFor(digester.chunks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) digester.Hash(chunk, data() + chunk * kChunkBytes);
  });
  return PartOf(tensors, layout.size, &digester);
}

Manifest FileImage::PartOf(const std::vector<TensorData>& tensors, int64_t size, FileDigester* digester) {
  size_ = size;
  std::vector<TensorRecord> records;
  for (const TensorData& tensor : tensors) records.push_back({tensor.name, tensor.type, {}});
  Manifest part = PartOfWhole(records, digester->Finish());
  name_ = part.files[0].name;
  return part;
}

Status FileImage::Write(const std::string& folder) const { return WriteFileOf(data(), size_, folder, name_); }

}  // namespace mslua::checkpoint
