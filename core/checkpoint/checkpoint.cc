#include "core/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/base/text.h"
#include "core/checkpoint/chunk_reader.h"
#include "core/checkpoint/rank_files.h"
#include "core/checkpoint/strict_json.h"

namespace mslua::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kSuffix = ".ckpt";
constexpr absl::string_view kRunFolderCheckpoints = "ckpt";  // where a run folder has them
constexpr int64_t kMaxManifest = int64_t{1} << 30;
constexpr int64_t kMergeBytes = 64 << 20;

bool ParseCount(absl::string_view digits, int64_t* out) {
  return !digits.empty() && digits.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(digits, out) && *out <= kMaxCount;
}

// "net-3_120.ckpt" -> net, 3, 120.
bool ParseName(absl::string_view name, CheckpointName* out) {
  if (!absl::EndsWith(name, kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const size_t dash = name.rfind('-');
  if (dash == absl::string_view::npos || dash == 0) return false;
  const absl::string_view numbers = name.substr(dash + 1);
  const size_t bar = numbers.find('_');
  out->prefix = std::string(name.substr(0, dash));
  return bar != absl::string_view::npos && ParseCount(numbers.substr(0, bar), &out->epoch) &&
         ParseCount(numbers.substr(bar + 1), &out->step);
}

// Whether a checkpoint's folder may have an entry of this name, beside the companions of the one that is saved.
bool IsNameInCheckpoint(const std::string& name, const Companions& companions) {
  absl::string_view rest = name;
  int64_t rank = 0;
  if (absl::ConsumePrefix(&rest, "rank_") && absl::ConsumeSuffix(&rest, ".safetensors")) return ParseCount(rest, &rank);
  if (name == kManifestName || IsCompanionName(name) || IsTemporaryName(name)) return true;
  return companions != nullptr && absl::c_any_of(*companions, [&](const auto& file) { return file.first == name; });
}

// INVALID_ARGUMENT where saving a checkpoint at `path` would delete what is no checkpoint. An empty folder may go.
Status CheckReplaceable(const std::string& path, const Companions& companions) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return absl::OkStatus();
  const std::string fix = "; give a path where nothing is, or move what is there away";
  if (!S_ISDIR(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is a file, and a checkpoint is a folder", fix));
  std::string other;  // the first name, so that the message does not depend on the folder's order
  bool empty = true, manifest = false;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    empty = false;
    manifest = manifest || name == kManifestName;
    const bool own = IsNameInCheckpoint(name, companions) && !IsFolder(it->path().string());
    if (!own && (other.empty() || name < other)) other = name;
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", path));
  if (empty || (manifest && other.empty())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is a folder ",
                   manifest ? absl::StrCat("with ", other, ", which no checkpoint has")
                            : absl::StrCat("without ", kManifestName, ", and thus no checkpoint"),
                   ": saving a checkpoint there would delete all that is in it", fix));
}

// INVALID_ARGUMENT where the output `to` is the source `from`, contains it, or lies inside it.
Status CheckApart(const std::string& from, const std::string& to) {
  std::error_code error;
  const auto absolute = [&](const std::string& path) {
    const fs::path p = fs::weakly_canonical(fs::absolute(path), error);
    return p.has_filename() ? p : p.parent_path();  // without the slash at the end
  };
  const fs::path source = absolute(from), target = absolute(to);
  const auto [s, t] = std::mismatch(source.begin(), source.end(), target.begin(), target.end());
  const bool in_target = t == target.end(), in_source = s == source.end();
  if (error || (!in_target && !in_source)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the output ", to,
                                                 in_target && in_source ? " is"
                                                 : in_target            ? " contains"
                                                                        : " lies inside",
                                                 " what is read, ", from, "; give a path outside of it"));
}

StatusOr<Lineage> ReadLineage(const std::string& manifest) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest, kMaxManifest));
  return ParseLineage(text);
}

