// Checkpoints: a folder `<directory>/<prefix>-<epoch>_<step>.ckpt/` of safetensors files and MANIFEST.json. The folder
// is renamed into place when all is on disk: one without a verifying manifest does not exist for any reader.
//
//   SaveCheckpoint("ckpt/net-1_100.ckpt", run, tensors);             // one rank
//   auto c = LoadCheckpoint("ckpt");                                  // the newest that is whole
//   (*c)->Read("fc.weight", buffer);
//   (*c)->ReadSlice("fc.weight", {0, 4}, {8, 8}, buffer);             // what a rank of a sharded run needs
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "core/base/atomic_file.h"
#include "core/base/input_file.h"
#include "core/base/part.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"

namespace mslua::checkpoint {

// ---- names

struct CheckpointName {
  std::string path;
  std::string prefix;
  int64_t epoch = 0;
  int64_t step = 0;  // within the epoch, or since the start: the caller's choice
  Lineage lineage;
  Status damage;  // why the manifest cannot be read; then there is no lineage
};
// "<directory>/<prefix>-<epoch>_<step>.ckpt"
std::string CheckpointPath(const std::string& directory, const std::string& prefix, int64_t epoch, int64_t step);
// The epoch in the name, from 1, after `epochs` whole ones and `steps` of the next: at an epoch's end that epoch.
int64_t EpochInName(int64_t epochs, int64_t steps);
// The checkpoint folders of `directory` that have a manifest: those whose manifest is damaged, then the newest and its
// lineage, newest first, then those of other lineages, the latest saved first (Lineage::generation). What manifests
// without a lineage describe comes last: by (epoch, step) within a prefix, the prefixes by their latest writing. Of
// each the manifest is read, nothing else. A missing directory is NOT_FOUND.
StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory);
// In the folder of a run whose checkpoints are elsewhere: where they are, a path a line. The first that is a directory
// counts. A path is absolute or relative to the run folder.
inline constexpr char kCheckpointDirectoryFile[] = "ckpt_directory";
// The directory that this file names, which may be missing; without the file `ckpt` in the run folder.
std::string CheckpointsOfRun(const std::string& run);
// The same as ListCheckpoints, of a directory of checkpoints or of a run folder (CheckpointsOfRun).
StatusOr<std::vector<CheckpointName>> FindCheckpoints(const std::string& path);
// What to tell a user who loads `chosen`: which of `names` have gone further and do not lead to it. Empty: none.
std::string IgnoredBeside(const CheckpointName& chosen, const std::vector<CheckpointName>& names);
// Whether `path` names one checkpoint (a checkpoint folder or a file), not a directory of them.
bool NamesOneCheckpoint(const std::string& path);

// ---- saving

// A part of a tensor in a rank's memory: `data` is dense and has the part's elements.
struct ShardData {
  std::string name;
  DType dtype = DType::kF32;
  const void* data = nullptr;
  Part part;
};

// Files that a checkpoint's folder has beside its own, such as a tokenizer's: names and contents. Null: none.
using Companions = std::shared_ptr<const std::vector<std::pair<std::string, std::string>>>;
// Whether this is a usual name of such a file (core/text/formats). A user may give a tokenizer's file another one.
bool IsCompanionName(absl::string_view name);

// Saves whole tensors from one rank; the folder above `path` must exist. On an error (a full disk: RESOURCE_EXHAUSTED)
// a checkpoint that was at `path` is as it was, and nothing else is left. A checkpoint, with `companions` or others of
// a usual name, or an empty folder at `path` is replaced; anything else there is INVALID_ARGUMENT and stays, as with
// CheckpointWriter::Create.
Status SaveCheckpoint(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
                      const Companions& companions = nullptr);

