#include "core/train/restore.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/tensor_names.h"
#include "core/sharding/layout.h"

namespace mslua {
namespace {

// Reads part [begin, end) of a tensor.
using ReadPart =
    std::function<Status(const checkpoint::TensorRecord& tensor, const Shape& begin, const Shape& end, void* out)>;

// The record of a tensor that the checkpoint calls `plain`, but for what a rank has of its own; null: there is none.
StatusOr<const checkpoint::TensorRecord*> FindRecord(const checkpoint::Checkpoint& from, const std::string& plain,
                                                     const TensorPart& part, int rank) {
  const bool ranks_own = part.own && from.manifest().run.rank == rank;
  std::string name = ranks_own ? plain : NameOfPart(plain, part, rank);
  if (part.varies && from.Find(name) == nullptr) name = plain;  // it was rank 0's
  const checkpoint::TensorRecord* record = from.Find(name);
  if (record == nullptr && part.own && rank > 0) {
    return absl::NotFoundError(absl::StrCat(from.path(), " was saved by ", from.manifest().run.world,
                                            " rank(s): it has no value of rank ", rank, "'s own '", plain, "'"));
  }
  return record;
}

Status Missing(const checkpoint::Checkpoint& from, const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  const std::string more = names.size() > shown ? absl::StrCat(" and ", names.size() - shown, " more") : "";
  return absl::NotFoundError(absl::StrCat(
      from.path(), " lacks ", absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      more, ", which the recipe has: resume with what was trained; --init-from=", from.path(),
      " starts a training with the values that it has"));
}

Status OtherType(const checkpoint::Checkpoint& from, const checkpoint::TensorRecord& record, const TensorType& wanted) {
  return absl::InvalidArgumentError(absl::StrCat(from.path(), ": '", record.name, "' is ", ToString(record.type),
                                                 ", the recipe has ", ToString(wanted)));
}

// Reads a part by way of the whole tensor, whose elements the record has in another shape.
Status ReadByWhole(const ReadPart& read, const checkpoint::TensorRecord& record, const Part& part, void* out) {
  std::string all(static_cast<size_t>(record.type.bytes()), '\0');
  RETURN_IF_ERROR(read(record, Shape(record.type.shape.size(), 0), record.type.shape, &all[0]));
  CopyPart({record.type.dtype, part.whole}, part.begin, part.size, all.data(), out);
  return absl::OkStatus();
}

// Slices are of flat tensors; what was whole may be sharded now, and the other way round.
Status ReadEntry(const checkpoint::Checkpoint& from, const ReadPart& read, const TensorView& value,
                 const checkpoint::TensorRecord* record, const TensorPart& part) {
  const Part mine = part.sharded() ? part.part : Part::Of(value.type.shape);
  const TensorType whole{value.type.dtype, mine.whole}, flat{value.type.dtype, {whole.elements()}};
  const bool same_elements = record->type.dtype == whole.dtype && record->type.elements() == whole.elements();
  if (record->type != whole && record->type != flat && !(part.flat && same_elements))
    return OtherType(from, *record, whole);
  if (part.flat) std::memset(value.data, 0, static_cast<size_t>(value.type.bytes()));  // with the padding
  if (part.flat && mine.size[0] == 0) return absl::OkStatus();
  if (record->type == whole) return read(*record, mine.begin, mine.end(), value.data);
  if (mine.all()) return read(*record, Shape(record->type.shape.size(), 0), record->type.shape, value.data);
  return ReadByWhole(read, *record, mine, value.data);
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
  std::vector<std::string> missing;
  for (const auto& e : store.entries()) {
    const auto named = names.find(e->name);
    if (named == names.end()) continue;
    const auto other = older.find(named->second);
    if (other != older.end()) {
      report->renamed.emplace_back(*other);
      known.insert(other->second);
    }
    const auto found = parts.find(e->name);
    const TensorPart part = found == parts.end() ? TensorPart() : found->second;
    const std::string& plain = other == older.end() ? named->second : other->second;
    ASSIGN_OR_RETURN(const checkpoint::TensorRecord* const record, FindRecord(from, plain, part, rank));
    if (record == nullptr) {
      missing.push_back(plain);
      continue;
    }
    ASSIGN_OR_RETURN(const TensorView value, store.WriteInPlace(*e));
    RETURN_IF_ERROR(ReadEntry(from, read, value, record, part));
  }
  if (!missing.empty()) return Missing(from, missing);
  std::sort(report->renamed.begin(), report->renamed.end());
  for (const std::string& name : stored) {
    if (!known.contains(name)) report->ignored.push_back(name);
  }
  return absl::OkStatus();
}

}  // namespace

bool EndsEpoch(const checkpoint::RunState& run, int64_t unsaid) {
  const double steps = CounterOf(run.counters, kEpochStepsCounter, static_cast<double>(unsaid));
  return run.data_batch > 0 && static_cast<double>(run.data_batch) >= steps;
}

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