// Calls copy(offset in the slice, offset in the request, elements) for each run of elements that is contiguous in both
// the stored slice [begin, end) and the request [want_begin, want_end); offsets in elements.
template <class Copy>
Status ForEachRun(const Slice& slice, absl::Span<const int64_t> want_begin, absl::Span<const int64_t> want_end,
                  Copy copy) {
  const int rank = static_cast<int>(want_begin.size());
  Shape begin(rank), end(rank), stored(rank), wanted(rank);
  for (int d = 0; d < rank; ++d) {
    begin[d] = std::max(slice.begin[d], want_begin[d]);
    end[d] = std::min(slice.end[d], want_end[d]);
    if (begin[d] >= end[d]) return absl::OkStatus();
    stored[d] = slice.end[d] - slice.begin[d];
    wanted[d] = want_end[d] - want_begin[d];
  }
  const Shape stored_strides = RowMajorStrides(stored), wanted_strides = RowMajorStrides(wanted);
  // Dimensions from `inner` on make one run: all after `inner` are whole on both sides.
  int inner = rank - 1;
  while (inner > 0 && end[inner] - begin[inner] == stored[inner] && stored[inner] == wanted[inner]) --inner;
  int64_t run = 1;
  for (int d = std::max(inner, 0); d < rank; ++d) run *= end[d] - begin[d];
  Shape at = begin;
  while (true) {
    int64_t from = 0, to = 0;
    for (int d = 0; d < rank; ++d) {
      from += (at[d] - slice.begin[d]) * stored_strides[d];
      to += (at[d] - want_begin[d]) * wanted_strides[d];
    }
    RETURN_IF_ERROR(copy(from, to, run));
    int d = inner - 1;
    for (; d >= 0; --d) {
      if (++at[d] < end[d]) break;
      at[d] = begin[d];
    }
    if (d < 0) return absl::OkStatus();
  }
}

Status VerifyBytes(const std::string& path, const FileDigest& expected, VerifyDepth depth) {
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(path));
  if (file->size() != expected.size) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->size(), " bytes, the manifest says ", expected.size));
  }
  FileDigester digester(expected.size, /*blake2b_tree=*/depth == VerifyDepth::kFull);
  if (depth == VerifyDepth::kOnDisk) {
    int64_t chunk = 0;
    RETURN_IF_ERROR(ForEachChunkOnDisk(*file, [&](const char* data, int64_t) { digester.Hash(chunk++, data); }));
  } else {
    std::vector<char> data(static_cast<size_t>(std::min(kChunkBytes, expected.size)));
    for (int64_t chunk = 0; chunk < digester.chunks(); ++chunk) {
      RETURN_IF_ERROR(file->Read(chunk * kChunkBytes, digester.SizeOfChunk(chunk), data.data()));
      digester.Hash(chunk, data.data());
    }
  }
  const FileDigest found = digester.Finish();
  for (size_t i = 0; i < expected.crc32c.size(); ++i) {
    if (found.crc32c[i] != expected.crc32c[i]) {
      return absl::DataLossError(absl::StrCat(path, " is damaged in the 1 MiB from byte ", i * kChunkBytes));
    }
  }
  if (depth == VerifyDepth::kFull && found.blake2b_tree != expected.blake2b_tree) {
    return absl::DataLossError(absl::StrCat(path, " does not match its BLAKE2b tree digest"));
  }
  return absl::OkStatus();
}

// The tensors of a checkpoint as one safetensors file, a row of at most kMergeBytes at a time.
StatusOr<FileDigest> WriteWhole(Checkpoint& checkpoint, const std::string& path) {
  std::vector<StoredTensor> tensors;
  for (const TensorRecord& tensor : checkpoint.manifest().tensors) tensors.push_back({tensor.name, tensor.type, 0});
  ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, std::move(tensors), {}));
  std::vector<char> rows;
  for (const StoredTensor& tensor : writer->tensors()) {
    if (tensor.type.bytes() == 0) continue;
    Shape begin(tensor.type.shape.size(), 0), end = tensor.type.shape;
    const int64_t count = end.empty() ? 1 : end[0];
    const int64_t row = tensor.type.bytes() / count;
    const int64_t step = std::clamp<int64_t>(kMergeBytes / row, 1, count);
    for (int64_t i = 0; i < count; i += step) {
      const int64_t n = std::min(step, count - i);
      if (!end.empty()) begin[0] = i, end[0] = i + n;
      rows.resize(static_cast<size_t>(n * row));
      RETURN_IF_ERROR(checkpoint.ReadSlice(tensor.name, begin, end, rows.data()));
      RETURN_IF_ERROR(writer->Write(rows.data(), n * row));
    }
  }
  return writer->Commit();
}

}  // namespace

