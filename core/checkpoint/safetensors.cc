#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/hash.h"
#include "core/base/round_up.h"
#include "core/checkpoint/strict_json.h"

namespace mslua::checkpoint {
namespace {

constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kLengthBytes = 8;
constexpr const char* kFormatNames[kNumDTypes] = {"F32", "F64", "BF16", "F16", "I32", "I64", "U8", "BOOL"};

Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not a good safetensors file: ", what));
}

StatusOr<DType> ParseFormatName(const std::string& name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (name == kFormatNames[i]) return static_cast<DType>(i);
  }
  return absl::UnimplementedError(
      absl::StrCat("dtype ", name, "; F32 F64 BF16 F16 I32 I64 U8 BOOL can be loaded; convert it first"));
}

StatusOr<StoredTensor> ParseTensor(const std::string& name, const Json& json, int64_t data_bytes) {
  StoredTensor tensor{name, {}, 0};
  if (!json.is_object()) return absl::DataLossError("its entry is not an object");
  std::string dtype;
  RETURN_IF_ERROR(GetString(json, "dtype", &dtype));
  ASSIGN_OR_RETURN(tensor.type.dtype, ParseFormatName(dtype));
  RETURN_IF_ERROR(GetSizes(json, "shape", &tensor.type.shape));
  Shape offsets;
  RETURN_IF_ERROR(GetSizes(json, "data_offsets", &offsets));
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return absl::DataLossError(
        absl::StrCat("data_offsets ", ToString(offsets), " are not within the ", data_bytes, " bytes of data"));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(tensor.type));
  if (offsets[1] - offsets[0] != bytes) {
    return absl::DataLossError(absl::StrCat(ToString(tensor.type), " has ", bytes, " bytes, data_offsets ",
                                            ToString(offsets), " hold ", offsets[1] - offsets[0]));
  }
  tensor.begin = offsets[0];
  return tensor;
}

}  // namespace

StatusOr<int64_t> ParseSafetensorsHeaderLength(absl::string_view start, int64_t file_size) {
  if (file_size < kLengthBytes || start.size() < kLengthBytes) {
    return Damaged(absl::StrCat("it has ", file_size, " bytes, the length of the header alone takes 8"));
  }
  if (absl::StartsWith(start, "PK\x03\x04")) {
    return Damaged(
        "it is a ZIP archive, as .npz files and those of PyTorch are (ms.load_checkpoint and `mslua ckpt convert` read "
        ".npz; of PyTorch, save safetensors)");
  }
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(start[i]);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return Damaged(
        absl::StrCat("it announces a header of ", length, " bytes, at most ", kMaxSafetensorsHeader, " are allowed"));
  }
  if (static_cast<int64_t>(length) > file_size - kLengthBytes) {
    return Damaged(absl::StrCat("it announces a header of ", length, " bytes and has ", file_size, " in all"));
  }
  return static_cast<int64_t>(length);
}

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view start, int64_t file_size) {
  ASSIGN_OR_RETURN(const int64_t length, ParseSafetensorsHeaderLength(start, file_size));
  const int64_t data_begin = kLengthBytes + length;
  if (static_cast<int64_t>(start.size()) < data_begin) return Damaged("the header is truncated");
  auto json = ParseJsonObject(start.substr(kLengthBytes, static_cast<size_t>(length)));
  if (!json.ok()) return Damaged(absl::StrCat("header: ", json.status().message()));

  SafetensorsHeader header;
  for (const auto& [name, entry] : json->items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) return Damaged("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Damaged(absl::StrCat("__metadata__ '", key, "' is not a string"));
        header.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    auto tensor = ParseTensor(name, entry, file_size - data_begin);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor '", name, "'"));
    tensor->begin += data_begin;
    header.tensors.push_back(*std::move(tensor));
  }
  // Tensors without elements first where several begin at one byte.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::make_pair(a.begin, a.type.bytes()) < std::make_pair(b.begin, b.type.bytes());
  });
  int64_t end = data_begin;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != end) {
      return Damaged(absl::StrCat("tensor '", tensor.name, "' begins at byte ", tensor.begin,
                                  ", the one before ends at ", end, tensor.begin < end ? " (overlap)" : " (gap)"));
    }
    end += tensor.type.bytes();
  }
  if (end != file_size) {
    return Damaged(absl::StrCat("its tensors end at byte ", end, ", the file at ", file_size));
  }
  return header;
}

FileDigester::FileDigester(int64_t size, bool blake2b_tree) {
  digest_.size = size;
  digest_.crc32c.resize(static_cast<size_t>(CeilDiv(size, kChunkBytes)));
  if (blake2b_tree) tree_.emplace(size);
}

void FileDigester::Hash(int64_t chunk, const void* data) {
  const int64_t size = SizeOfChunk(chunk);
  digest_.crc32c[static_cast<size_t>(chunk)] = Crc32c(data, static_cast<size_t>(size));
  if (tree_) tree_->Hash(chunk * kChunkBytes, data, size);
}

