#include "core/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/hash.h"
#include "core/checkpoint/strict_json.h"

namespace mslua::checkpoint {
namespace {

constexpr char kFormat[] = "mslua checkpoint";
constexpr absl::string_view kDigestMember = ",\n\"blake2b\":\"";
constexpr absl::string_view kRunMember = ",\n\"run\":";  // a newline is in no string
constexpr absl::string_view kEnd = "\"}\n";
constexpr size_t kDigestDigits = 128, kRunDigits = 32;

Json ToJson(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

bool IsHex(absl::string_view s, size_t digits) {
  return s.size() == digits && s.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// A plain name, so that no manifest leads out of its folder.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

Json ToJson(const Lineage& lineage) {
  Json forks = Json::array();
  for (const Fork& f : lineage.forks) {
    forks.push_back({{"run", f.run}, {"generation", f.generation}, {"step", f.step}});
  }
  return {{"run", lineage.run},
          {"generation", lineage.generation},
          {"parent", lineage.parent},
          {"forks", std::move(forks)}};
}

Status GetRun(const Json& json, std::string* run) {
  RETURN_IF_ERROR(GetString(json, "run", run));
  if (run->empty() || IsHex(*run, kRunDigits)) return absl::OkStatus();
  return absl::DataLossError("'run' of a lineage is not a number of 32 hexadecimal digits");
}

Status ReadLineage(const Json& json, Lineage* lineage) {
  if (!json.is_object()) return absl::DataLossError("'lineage' is not an object");
  RETURN_IF_ERROR(GetRun(json, &lineage->run));
  RETURN_IF_ERROR(GetCount(json, "generation", &lineage->generation));
  RETURN_IF_ERROR(GetString(json, "parent", &lineage->parent));
  ASSIGN_OR_RETURN(const Json* forks, GetArray(json, "forks"));
  if (forks->size() > kMaxForks) return absl::DataLossError(absl::StrCat("a lineage of ", forks->size(), " forks"));
  for (const Json& entry : *forks) {
    if (!entry.is_object()) return absl::DataLossError("a fork is not an object");
    Fork& fork = lineage->forks.emplace_back();
    RETURN_IF_ERROR(GetRun(entry, &fork.run));
    RETURN_IF_ERROR(GetCount(entry, "generation", &fork.generation));
    RETURN_IF_ERROR(GetCount(entry, "step", &fork.step));
  }
  return absl::OkStatus();
}

Json ToJson(const RunState& run) {
  Json interventions = Json::array();
  for (const std::string& i : run.interventions) {
    auto json = ParseJson(i);
    if (json.ok() && json->is_object()) interventions.push_back(*std::move(json));
  }
  return {{"job", run.job},
          {"epoch", run.epoch},
          {"step", run.step},
          {"world", run.world},
          {"rank", run.rank},
          {"seed", run.seed},
          {"rng", run.rng},
          {"data_epoch", run.data_epoch},
          {"data_batch", run.data_batch},
          {"schedule_step", run.schedule_step},
          {"recipe_hash", run.recipe_hash},
          {"graph_hash", run.graph_hash},
          {"plan", run.plan},
          {"counters", run.counters},
          {"interventions", interventions}};
}

Status ParseRun(const Json& json, RunState* run) {
  RETURN_IF_ERROR(GetString(json, "job", &run->job));
  RETURN_IF_ERROR(GetCount(json, "epoch", &run->epoch));
  RETURN_IF_ERROR(GetCount(json, "step", &run->step));
  RETURN_IF_ERROR(GetCount(json, "world", &run->world));
  RETURN_IF_ERROR(GetInt(json, "seed", &run->seed));
  RETURN_IF_ERROR(GetString(json, "rng", &run->rng));
  RETURN_IF_ERROR(GetCount(json, "data_epoch", &run->data_epoch));
  RETURN_IF_ERROR(GetCount(json, "data_batch", &run->data_batch));
  RETURN_IF_ERROR(GetCount(json, "schedule_step", &run->schedule_step));
  RETURN_IF_ERROR(GetString(json, "recipe_hash", &run->recipe_hash));
  RETURN_IF_ERROR(GetString(json, "graph_hash", &run->graph_hash));
  RETURN_IF_ERROR(GetString(json, "plan", &run->plan));
  ASSIGN_OR_RETURN(const Json* counters, GetObject(json, "counters"));
  for (const auto& [name, value] : counters->items()) {
    if (!value.is_number()) return absl::DataLossError(absl::StrCat("counter '", name, "' is not a number"));
    run->counters[name] = value.get<double>();
  }
  // Older checkpoints have neither.
  if (json.contains("rank")) RETURN_IF_ERROR(GetCount(json, "rank", &run->rank));
  const auto interventions = json.find("interventions");
  if (interventions == json.end()) return absl::OkStatus();
  if (!interventions->is_array()) return absl::DataLossError("'interventions' is no list");
  for (const Json& i : *interventions)
    run->interventions.push_back(i.dump(-1, ' ', false, Json::error_handler_t::replace));
  return absl::OkStatus();
}

// The CRCs are one string of 8 digits a chunk: a model of 100 GB has 100 000.
Json ToJson(const DataFile& file) {
  std::string crcs;
  for (uint32_t crc : file.digest.crc32c) absl::StrAppendFormat(&crcs, "%08x", crc);
  Json json = {
      {"name", file.name}, {"size", file.digest.size}, {"blake2b_tree", file.digest.blake2b_tree}, {"crc32c", crcs}};
  if (!file.folder.empty()) {
    json["folder"] = file.folder;
    json["host"] = file.host;
  }
  return json;
}

// Readers open files in this folder: it can only be a checkpoint's.
bool IsCheckpointFolder(const std::string& path) {
  return absl::StartsWith(path, "/") && absl::EndsWith(path, ".ckpt") && path.find('\0') == std::string::npos;
}

Status ParseFile(const Json& json, DataFile* file) {
  std::string crcs;
  RETURN_IF_ERROR(GetString(json, "name", &file->name));
  RETURN_IF_ERROR(GetInt(json, "size", &file->digest.size));
  RETURN_IF_ERROR(GetString(json, "blake2b_tree", &file->digest.blake2b_tree));
  RETURN_IF_ERROR(GetString(json, "crc32c", &crcs));
  const int64_t size = file->digest.size;
  const uint64_t chunks = static_cast<uint64_t>(size / kChunkBytes + (size % kChunkBytes != 0));
  if (!IsPlainName(file->name)) return absl::DataLossError(absl::StrCat("'", file->name, "' is no file name"));
  if (!IsHex(file->digest.blake2b_tree, kDigestDigits) || crcs.size() % 8 != 0 || crcs.size() / 8 != chunks ||
      !IsHex(crcs, crcs.size())) {
    return absl::DataLossError(absl::StrCat("the digests of ", file->name, " do not fit its size ", size));
  }
  for (size_t i = 0; i < crcs.size(); i += 8) {
    file->digest.crc32c.push_back(static_cast<uint32_t>(std::stoul(crcs.substr(i, 8), nullptr, 16)));
  }
  if (!json.contains("folder")) return absl::OkStatus();
  RETURN_IF_ERROR(GetString(json, "folder", &file->folder));
  RETURN_IF_ERROR(GetString(json, "host", &file->host));
  if (!IsCheckpointFolder(file->folder)) {
    return absl::DataLossError(absl::StrCat("'", file->folder, "' is not an absolute path of a checkpoint's folder"));
  }
  return absl::OkStatus();
}

Json ToJson(const TensorRecord& tensor) {
  Json slices = Json::array();
  for (const Slice& s : tensor.slices) {
    slices.push_back({{"file", s.file}, {"begin", ToJson(s.begin)}, {"end", ToJson(s.end)}});
  }
  return {{"name", tensor.name},
          {"dtype", Name(tensor.type.dtype)},
          {"shape", ToJson(tensor.type.shape)},
          {"slices", slices}};
}

Status ParseSlice(const Json& json, const TensorType& type, int64_t files, Slice* slice) {
  if (!json.is_object()) return absl::DataLossError("a slice is not an object");
  RETURN_IF_ERROR(GetInt(json, "file", &slice->file));
  RETURN_IF_ERROR(GetSizes(json, "begin", &slice->begin));
  RETURN_IF_ERROR(GetSizes(json, "end", &slice->end));
  bool inside =
      slice->file < files && slice->begin.size() == type.shape.size() && slice->end.size() == type.shape.size();
  for (size_t d = 0; inside && d < type.shape.size(); ++d) {
    inside = slice->begin[d] <= slice->end[d] && slice->end[d] <= type.shape[d];
  }
  if (!inside) {
    return absl::DataLossError(absl::StrCat("slice ", ToString(slice->begin), " to ", ToString(slice->end), " of file ",
                                            slice->file, " is not within ", ToString(type)));
  }
  return absl::OkStatus();
}

Status ParseTensor(const Json& json, int64_t files, TensorRecord* tensor) {
  if (!json.is_object()) return absl::DataLossError("a tensor is not an object");
  RETURN_IF_ERROR(GetString(json, "name", &tensor->name));
  std::string dtype;
  RETURN_IF_ERROR(GetString(json, "dtype", &dtype));
  const auto parsed = ParseDType(dtype);
  if (!parsed) return absl::DataLossError(absl::StrCat("'", dtype, "' is no dtype"));
  tensor->type.dtype = *parsed;
  RETURN_IF_ERROR(GetSizes(json, "shape", &tensor->type.shape));
  RETURN_IF_ERROR(CheckedBytes(tensor->type).status());
  ASSIGN_OR_RETURN(const Json* slices, GetArray(json, "slices"));
  absl::flat_hash_set<int64_t> seen;
  for (const Json& slice : *slices) {
    RETURN_IF_ERROR(ParseSlice(slice, tensor->type, files, &tensor->slices.emplace_back()));
    if (!seen.insert(tensor->slices.back().file).second) return absl::DataLossError("two slices in one file");
  }
  return absl::OkStatus();
}

Status CheckDigest(absl::string_view text) {
  const size_t tail = kDigestMember.size() + kDigestDigits + kEnd.size();
  if (text.size() < tail) return absl::DataLossError("the manifest is truncated");
  const absl::string_view body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) != absl::StrCat(kDigestMember, Blake2bHex(body), kEnd)) {
    return absl::DataLossError("the manifest does not match its own BLAKE2b: it is damaged or was edited");
  }
  return absl::OkStatus();
}

// A manifest of this version as SerializeManifest begins it.
std::string Start() {
  return absl::StrCat("{\"format\":\"", kFormat, "\",\n\"version\":", kManifestVersion, ",\n\"lineage\":");
}

bool Overlap(const Slice& a, const Slice& b) {
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (std::max(a.begin[d], b.begin[d]) >= std::min(a.end[d], b.end[d])) return false;
  }
  return true;
}

int64_t Volume(const Slice& s) {
  int64_t n = 1;
  for (size_t d = 0; d < s.begin.size(); ++d) n *= s.end[d] - s.begin[d];
  return n;
}

// Disjoint slices cover the tensor when their volumes add up to its own.
Status CheckCovered(const TensorRecord& tensor) {
  std::vector<Slice> slices;
  for (const Slice& s : tensor.slices) {
    if (Volume(s) > 0) slices.push_back(s);
  }
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  int64_t volume = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    volume += Volume(slices[i]);  // no overflow: disjoint so far, within the tensor
    for (size_t j = i + 1; j < slices.size(); ++j) {
      if (!slices[i].begin.empty() && slices[j].begin[0] >= slices[i].end[0]) break;
      if (Overlap(slices[i], slices[j])) return absl::DataLossError("two slices overlap");
    }
  }
  if (volume != tensor.type.elements()) {
    return absl::DataLossError(absl::StrCat("the slices hold ", volume, " of ", tensor.type.elements(), " elements"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FileOfRank(int64_t rank) { return absl::StrCat("rank_", rank, ".safetensors"); }

Manifest PartOfWhole(const std::vector<TensorRecord>& tensors, FileDigest digest) {
  Manifest part;
  part.files.push_back({FileOfRank(0), std::move(digest), "", ""});
  for (const TensorRecord& t : tensors) {
    part.tensors.push_back({t.name, t.type, {{0, Shape(t.type.shape.size(), 0), t.type.shape}}});
  }
  return part;
}

StatusOr<std::string> SerializeManifest(const Manifest& manifest) {
  ASSIGN_OR_RETURN(const std::string lineage, DumpJson(ToJson(manifest.run.lineage)));
  ASSIGN_OR_RETURN(const std::string run, DumpJson(ToJson(manifest.run)));
  std::string text = absl::StrCat(Start(), lineage, kRunMember, run, ",\n\"files\":[");
  const char* separator = "\n";
  for (const DataFile& file : manifest.files) {
    ASSIGN_OR_RETURN(const std::string line, DumpJson(ToJson(file)));
    absl::StrAppend(&text, std::exchange(separator, ",\n"), line);
  }
  absl::StrAppend(&text, "],\n\"tensors\":[");
  separator = "\n";
  for (const TensorRecord& tensor : manifest.tensors) {
    ASSIGN_OR_RETURN(const std::string line, DumpJson(ToJson(tensor)));
    absl::StrAppend(&text, std::exchange(separator, ",\n"), line);
  }
  absl::StrAppend(&text, "]");
  const std::string digest = Blake2bHex(text);
  absl::StrAppend(&text, kDigestMember, digest, kEnd);
  return text;
}

StatusOr<Manifest> ParseManifest(absl::string_view text) {
  RETURN_IF_ERROR(CheckDigest(text));
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  std::string format;
  int64_t version = 0;
  RETURN_IF_ERROR(GetString(json, "format", &format));
  RETURN_IF_ERROR(GetInt(json, "version", &version));
  if (format != kFormat) return absl::DataLossError(absl::StrCat("format '", format, "', expected '", kFormat, "'"));
  if (version < kOldestManifestVersion || version > kManifestVersion) {
    return absl::UnimplementedError(absl::StrCat("checkpoint format version ", version, ", this mslua reads versions ",
                                                 kOldestManifestVersion, " to ", kManifestVersion,
                                                 "; use the mslua that wrote it"));
  }
  Manifest manifest;
  if (version >= 3) {
    ASSIGN_OR_RETURN(const Json* lineage, GetObject(json, "lineage"));
    RETURN_IF_ERROR(ReadLineage(*lineage, &manifest.run.lineage));
  }
  ASSIGN_OR_RETURN(const Json* run, GetObject(json, "run"));
  RETURN_IF_ERROR(ParseRun(*run, &manifest.run));
  ASSIGN_OR_RETURN(const Json* files, GetArray(json, "files"));
  std::set<std::string> names;
  for (const Json& file : *files) {
    if (!file.is_object()) return absl::DataLossError("a file is not an object");
    RETURN_IF_ERROR(ParseFile(file, &manifest.files.emplace_back()));
    if (!names.insert(manifest.files.back().name).second) {
      return absl::DataLossError(absl::StrCat("file ", manifest.files.back().name, " is given twice"));
    }
  }
  ASSIGN_OR_RETURN(const Json* tensors, GetArray(json, "tensors"));
  names.clear();
  for (const Json& entry : *tensors) {
    TensorRecord& tensor = manifest.tensors.emplace_back();
    RETURN_IF_ERROR(Annotate(ParseTensor(entry, static_cast<int64_t>(manifest.files.size()), &tensor),
                             absl::StrCat("tensor '", tensor.name, "'")));
    if (!names.insert(tensor.name).second) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor.name, "' is given twice"));
    }
  }
  return manifest;
}

StatusOr<Lineage> ParseLineage(absl::string_view text) {
  RETURN_IF_ERROR(CheckDigest(text));
  const std::string start = Start();
  const size_t end = text.find(kRunMember);
  Lineage lineage;
  if (!absl::StartsWith(text, start) || end == absl::string_view::npos) {  // another version, or not written by mslua
    ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text));
    return std::move(manifest.run.lineage);
  }
  ASSIGN_OR_RETURN(const Json json, ParseJson(text.substr(start.size(), end - start.size())));
  RETURN_IF_ERROR(ReadLineage(json, &lineage));
  return lineage;
}