std::string IgnoredBeside(const CheckpointName& chosen, const std::vector<CheckpointName>& names) {
  const CheckpointName* furthest = nullptr;
  int count = 0;
  for (const CheckpointName& name : names) {
    if (!name.damage.ok() || name.lineage.generation >= chosen.lineage.generation || name.step <= chosen.step ||
        LeadsTo(name.lineage, name.step, chosen.lineage)) {
      continue;
    }
    ++count;
    if (furthest == nullptr || name.step > furthest->step) furthest = &name;
  }
  if (count == 0) return "";
  const std::string others = count == 1 ? "" : absl::StrCat(" and ", count - 1, " more");
  return absl::StrCat("ignored ", furthest->path, " (step ", furthest->step, ")", others,
                      ": saved before, in a lineage that ", chosen.path, " (step ", chosen.step,
                      ") does not continue; name it (--resume=", furthest->path, ") to go back to it");
}

bool IsCompanionName(absl::string_view name) {
  constexpr absl::string_view kNames[] = {"tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "vocab.txt",
                                          "tokenizer.model",
                                          "spiece.model"};
  return absl::c_linear_search(kNames, name) || absl::EndsWith(name, ".tiktoken");
}

bool NamesOneCheckpoint(const std::string& path) {
  return !IsFolder(path) || IsFile(absl::StrCat(path, "/", kManifestName)) ||
         absl::EndsWith(absl::string_view(path).substr(0, path.find_last_not_of('/') + 1), kSuffix);
}

std::string CheckpointPath(const std::string& directory, const std::string& prefix, int64_t epoch, int64_t step) {
  return absl::StrCat(directory, "/", prefix, "-", epoch, "_", step, kSuffix);
}

int64_t EpochInName(int64_t epochs, int64_t steps) { return steps == 0 && epochs > 0 ? epochs : epochs + 1; }

StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory) {
  if (!IsFolder(directory)) return absl::NotFoundError(absl::StrCat("there is no directory ", directory));
  std::vector<CheckpointName> found;
  std::map<std::string, fs::file_time_type> latest;  // of each prefix
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    CheckpointName name;
    if (!ParseName(it->path().filename().string(), &name)) continue;
    name.path = absl::StrCat(directory, "/", it->path().filename().string());
    std::error_code missing;
    const std::string manifest = absl::StrCat(name.path, "/", kManifestName);
    const auto written = fs::last_write_time(manifest, missing);
    if (missing) continue;
    auto lineage = ReadLineage(manifest);
    if (absl::IsNotFound(lineage.status())) continue;  // removed meanwhile
    name.damage = lineage.status();
    if (lineage.ok()) name.lineage = *std::move(lineage);
    auto [prefix, is_new] = latest.emplace(name.prefix, written);
    if (!is_new) prefix->second = std::max(prefix->second, written);
    found.push_back(std::move(name));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", directory));
  const auto newest = std::max_element(
      found.begin(), found.end(),
      [](const CheckpointName& a, const CheckpointName& b) { return a.lineage.generation < b.lineage.generation; });
  const Lineage line = newest == found.end() ? Lineage() : newest->lineage;
  const auto place = [&](const CheckpointName& name) {
    const bool on_line = line.generation == 0 || LeadsTo(name.lineage, name.step, line);
    return std::make_tuple(!name.damage.ok(), on_line, name.lineage.generation, latest[name.prefix], name.prefix,
                           name.epoch, name.step);
  };
  std::sort(found.begin(), found.end(),
            [&](const CheckpointName& a, const CheckpointName& b) { return place(b) < place(a); });
  return found;
}

std::string CheckpointsOfRun(const std::string& run) {
  constexpr int64_t kLargest = 1 << 16;
  const auto named = ReadFile(absl::StrCat(run, "/", kCheckpointDirectoryFile), kLargest);
  std::string place;
  for (const absl::string_view line : absl::StrSplit(named.ok() ? *named : "", '\n', absl::SkipEmpty())) {
    place = (fs::path(run) / std::string(line)).lexically_normal().string();
    if (IsFolder(place)) return place;
  }
  return place.empty() ? absl::StrCat(run, "/", kRunFolderCheckpoints) : place;
}

StatusOr<std::vector<CheckpointName>> FindCheckpoints(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<CheckpointName> names, ListCheckpoints(path));
  const std::string of_run = CheckpointsOfRun(path);
  const bool elsewhere = IsFile(absl::StrCat(path, "/", kCheckpointDirectoryFile));
  return names.empty() && (elsewhere || IsFolder(of_run)) ? ListCheckpoints(of_run) : names;
}

