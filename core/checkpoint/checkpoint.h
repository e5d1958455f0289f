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
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "core/base/atomic_file.h"
#include "core/base/input_file.h"
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
// The checkpoint folders of `directory` that have a manifest: those whose manifest is damaged, then the newest and its
// lineage, newest first, then those of other lineages, the latest saved first (Lineage::generation). What manifests
// without a lineage describe comes last: by (epoch, step) within a prefix, the prefixes by their latest writing. Of
// each the manifest is read, nothing else. A missing directory is NOT_FOUND.
StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory);
// The same of a directory of checkpoints or of a run folder, which has such a directory.
StatusOr<std::vector<CheckpointName>> FindCheckpoints(const std::string& path);

// ---- saving

// A part of a tensor in a rank's memory: `data` is dense with shape `type.shape` and lies at `begin` in a tensor of
// `global_shape`.
struct ShardData {
  std::string name;
  TensorType type;
  const void* data = nullptr;
  Shape global_shape;
  Shape begin;
};

// Saves whole tensors from one rank; the folder above `path` must exist. On an error (a full disk: RESOURCE_EXHAUSTED)
// a checkpoint that was at `path` is as it was, and nothing else is left.
Status SaveCheckpoint(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors);

// Saving from many ranks that see one file system: one rank makes the writer and tells folder() to all, each calls
// WritePart there, and that rank commits the parts (as text they travel by SerializeManifest and ParseManifest).
class CheckpointWriter {
 public:
  static StatusOr<std::unique_ptr<CheckpointWriter>> Create(const std::string& path);
  const std::string& folder() const { return folder_->path(); }
  // Writes the manifest and renames the folder to its place. The slices of each tensor must cover it.
  Status Commit(const RunState& run, const std::vector<Manifest>& parts);
  // The same, with all tensors whole in one file, rank_0.safetensors.
  Status CommitWhole(const RunState& run, const std::vector<Manifest>& parts);

 private:
  // Writes the manifest beside the parts.
  Status WriteManifest(const RunState& run, const std::vector<Manifest>& parts);

  std::string path_;
  std::unique_ptr<AtomicFolder> folder_;
};
// Writes `shards` as `<folder>/rank_<rank>.safetensors` and returns the part of the manifest that describes them. Names
// must be distinct. Of replicas one rank should write one.
StatusOr<Manifest> WritePart(const std::string& folder, int rank, const std::vector<ShardData>& shards);

// ---- loading

// An open checkpoint, or any safetensors file as one. Not thread-safe; open one a thread.
class Checkpoint {
 public:
  // `path`: a checkpoint folder or a safetensors file. Manifest, sizes and headers are checked; of the data each
  // chunk is checked against its CRC32C when it is read.
  static StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // For a plain safetensors file: no digests, and a RunState that is all defaults.
  const Manifest& manifest() const { return manifest_; }
  bool has_manifest() const { return has_manifest_; }
  const TensorRecord* Find(absl::string_view name) const;  // null: no tensor of that name
  // What LoadCheckpoint passed over to come here, and why, and which checkpoints of further steps it ignored since they
  // belong to another lineage; empty for nothing.
  const std::string& note() const { return note_; }

  // The part [begin, end) of tensor `name`, dense and row-major, into `out`, from whatever files hold it.
  // NOT_FOUND with the nearest name; DATA_LOSS names file and chunk.
  Status ReadSlice(absl::string_view name, absl::Span<const int64_t> begin, absl::Span<const int64_t> end, void* out);
  // The whole tensor.
  Status Read(absl::string_view name, void* out);

 private:
  friend StatusOr<std::unique_ptr<Checkpoint>> LoadCheckpoint(const std::string& path);
  struct OpenFile {
    std::unique_ptr<InputFile> file;
    absl::flat_hash_map<std::string, StoredTensor> tensors;
  };
  Checkpoint() = default;
  Status OpenFolder(const std::string& path);
  Status OpenPlainFile(const std::string& path);
  Status OpenHeader(size_t file, SafetensorsHeader* header);
  Status ReadBytes(size_t file, int64_t offset, int64_t size, char* out);
  Status LoadChunk(size_t file, int64_t chunk);

  std::string path_;
  std::string note_;
  bool has_manifest_ = false;
  Manifest manifest_;
  absl::flat_hash_map<std::string, size_t> index_;  // of manifest_.tensors
  std::vector<OpenFile> files_;
  // The chunk read last, for rows shorter than a chunk.
  std::vector<char> chunk_;
  size_t chunk_file_ = 0;
  int64_t chunk_number_ = -1;
};

// Opens `path`: a checkpoint folder; a directory of them, of which the newest whose every chunk is good (the note says
// which were passed over and why); a run folder, by its directory of them; or a safetensors file.
StatusOr<std::unique_ptr<Checkpoint>> LoadCheckpoint(const std::string& path);

enum class VerifyDepth {
  kChunks,  // sizes, manifest, headers and CRC32C: any damage by accident; as fast as the disk
  kOnDisk,  // the same of what the disk has, not of the system's copies in memory
  kFull,    // kChunks and the BLAKE2b tree digest of every file
};
// Reads a checkpoint folder whole; a safetensors file has nothing but its structure to check.
Status VerifyCheckpoint(const std::string& path, VerifyDepth depth = VerifyDepth::kFull);

// Writes the tensors of a checkpoint, sliced in whatever way, as one complete safetensors file, a row of at most
// 64 MiB at a time in memory.
Status MergeCheckpoint(const std::string& path, const std::string& safetensors_path);

// Writes a checkpoint's tensors and state as a checkpoint folder at `to` in files for `ranks` ranks: each tensor is
// sharded along its first dimension that divides, the others are rank 0's. One tensor at a time is in memory.
Status ReshardCheckpoint(const std::string& from, const std::string& to, int64_t ranks);

}  // namespace mslua::checkpoint