Status AppendPart(const Manifest& part, Manifest* whole) {
  const int64_t first_file = static_cast<int64_t>(whole->files.size());
  for (const DataFile& file : part.files) {
    for (const DataFile& other : whole->files) {
      if (other.name == file.name) {
        return absl::InvalidArgumentError(absl::StrCat("two ranks wrote ", file.name));
      }
    }
  }
  whole->files.insert(whole->files.end(), part.files.begin(), part.files.end());
  absl::flat_hash_map<std::string, size_t> index;
  for (size_t i = 0; i < whole->tensors.size(); ++i) index[whole->tensors[i].name] = i;
  for (const TensorRecord& tensor : part.tensors) {
    const auto [it, is_new] = index.emplace(tensor.name, whole->tensors.size());
    if (is_new) whole->tensors.push_back({tensor.name, tensor.type, {}});
    TensorRecord& target = whole->tensors[it->second];
    if (target.type != tensor.type) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' is ", ToString(target.type),
                                                     " on one rank and ", ToString(tensor.type), " on another"));
    }
    for (const Slice& slice : tensor.slices) {
      const bool replica = std::any_of(target.slices.begin(), target.slices.end(), [&](const Slice& other) {
        return other.begin == slice.begin && other.end == slice.end;
      });
      if (!replica) target.slices.push_back({slice.file + first_file, slice.begin, slice.end});
    }
  }
  return absl::OkStatus();
}

Status CheckComplete(const Manifest& manifest) {
  for (const TensorRecord& tensor : manifest.tensors) {
    RETURN_IF_ERROR(Annotate(CheckCovered(tensor), absl::StrCat("tensor '", tensor.name, "'")));
  }
  return absl::OkStatus();
}

}  // namespace mslua::checkpoint