StatusOr<Manifest> WritePart(const std::string& folder, int rank, const std::vector<ShardData>& shards) {
  Manifest part;
  std::vector<TensorData> tensors;
  for (const ShardData& shard : shards) {
    const Part& p = shard.part;
    if (!p.valid()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", shard.name, "': a shard ", ToString(p.size), " at ",
                                                     ToString(p.begin), " is not within ", ToString(p.whole)));
    }
    part.tensors.push_back({shard.name, {shard.dtype, p.whole}, {{0, p.begin, p.end()}}});
    tensors.push_back({shard.name, {shard.dtype, p.size}, shard.data});
  }
  const std::string name = FileOfRank(rank);
  ASSIGN_OR_RETURN(FileDigest digest, WriteSafetensors(absl::StrCat(folder, "/", name), tensors));
  part.files.push_back({name, std::move(digest), "", ""});
  return part;
}

StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(const std::string& path, Companions companions) {
  RETURN_IF_ERROR(CheckReplaceable(path, companions));
  auto writer = std::make_unique<CheckpointWriter>();
  writer->path_ = path;
  writer->companions_ = std::move(companions);
  ASSIGN_OR_RETURN(writer->folder_, AtomicFolder::Create(path));
  return writer;
}

Status CheckpointWriter::CommitManifest(const std::string& manifest) {
  if (companions_ != nullptr) {
    for (const auto& [name, content] : *companions_)
      RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder(), "/", name), content));
  }
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder(), "/", kManifestName), manifest));
  return folder_->Commit();
}

Status CheckpointWriter::Commit(const RunState& run, const std::vector<Manifest>& parts) {
  ASSIGN_OR_RETURN(const std::string manifest, JoinParts(run, parts));
  return CommitManifest(manifest);
}

Status CheckpointWriter::CommitWhole(const RunState& run, const std::vector<Manifest>& parts) {
  ASSIGN_OR_RETURN(const std::string manifest, JoinParts(run, parts));
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder(), "/", kManifestName), manifest));
  ASSIGN_OR_RETURN(const auto sharded, Checkpoint::Open(folder()));
  ASSIGN_OR_RETURN(const auto whole, Create(path_, companions_));
  ASSIGN_OR_RETURN(FileDigest digest, WriteWhole(*sharded, absl::StrCat(whole->folder(), "/", FileOfRank(0))));
  return whole->Commit(run, {PartOfWhole(sharded->manifest().tensors, std::move(digest))});
}

StatusOr<std::string> JoinParts(const RunState& run, const std::vector<Manifest>& parts) {
  Manifest manifest;
  manifest.run = run;
  for (const Manifest& part : parts) RETURN_IF_ERROR(AppendPart(part, &manifest));
  RETURN_IF_ERROR(CheckComplete(manifest));
  return SerializeManifest(manifest);
}

Status SaveCheckpoint(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
                      const Companions& companions) {
  std::vector<ShardData> shards;
  for (const TensorData& t : tensors) {
    shards.push_back({t.name, t.type.dtype, t.data, Part::Of(t.type.shape)});
  }
  ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Create(path, companions));
  ASSIGN_OR_RETURN(Manifest part, WritePart(writer->folder(), 0, shards));
  return writer->Commit(run, {std::move(part)});
}

Status Checkpoint::LoadChunk(size_t file, int64_t chunk) {
  if (chunk_number_ == chunk && chunk_file_ == file) return absl::OkStatus();
  const FileDigest& digest = manifest_.files[file].digest;
  const int64_t begin = chunk * kChunkBytes;
  const int64_t size = std::min(kChunkBytes, digest.size - begin);
  chunk_number_ = -1;
  chunk_.resize(static_cast<size_t>(size));
  RETURN_IF_ERROR(files_[file].file->Read(begin, size, chunk_.data()));
  if (Crc32c(chunk_.data(), chunk_.size()) != digest.crc32c[chunk]) {
    return absl::DataLossError(absl::StrCat(files_[file].file->path(), " is damaged in the 1 MiB from byte ", begin));
  }
  chunk_file_ = file;
  chunk_number_ = chunk;
  return absl::OkStatus();
}