// Saving from many ranks into one directory: one rank makes the writer and tells folder() to all, each calls WritePart
// there, and that rank commits the parts (as text they travel by SerializeManifest and ParseManifest). Ranks that save
// into several directories make one writer for each; JoinParts makes their manifest, which all of them commit.
class CheckpointWriter {
 public:
  static StatusOr<std::unique_ptr<CheckpointWriter>> Create(const std::string& path, Companions companions = nullptr);
  const std::string& folder() const { return folder_->path(); }
  // Writes the manifest and renames the folder to its place. The slices of each tensor must cover it.
  Status Commit(const RunState& run, const std::vector<Manifest>& parts);
  // The same, with all tensors whole in one file, rank_0.safetensors.
  Status CommitWhole(const RunState& run, const std::vector<Manifest>& parts);
  // The same as Commit, with the text of a manifest.
  Status CommitManifest(const std::string& manifest);

  std::string path_;
  Companions companions_;
  std::unique_ptr<AtomicFolder> folder_;
};
// The text of the manifest of `parts`, whose slices must cover each tensor.
StatusOr<std::string> JoinParts(const RunState& run, const std::vector<Manifest>& parts);
// Writes `shards` as `<folder>/rank_<rank>.safetensors` and returns the part of the manifest that describes them. Names
// must be distinct. Of replicas one rank should write one.
StatusOr<Manifest> WritePart(const std::string& folder, int rank, const std::vector<ShardData>& shards);

// ---- loading

// An open checkpoint, or any safetensors file as one. Not thread-safe; open one a thread.
//
// Of a checkpoint that ranks saved into directories of their own, each directory has the manifest and the files of its
// ranks. The other files are looked for in the checkpoint's folder, then where the manifest says that they were
// written: by the path from this folder, then by the absolute path, where a folder with the same manifest must be.
class Checkpoint {
 public:
  // `path`: a checkpoint folder or a safetensors file. Manifest, sizes and headers are checked; of the data each
  // chunk is checked against its CRC32C when it is read. NOT_FOUND says which files of other ranks cannot be read here.
  static StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);
  // The same, but the files of other ranks may be missing: has() says which are here, and ReadSlice needs what is
  // missing from Provide.
  static StatusOr<std::unique_ptr<Checkpoint>> OpenParts(const std::string& path);
  // A checkpoint of which this rank can read no file; `manifest` is another rank's manifest_text(), `path` its path.
  static StatusOr<std::unique_ptr<Checkpoint>> WithoutFiles(const std::string& path, const std::string& manifest);

  const std::string& path() const { return path_; }
  // As it is on disk; empty for a plain safetensors file.
  const std::string& manifest_text() const { return manifest_text_; }
  // Whether file `i` of the manifest can be read here, and where.
  bool has(size_t i) const { return files_[i].file != nullptr; }
  bool has_all() const;
  const std::string& file_path(size_t i) const { return files_[i].file->path(); }
  // Where the files are that cannot be read here, and what to do. Empty: all can.
  std::string MissingText() const;
  // The bytes of the whole slice `slice` of tensor `tensor` (indices in the manifest), whose file is not here.
  void Provide(size_t tensor, size_t slice, std::string bytes) { provided_[{tensor, slice}] = {std::move(bytes), {}}; }
  // The same where they lie in memory that outlives this object.
  void ProvideAt(size_t tensor, size_t slice, absl::string_view bytes) { provided_[{tensor, slice}] = {"", bytes}; }
  // For a plain safetensors file: no digests, and a RunState that is all defaults.
  const Manifest& manifest() const { return manifest_; }
  bool has_manifest() const { return has_manifest_; }
  const TensorRecord* Find(absl::string_view name) const;  // null: no tensor of that name
  // What LoadCheckpoint passed over to come here, and why, and which checkpoints of further steps it ignored since they
  // belong to another lineage; empty for nothing.
  const std::string& note() const { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }

  // The part [begin, end) of tensor `name`, dense and row-major, into `out`, from whatever files hold it.
  // NOT_FOUND with the nearest name; DATA_LOSS names file and chunk.
  Status ReadSlice(absl::string_view name, absl::Span<const int64_t> begin, absl::Span<const int64_t> end, void* out);
  // The whole tensor.
  Status Read(absl::string_view name, void* out);

 private:
  struct OpenFile {
    std::unique_ptr<InputFile> file;  // null: it is not here
    absl::flat_hash_map<std::string, StoredTensor> tensors;
  };
  Checkpoint() = default;
  Status OpenFolder();
  Status OpenPlainFile();
  Status ReadManifest(std::string text, const std::string& where);
  Status OpenFiles();
  Status CheckStored() const;
  void MakeIndex();
  Status OpenHeader(size_t file, SafetensorsHeader* header);
  Status ReadBytes(size_t file, int64_t offset, int64_t size, char* out);
  Status LoadChunk(size_t file, int64_t chunk);

  std::string path_;
  std::string note_;
  bool has_manifest_ = false;
  Manifest manifest_;
  std::string manifest_text_;
  struct Provided {
    std::string own;
    absl::string_view borrowed;  // instead
    const char* data() const { return borrowed.empty() ? own.data() : borrowed.data(); }
  };
  absl::flat_hash_map<std::pair<size_t, size_t>, Provided> provided_;  // by tensor and slice
  absl::flat_hash_map<std::string, size_t> index_;                     // of manifest_.tensors
  std::vector<OpenFile> files_;
  // The chunk read last, for rows shorter than a chunk.
  std::vector<char> chunk_;
  size_t chunk_file_ = 0;
  int64_t chunk_number_ = -1;
};

