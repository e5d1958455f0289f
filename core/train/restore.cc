#include "core/train/restore.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/tensor_names.h"
#include "core/sharding/layout.h"

namespace mslua {
namespace {

// Reads part [begin, end) of a tensor.
using ReadPart =
    std::function<Status(const checkpoint::TensorRecord& tensor, const Shape& begin, const Shape& end, void* out)>;

// `plain`: the tensor's name in the checkpoint, but for what a rank has of its own.
Status ReadEntry(const checkpoint::Checkpoint& from, const ReadPart& read, const Store::Entry& e,
                 const std::string& plain, const TensorPart& part, int rank) {
  const bool ranks_own = part.own && from.manifest().run.rank == rank;
  std::string name = ranks_own ? plain : NameOfPart(plain, part, rank);
  if (part.varies && from.Find(name) == nullptr) name = plain;  // it was rank 0's
  const checkpoint::TensorRecord* record = from.Find(name);
  if (record == nullptr && part.own && rank > 0) {
    return absl::NotFoundError(absl::StrCat(from.path(), " was saved by ", from.manifest().run.world,
                                            " rank(s): it has no value of rank ", rank, "'s own '", plain, "'"));
  }
  if (record == nullptr)
    return absl::NotFoundError(absl::StrCat(from.path(), " has no tensor '", name, "', which the recipe has"));
  const auto read_whole = [&](void* out) {
    return read(*record, Shape(record->type.shape.size(), 0), record->type.shape, out);
  };
  if (!part.of.empty()) {
    const TensorType whole{e.type.dtype, part.of}, flat{e.type.dtype, {whole.elements()}};
    if (record->type == flat && record->type != whole) {  // saved in slices of flat tensors
      std::string all(static_cast<size_t>(whole.bytes()), '\0');
      RETURN_IF_ERROR(read_whole(&all[0]));
      CutPart(whole, part.at, e.type.shape, all.data(), e.memory.data());
      return absl::OkStatus();
    }
    if (record->type != whole)
      return absl::InvalidArgumentError(absl::StrCat(from.path(), ": '", name, "' is ", ToString(record->type),
                                                     ", the recipe has ", ToString(whole)));
    Shape end = part.at;
    for (size_t d = 0; d < end.size(); ++d) end[d] += e.type.shape[d];
    return read(*record, part.at, end, e.memory.data());
  }
  // Slices are of flat tensors; what was whole may be sharded now, and the other way round.
  const int64_t elements = part.whole > 0 ? part.whole : e.type.elements();
  const TensorType flat{e.type.dtype, {elements}};
  const bool fits = record->type == flat || record->type == e.type ||
                    (part.whole > 0 && record->type.dtype == flat.dtype && record->type.elements() == elements);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(from.path(), ": '", name, "' is ", ToString(record->type),
                                                   ", the recipe has ", ToString(part.whole > 0 ? flat : e.type)));
  }
  if (part.whole == 0) return read_whole(e.memory.data());
  const int64_t begin = std::min(part.begin, elements), end = std::min(begin + e.type.elements(), elements);
  const int64_t size = SizeOf(e.type.dtype);
  std::memset(e.memory.data(), 0, static_cast<size_t>(e.type.bytes()));
  if (begin == end) return absl::OkStatus();
  if (record->type == flat) return read(*record, {begin}, {end}, e.memory.data());
  std::string whole(static_cast<size_t>(elements * size), '\0');
  RETURN_IF_ERROR(read_whole(&whole[0]));
  std::memcpy(e.memory.data(), whole.data() + begin * size, static_cast<size_t>((end - begin) * size));
  return absl::OkStatus();
}

// Reads what `names` has of the store with `read`.
Status ReadStore(const checkpoint::Checkpoint& from, const ReadPart& read, const Store& store, const TensorNames& names,
                 const TensorParts& parts, int rank, RestoreReport* report) {
  // All names of the network, of which this rank may have some only.
  std::vector<std::string> wanted, stored;
  for (const auto& n : names) wanted.push_back(n.second);
  for (const checkpoint::TensorRecord& t : from.manifest().tensors) {
    if (!absl::StartsWith(t.name, kRankPrefix)) stored.push_back(t.name);
  }
  const auto older = checkpoint::OlderNames(wanted, stored);
  absl::flat_hash_set<std::string> known(wanted.begin(), wanted.end());
  for (const auto& e : store.entries()) {
    const auto named = names.find(e->name);
    if (named == names.end()) continue;
    const auto other = older.find(named->second);
    if (other != older.end()) {
      report->renamed.emplace_back(*other);
      known.insert(other->second);
    }
    const auto part = parts.find(e->name);
    RETURN_IF_ERROR(store.HostWrites(*e));
    RETURN_IF_ERROR(ReadEntry(from, read, *e, other == older.end() ? named->second : other->second,
                              part == parts.end() ? TensorPart() : part->second, rank));
  }
  std::sort(report->renamed.begin(), report->renamed.end());
  for (const std::string& name : stored) {
    if (!known.contains(name)) report->ignored.push_back(name);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<TrainState> RestoreCheckpoint(Groups* groups, SharedCheckpoint& from, const Store& store,
                                       const TensorNames& names, const TensorParts& parts, int rank,
                                       RestoreReport* report) {
  checkpoint::Checkpoint& own = *from.own;
  if (groups != nullptr) {
    WantedParts wanted;
    const ReadPart note = [&](const checkpoint::TensorRecord& tensor, const Shape& begin, const Shape& end, void*) {
      wanted[tensor.name].emplace_back(begin, end);
      return absl::OkStatus();
    };
    RestoreReport unused;
    const Status known = ReadStore(own, note, store, names, parts, rank, &unused);
    // All ranks fetch: an error of one rank's own is told after it.
    RETURN_IF_ERROR(FetchParts(*groups, from, wanted));
    RETURN_IF_ERROR(known);
  }
  const ReadPart read = [&](const checkpoint::TensorRecord& tensor, const Shape& begin, const Shape& end, void* out) {
    return own.ReadSlice(tensor.name, begin, end, out);
  };
  RETURN_IF_ERROR(ReadStore(own, read, store, names, parts, rank, report));
  TrainState state;
  const checkpoint::RunState& run = own.manifest().run;
  state.step = run.step;
  state.epoch = run.data_epoch;
  state.step_in_epoch = run.data_batch;
  return state;
}

}  // namespace mslua