Status Checkpoint::ReadBytes(size_t file, int64_t offset, int64_t size, char* out) {
  const FileDigest& digest = manifest_.files[file].digest;
  if (digest.crc32c.empty()) return files_[file].file->Read(offset, size, out);  // a plain safetensors file
  for (int64_t n; size > 0; offset += n, out += n, size -= n) {
    const int64_t chunk = offset / kChunkBytes;
    const int64_t skip = offset % kChunkBytes;
    n = std::min(kChunkBytes - skip, size);
    if (n == kChunkBytes) {  // a whole chunk needs no copy
      RETURN_IF_ERROR(files_[file].file->Read(offset, n, out));
      if (Crc32c(out, static_cast<size_t>(n)) != digest.crc32c[chunk]) {
        return absl::DataLossError(
            absl::StrCat(files_[file].file->path(), " is damaged in the 1 MiB from byte ", offset));
      }
    } else {
      RETURN_IF_ERROR(LoadChunk(file, chunk));
      std::memcpy(out, chunk_.data() + skip, static_cast<size_t>(n));
    }
  }
  return absl::OkStatus();
}

Status Checkpoint::OpenHeader(size_t file, SafetensorsHeader* header) {
  const InputFile& input = *files_[file].file;
  std::string start(8, '\0');
  if (input.size() >= 8) RETURN_IF_ERROR(ReadBytes(file, 0, 8, start.data()));
  auto length = ParseSafetensorsHeaderLength(start, input.size());
  if (!length.ok()) return Annotate(length.status(), input.path());
  start.resize(static_cast<size_t>(8 + *length));
  RETURN_IF_ERROR(ReadBytes(file, 0, 8 + *length, start.data()));
  auto parsed = ParseSafetensorsHeader(start, input.size());
  if (!parsed.ok()) return Annotate(parsed.status(), input.path());
  *header = *std::move(parsed);
  for (const StoredTensor& tensor : header->tensors) files_[file].tensors[tensor.name] = tensor;
  return absl::OkStatus();
}

Status Checkpoint::OpenPlainFile() {
  auto opened = InputFile::Open(path_);
  if (absl::IsNotFound(opened.status()))
    return absl::NotFoundError(absl::StrCat("no checkpoint at ", path_, ": there is no such file or folder"));
  ASSIGN_OR_RETURN(auto input, std::move(opened));
  manifest_.files.push_back({fs::path(path_).filename().string(), {input->size(), "", {}}, "", ""});
  files_.push_back({std::move(input), {}});
  SafetensorsHeader header;
  RETURN_IF_ERROR(OpenHeader(0, &header));
  for (const StoredTensor& t : header.tensors) {
    manifest_.tensors.push_back({t.name, t.type, {{0, Shape(t.type.shape.size(), 0), t.type.shape}}});
  }
  return absl::OkStatus();
}

Status Checkpoint::ReadManifest(std::string text, const std::string& where) {
  has_manifest_ = true;
  manifest_text_ = std::move(text);
  auto manifest = ParseManifest(manifest_text_);
  if (!manifest.ok()) return Annotate(manifest.status(), where);
  manifest_ = *std::move(manifest);
  return Annotate(CheckComplete(manifest_), where);
}

Status Checkpoint::OpenFolder() {
  const std::string manifest_path = absl::StrCat(path_, "/", kManifestName);
  ASSIGN_OR_RETURN(std::string text, ReadFile(manifest_path, kMaxManifest));
  RETURN_IF_ERROR(ReadManifest(std::move(text), manifest_path));
  RETURN_IF_ERROR(OpenFiles());
  return CheckStored();
}

Status Checkpoint::OpenFiles() {
  RankFiles rank_files(path_, manifest_, manifest_text_);
  for (size_t i = 0; i < manifest_.files.size(); ++i) {
    const DataFile& file = manifest_.files[i];
    files_.emplace_back();
    auto input = rank_files.Open(i);
    if (absl::IsNotFound(input.status()) && !file.folder.empty()) continue;
    RETURN_IF_ERROR(input.status());
    if ((*input)->size() != file.digest.size) {
      return absl::DataLossError(
          absl::StrCat((*input)->path(), " has ", (*input)->size(), " bytes, the manifest says ", file.digest.size));
    }
    files_.back().file = *std::move(input);
    SafetensorsHeader header;
    RETURN_IF_ERROR(OpenHeader(i, &header));
  }
  return absl::OkStatus();
}