// Opens `path`: a checkpoint folder; a directory of them, of which the newest whose every chunk is good (the note says
// which were passed over and why); a run folder, by its directory of them; or a safetensors file.
StatusOr<std::unique_ptr<Checkpoint>> LoadCheckpoint(const std::string& path);
// The run that saved the checkpoint which LoadCheckpoint opens, as far as manifests say: no file of tensors is read, so
// that a damaged one is not passed over. Of a file of tensors a run without a step.
StatusOr<RunState> RunOf(const std::string& path);

// What to tell a user who loads one file of a checkpoint folder alone, where that file has slices of some tensors only:
// that it is one, and which folder to give. Empty: `path` is no such file.
std::string SlicesNote(const std::string& path);

// The error where a directory has no checkpoint to load; `passed_over` says of each that it has why not.
Status NothingToLoad(const std::string& path, const std::vector<std::string>& passed_over);

enum class VerifyDepth {
  kChunks,  // sizes, manifest, headers and CRC32C: any damage by accident; as fast as the disk
  kOnDisk,  // the same of what the disk has, not of the system's copies in memory
  kFull,    // kChunks and the BLAKE2b tree digest of every file
};
// Reads a checkpoint folder whole; a safetensors file has nothing but its structure to check.
Status VerifyCheckpoint(const std::string& path, VerifyDepth depth = VerifyDepth::kFull);
// The same of the files in that folder; those of ranks with directories of their own may not be there yet.
Status VerifyFolder(const std::string& path, VerifyDepth depth);
// The same of file `i` of an open checkpoint.
Status VerifyFile(const Checkpoint& checkpoint, size_t i, VerifyDepth depth);

// Writes the tensors of a checkpoint, sliced in whatever way, as one complete safetensors file, a row of at most
// 64 MiB at a time in memory. INVALID_ARGUMENT where that file is the checkpoint's own, or is in its folder.
Status MergeCheckpoint(const std::string& path, const std::string& safetensors_path);

// Writes a checkpoint's tensors and state as a checkpoint folder at `to` in files for `ranks` ranks: each tensor is
// sharded along its first dimension that divides, the others are rank 0's. One tensor at a time is in memory. Other
// files in the folder, such as a tokenizer's, are copied.
// INVALID_ARGUMENT where `to` is the checkpoint that is read, contains it or is inside it.
Status ReshardCheckpoint(const std::string& from, const std::string& to, int64_t ranks);

}  // namespace mslua::checkpoint