FileDigest FileDigester::Finish() {
  if (tree_) digest_.blake2b_tree = tree_->HexDigest();
  return std::move(digest_);
}

StatusOr<SafetensorsLayout> LayOutSafetensors(std::vector<StoredTensor> tensors,
                                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    const int64_t wide_a = SizeOf(a.type.dtype), wide_b = SizeOf(b.type.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  int64_t bytes = 0;
  for (StoredTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const int64_t n, CheckedBytes(tensor.type));
    tensor.begin = bytes;
    if (__builtin_add_overflow(bytes, n, &bytes)) return absl::InvalidArgumentError("more than 2^63 bytes of tensors");
    if (tensor.name == kMetadata || json.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor name '", tensor.name, "' is taken or given twice"));
    }
    json[tensor.name] = {{"dtype", kFormatNames[static_cast<int>(tensor.type.dtype)]},
                         {"shape", std::vector<int64_t>(tensor.type.shape.begin(), tensor.type.shape.end())},
                         {"data_offsets", {tensor.begin, bytes}}};
  }
  ASSIGN_OR_RETURN(std::string header, DumpJson(json));
  header.resize(RoundUp(header.size(), 8), ' ');  // the data begin at a multiple of 8
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError("too many tensors for one file");
  }
  SafetensorsLayout layout;
  layout.start.assign(kLengthBytes, '\0');
  for (int i = 0; i < kLengthBytes; ++i) layout.start[i] = static_cast<char>(header.size() >> (8 * i));
  layout.start += header;
  for (StoredTensor& tensor : tensors) tensor.begin += static_cast<int64_t>(layout.start.size());
  layout.tensors = std::move(tensors);
  layout.size = static_cast<int64_t>(layout.start.size()) + bytes;
  return layout;
}

StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<StoredTensor> tensors, const std::map<std::string, std::string>& metadata) {
  auto layout = LayOutSafetensors(std::move(tensors), metadata);
  if (!layout.ok()) return Annotate(layout.status(), path);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(*std::move(layout)));
  ASSIGN_OR_RETURN(writer->file_, AtomicFile::Create(path));
  writer->chunk_ = AllocateAligned(kChunkBytes);
  if (writer->chunk_ == nullptr) return absl::ResourceExhaustedError("no memory for a chunk of the file");
  const std::string& start = writer->layout_.start;
  RETURN_IF_ERROR(writer->Write(start.data(), static_cast<int64_t>(start.size())));
  return writer;
}

Status SafetensorsWriter::Write(const void* data, int64_t size) {
  if (size > layout_.size - written_) {
    return absl::InternalError(absl::StrCat("safetensors: more than the ", layout_.size, " bytes announced"));
  }
  const char* p = static_cast<const char*>(data);
  for (int64_t n; size > 0; p += n, size -= n) {
    const int64_t filled = written_ % kChunkBytes;
    n = std::min(size, kChunkBytes - filled);
    std::memcpy(chunk_.get() + filled, p, static_cast<size_t>(n));
    written_ += n;
    if (written_ % kChunkBytes == 0 || written_ == layout_.size) RETURN_IF_ERROR(WriteChunk());
  }
  return absl::OkStatus();
}

Status SafetensorsWriter::WriteChunk() {
  const int64_t chunk = (written_ - 1) / kChunkBytes;
  digester_.Hash(chunk, chunk_.get());
  return file_->Write(chunk_.get(), static_cast<size_t>(digester_.SizeOfChunk(chunk)));
}

StatusOr<FileDigest> SafetensorsWriter::Commit() {
  if (written_ != layout_.size) {
    return absl::InternalError(
        absl::StrCat("safetensors: ", written_, " bytes were given, ", layout_.size, " announced"));
  }
  RETURN_IF_ERROR(file_->Commit());
  return digester_.Finish();
}

std::vector<StoredTensor> StoredOf(const std::vector<TensorData>& tensors) {
  std::vector<StoredTensor> stored;
  for (const TensorData& tensor : tensors) stored.push_back({tensor.name, tensor.type, 0});
  return stored;
}

std::vector<const char*> DataOf(const std::vector<TensorData>& tensors, const std::vector<StoredTensor>& stored) {
  absl::flat_hash_map<absl::string_view, const void*> by_name;
  for (const TensorData& tensor : tensors) by_name[tensor.name] = tensor.data;
  std::vector<const char*> data;
  for (const StoredTensor& tensor : stored) data.push_back(static_cast<const char*>(by_name[tensor.name]));
  return data;
}

StatusOr<FileDigest> WriteSafetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, StoredOf(tensors), metadata));
  const std::vector<const char*> data = DataOf(tensors, writer->tensors());
  for (size_t i = 0; i < data.size(); ++i) RETURN_IF_ERROR(writer->Write(data[i], writer->tensors()[i].type.bytes()));
  return writer->Commit();
}

}  // namespace mslua::checkpoint