Status Checkpoint::CheckStored() const {
  for (const TensorRecord& tensor : manifest_.tensors) {
    for (const Slice& slice : tensor.slices) {
      const OpenFile& file = files_[slice.file];
      if (file.file == nullptr) continue;
      const auto stored = file.tensors.find(tensor.name);
      TensorType expected{tensor.type.dtype, slice.end};
      for (size_t d = 0; d < slice.end.size(); ++d) expected.shape[d] -= slice.begin[d];
      if (stored == file.tensors.end() || stored->second.type != expected) {
        return absl::DataLossError(absl::StrCat(file.file->path(), " does not hold tensor '", tensor.name, "' as ",
                                                ToString(expected), ", as the manifest says"));
      }
    }
  }
  return absl::OkStatus();
}

void Checkpoint::MakeIndex() {
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) index_[manifest_.tensors[i].name] = i;
}

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenParts(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = path;
  RETURN_IF_ERROR(IsFolder(path) ? checkpoint->OpenFolder() : checkpoint->OpenPlainFile());
  checkpoint->MakeIndex();
  return checkpoint;
}

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto checkpoint, OpenParts(path));
  const std::string missing = checkpoint->MissingText();
  if (!missing.empty()) return absl::NotFoundError(missing);
  return checkpoint;
}

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::WithoutFiles(const std::string& path, const std::string& manifest) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = path;
  RETURN_IF_ERROR(checkpoint->ReadManifest(manifest, path));
  checkpoint->files_.resize(checkpoint->manifest_.files.size());
  checkpoint->MakeIndex();
  return checkpoint;
}

bool Checkpoint::has_all() const {
  return std::all_of(files_.begin(), files_.end(), [](const OpenFile& f) { return f.file != nullptr; });
}

std::string Checkpoint::MissingText() const {
  size_t first = files_.size(), count = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].file != nullptr) continue;
    first = std::min(first, i);
    ++count;
  }
  if (count == 0) return "";
  const DataFile& file = manifest_.files[first];
  return absl::StrCat(path_, " has the parts of some ranks only: ", file.name, " was saved in ", file.folder,
                      " on host ", file.host, count == 1 ? "" : absl::StrCat(", and ", count - 1, " more are missing"),
                      "; copy what is missing into ", path_);
}

const TensorRecord* Checkpoint::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &manifest_.tensors[it->second];
}

Status Checkpoint::ReadSlice(absl::string_view name, absl::Span<const int64_t> begin, absl::Span<const int64_t> end,
                             void* out) {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    std::vector<std::string> names;
    for (const TensorRecord& tensor : manifest_.tensors) names.push_back(tensor.name);
    return absl::NotFoundError(
        absl::StrCat(path_, " holds no tensor '", name, "'", DidYouMean({name.data(), name.size()}, names)));
  }
  const TensorRecord& tensor = manifest_.tensors[it->second];
  bool inside = begin.size() == tensor.type.shape.size() && end.size() == begin.size();
  for (size_t d = 0; inside && d < begin.size(); ++d) {
    inside = 0 <= begin[d] && begin[d] <= end[d] && end[d] <= tensor.type.shape[d];
  }
  if (!inside) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", ToString(begin), " to ", ToString(end), " of '", name,
                                                   "' is not within ", ToString(tensor.type)));
  }
  const int64_t element = SizeOf(tensor.type.dtype);
  for (size_t s = 0; s < tensor.slices.size(); ++s) {
    const Slice& slice = tensor.slices[s];
    const bool here = files_[slice.file].file != nullptr;
    const auto provided = provided_.find({it->second, s});
    const int64_t base = here ? files_[slice.file].tensors.at(tensor.name).begin : 0;
    const Status status = ForEachRun(slice, begin, end, [&](int64_t from, int64_t to, int64_t n) -> Status {
      char* target = static_cast<char*>(out) + to * element;
      if (here) {
        RETURN_IF_ERROR(ReadBytes(slice.file, base + from * element, n * element, target));
      } else if (provided != provided_.end()) {
        std::memcpy(target, provided->second.data() + from * element, static_cast<size_t>(n * element));
      } else {
        return absl::NotFoundError(absl::StrCat("tensor '", name, "': ", MissingText()));
      }
      // Any other byte in a C++ bool is undefined behaviour.
      if (tensor.type.dtype == DType::kBool && std::any_of(target, target + n, [](char c) { return c & ~1; })) {
        return absl::DataLossError(absl::StrCat("tensor '", name, "' of ", path_, " is bool and holds bytes over 1"));
      }
      return absl::OkStatus();
    });
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

Status Checkpoint::Read(absl::string_view name, void* out) {
  const auto it = index_.find(name);
  if (it == index_.end()) return ReadSlice(name, {}, {}, out);
  const Shape& shape = manifest_.tensors[it->second].type.shape;
  return ReadSlice(name, Shape(shape.size(), 0), shape, out);
}

Status VerifyFile(const Checkpoint& checkpoint, size_t i, VerifyDepth depth) {
  return VerifyBytes(checkpoint.file_path(i), checkpoint.manifest().files[i].digest, depth);
}

Status VerifyCheckpoint(const std::string& path, VerifyDepth depth) {
  ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path));
  for (size_t i = 0; checkpoint->has_manifest() && i < checkpoint->manifest().files.size(); ++i) {
    RETURN_IF_ERROR(VerifyFile(*checkpoint, i, depth));
  }
  return absl::OkStatus();
}

