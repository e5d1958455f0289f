// MANIFEST.json: what a checkpoint holds and how to tell that it is whole. Tensors are described by their global
// shape and by the slices that the files hold, as global intervals, so that what N ranks saved in any layout loads
// on any number of ranks in any other. The last member is the BLAKE2b of all text before it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/checkpoint/lineage.h"
#include "core/checkpoint/safetensors.h"

namespace mslua::checkpoint {

// Version 2 has no "lineage"; it is read too.
inline constexpr int64_t kManifestVersion = 3, kOldestManifestVersion = 2;
inline constexpr char kManifestName[] = "MANIFEST.json";

// Where a run stood: enough to continue as if it had never stopped. All numbers are from 0 to 2^53.
struct RunState {
  Lineage lineage;
  std::string job;
  int64_t epoch = 0;
  int64_t step = 0;   // since the run began
  int64_t world = 1;  // ranks
  int64_t rank = 0;   // whose values stand under the plain names, where ranks have values of their own
  int64_t seed = 0;
  std::string rng;         // opaque
  int64_t data_epoch = 0;  // the next batch to read
  int64_t data_batch = 0;
  int64_t schedule_step = 0;  // of the optimizer's schedules (less than `step` where steps were skipped)
  std::string recipe_hash;
  std::string graph_hash;
  std::string plan;                        // the plan's recorded choices (core/passes/decisions.h), opaque
  std::map<std::string, double> counters;  // of the training's hooks, by name; finite
  // What attached clients changed during the run, oldest first: JSON objects, as in events.jsonl.
  std::vector<std::string> interventions;
};

struct DataFile {
  std::string name;  // within its folder
  FileDigest digest;
  // Where the file was written, when ranks saved one checkpoint into directories of their own: an absolute path that
  // ends with ".ckpt", on the host `host`. Both are empty when all files are in the manifest's folder.
  std::string folder, host;
};

// The part [begin, end) of a tensor, per dimension; it is stored under the tensor's name.
struct Slice {
  int64_t file = 0;  // index in Manifest::files
  Shape begin, end;
};

struct TensorRecord {
  std::string name;
  TensorType type;  // of the whole tensor
  std::vector<Slice> slices;
};

struct Manifest {
  RunState run;
  std::vector<DataFile> files;
  std::vector<TensorRecord> tensors;
};

// "rank_<rank>.safetensors"
std::string FileOfRank(int64_t rank);
// The part of a manifest for rank 0's file when that holds the whole of each of `tensors`; their slices are not looked
// at.
Manifest PartOfWhole(const std::vector<TensorRecord>& tensors, FileDigest digest);

// The text of manifest.json with its digest. A name that is not UTF-8 is an error.
StatusOr<std::string> SerializeManifest(const Manifest& manifest);
// Pure. Checks the digest, every number, and that names are distinct and slices lie within their tensors; DATA_LOSS
// says what is wrong.
StatusOr<Manifest> ParseManifest(absl::string_view text);
// The lineage alone, from a manifest whose digest is right: of 100,000 tensors only the digest is computed.
StatusOr<Lineage> ParseLineage(absl::string_view text);

// Adds the files and slices of `part` (what one rank wrote) to `whole`. A slice that is there already (a replica) is
// left out. Tensors of one name must agree in dtype and shape.
Status AppendPart(const Manifest& part, Manifest* whole);
// OK when the slices of each tensor cover it, without overlap.
Status CheckComplete(const Manifest& manifest);

}  // namespace mslua::checkpoint