Status VerifyFolder(const std::string& path, VerifyDepth depth) {
  ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::OpenParts(path));
  const std::string folder = fs::absolute(path).lexically_normal().string();
  for (size_t i = 0; checkpoint->has_manifest() && i < checkpoint->manifest().files.size(); ++i) {
    const DataFile& file = checkpoint->manifest().files[i];
    const std::string name = absl::StrCat(path, "/", file.name);
    if (checkpoint->has(i) && checkpoint->file_path(i) == name) {
      RETURN_IF_ERROR(VerifyFile(*checkpoint, i, depth));
    } else if (file.folder == folder) {
      return absl::DataLossError(absl::StrCat(name, " is not there, though it was written there"));
    }
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Checkpoint>> LoadCheckpoint(const std::string& path) {
  if (NamesOneCheckpoint(path)) return Checkpoint::Open(path);
  ASSIGN_OR_RETURN(const std::vector<CheckpointName> names, FindCheckpoints(path));
  std::vector<std::string> passed_over;
  for (const CheckpointName& name : names) {
    Status status = VerifyCheckpoint(name.path, VerifyDepth::kChunks);
    if (status.ok()) {
      auto checkpoint = Checkpoint::Open(name.path);
      if (checkpoint.ok()) {
        std::vector<std::string> notes;
        if (!passed_over.empty()) notes.push_back(absl::StrCat("passed over ", absl::StrJoin(passed_over, "; ")));
        const std::string ignored = IgnoredBeside(name, names);
        if (!ignored.empty()) notes.push_back(ignored);
        (*checkpoint)->set_note(absl::StrJoin(notes, "; "));
        return checkpoint;
      }
      status = checkpoint.status();
    }
    passed_over.push_back(absl::StrCat(name.path, " (", status.message(), ")"));
  }
  return NothingToLoad(path, passed_over);
}

StatusOr<RunState> RunOf(const std::string& path) {
  std::string newest = path;
  if (!NamesOneCheckpoint(path)) {
    ASSIGN_OR_RETURN(const std::vector<CheckpointName> names, FindCheckpoints(path));
    const auto found = absl::c_find_if(names, [](const CheckpointName& name) { return name.damage.ok(); });
    if (found == names.end()) return NothingToLoad(path, {});
    newest = found->path;
  }
  if (!IsFolder(newest)) return RunState();  // a file of tensors
  ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat(newest, "/", kManifestName), kMaxManifest));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text));
  return std::move(manifest.run);
}

std::string SlicesNote(const std::string& path) {
  const fs::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (IsFolder(path) || !IsFile(absl::StrCat(folder, "/", kManifestName))) return "";
  const auto checkpoint = Checkpoint::OpenParts(folder);
  if (!checkpoint.ok()) return "";
  const Manifest& manifest = (*checkpoint)->manifest();
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const Slice& slice : tensor.slices) {
      const bool whole = slice.end == tensor.type.shape && slice.begin == Shape(slice.begin.size(), 0);
      if (whole || manifest.files[slice.file].name != file.filename().string()) continue;
      return absl::StrCat(path, " has slices, such as ", ToString(slice.begin), " to ", ToString(slice.end), " of '",
                          tensor.name, "' ", ToString(tensor.type), ": give the folder, ", folder,
                          ", which has all of them (mslua ckpt merge makes one file)");
    }
  }
  return "";
}

Status NothingToLoad(const std::string& path, const std::vector<std::string>& passed_over) {
  if (passed_over.empty()) {
    const std::string best = absl::StrCat(path, "/best");
    const auto others = FindCheckpoints(best);
    const bool has_best = others.ok() && !others->empty();
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint in ", path, " (folders named <prefix>-<epoch>_<step>.ckpt); ",
                     has_best ? absl::StrCat(best, " has one, of the best evaluation: give this (--resume=best)")
                              : std::string("name the folder or a .safetensors file to load just that")));
  }
  return absl::DataLossError(absl::StrCat("no checkpoint in ", path, " verifies: ", absl::StrJoin(passed_over, "; ")));
}

Status MergeCheckpoint(const std::string& path, const std::string& safetensors_path) {
  ASSIGN_OR_RETURN(const auto checkpoint, LoadCheckpoint(path));
  RETURN_IF_ERROR(CheckApart(checkpoint->path(), safetensors_path));
  return WriteWhole(*checkpoint, safetensors_path).status();
}

namespace {

// Where part `rank` of `ranks` begins and ends; false: it has none.
bool PartOf(const Shape& shape, int64_t rank, int64_t ranks, Shape* begin, Shape* end) {
  *begin = Shape(shape.size(), 0);
  *end = shape;
  const auto split = std::find_if(shape.begin(), shape.end(), [&](int64_t n) { return n > 0 && n % ranks == 0; });
  if (split == shape.end()) return rank == 0;
  const size_t d = static_cast<size_t>(split - shape.begin());
  (*begin)[d] = *split / ranks * rank;
  (*end)[d] = *split / ranks * (rank + 1);
  return true;
}

// The files in a checkpoint's folder beside the manifest and the ranks' tensors.
StatusOr<Companions> CompanionsIn(const std::string& folder) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  auto files = std::make_shared<std::vector<std::pair<std::string, std::string>>>();
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsFolder(it->path().string()) || (IsNameInCheckpoint(name, nullptr) && !IsCompanionName(name))) continue;
    ASSIGN_OR_RETURN(std::string content, ReadFile(it->path().string(), kMostBytes));
    files->emplace_back(name, std::move(content));
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  return Companions(std::move(files));
}

}  // namespace

Status ReshardCheckpoint(const std::string& from, const std::string& to, int64_t ranks) {
  if (ranks < 1) return absl::InvalidArgumentError(absl::StrCat("expected a number of ranks from 1, got ", ranks));
  ASSIGN_OR_RETURN(const auto source, LoadCheckpoint(from));
  if (!source->has_manifest())
    return absl::InvalidArgumentError(
        absl::StrCat(from, " is a file of tensors without a run's state: any number of ranks loads it as it is"));
  RETURN_IF_ERROR(CheckApart(source->path(), to));
  ASSIGN_OR_RETURN(Companions companions, CompanionsIn(source->path()));
  ASSIGN_OR_RETURN(const auto target, CheckpointWriter::Create(to, std::move(companions)));
  std::vector<Manifest> parts;
  for (int64_t r = 0; r < ranks; ++r) {
    Manifest part;
    const std::string name = FileOfRank(r);
    std::vector<StoredTensor> stored;
    for (const TensorRecord& t : source->manifest().tensors) {
      Shape begin, end;
      if (!PartOf(t.type.shape, r, ranks, &begin, &end)) continue;
      TensorType own{t.type.dtype, end};
      for (size_t d = 0; d < begin.size(); ++d) own.shape[d] -= begin[d];
      stored.push_back({t.name, own, 0});
      part.tensors.push_back({t.name, t.type, {{0, begin, end}}});
    }
    ASSIGN_OR_RETURN(const auto writer,
                     SafetensorsWriter::Create(absl::StrCat(target->folder(), "/", name), std::move(stored), {}));
    std::vector<char> bytes;
    for (const StoredTensor& t : writer->tensors()) {
      const TensorRecord& record = *source->Find(t.name);
      Shape begin, end;
      PartOf(record.type.shape, r, ranks, &begin, &end);
      bytes.resize(static_cast<size_t>(t.type.bytes()));
      RETURN_IF_ERROR(source->ReadSlice(t.name, begin, end, bytes.data()));
      RETURN_IF_ERROR(writer->Write(bytes.data(), t.type.bytes()));
    }
    ASSIGN_OR_RETURN(FileDigest digest, writer->Commit());
    part.files.push_back({name, std::move(digest), "", ""});
    parts.push_back(std::move(part));
  }
  RunState run = source->manifest().run;
  run.world = ranks;
  return target->Commit(run, parts);
}

}  // namespace mslua::checkpoint
