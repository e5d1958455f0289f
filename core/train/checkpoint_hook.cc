#include "core/train/checkpoint_hook.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/tensor_names.h"
#include "core/sharding/layout.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kRankPrefix[] = "rank_";

std::string OfRank(const std::string& name, int rank) { return absl::StrCat(kRankPrefix, rank, "/", name); }

std::string NameOf(const std::string& name, const TensorPart& part, int rank) {
  return (part.own || part.varies) && rank > 0 ? OfRank(name, rank) : name;
}

// The tutorials' name: the epoch that runs, from 1, and the step within it.
int64_t EpochInName(const TrainState& state) {
  return state.step_in_epoch == 0 && state.epoch > 0 ? state.epoch : state.epoch + 1;
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

StatusOr<std::unique_ptr<CheckpointHook>> CheckpointHook::Create(const CheckpointOptions& options, const Store* store,
                                                                 const Trainer* trainer,
                                                                 std::function<void(const std::string&)> notice) {
  const auto& k = options.keeper;
  if (options.together != nullptr && options.exception_save) {
    return absl::InvalidArgumentError(
        "exception_save: the ranks have parts of their own, and after an error they cannot save them together: leave "
        "it "
        "out, or give save_checkpoint_steps");
  }
  using checkpoint::CheckpointKeeper;
  std::unique_ptr<CheckpointHook> hook(new CheckpointHook(options, store, trainer, std::move(notice)));
  if (!options.writes || (options.together != nullptr && options.together->rank() > 0)) return hook;
  ASSIGN_OR_RETURN(CheckpointKeeper keeper, CheckpointKeeper::Create(k, options.resumed_from, Now()));
  hook->keeper_ = std::make_unique<CheckpointKeeper>(std::move(keeper));
  if (options.keep_best) {
    checkpoint::KeeperOptions best = k;
    best.directory += "/best";
    best.keep_checkpoint_max = 1;
    // A run that resumes from any checkpoint of this directory keeps its best one too.
    std::string resumed = options.resumed_from;
    const auto there = checkpoint::ListCheckpoints(best.directory);
    if (!resumed.empty() && there.ok() && !there->empty()) resumed = there->front().path;
    ASSIGN_OR_RETURN(CheckpointKeeper best_keeper, CheckpointKeeper::Create(best, resumed, Now()));
    hook->best_ = std::make_unique<CheckpointKeeper>(std::move(best_keeper));
  }
  ASSIGN_OR_RETURN(hook->lineage_,
                   checkpoint::BeginLineage({k.directory, k.directory + "/best"}, options.resumed_from));
  return hook;
}

int64_t CheckpointHook::NextStep(const TrainState& state) {
  const int64_t every = options_.keeper.save_checkpoint_steps;
  if (every > 0) return saved_step_ == state.step ? state.step + 1 : (state.step + every - 1) / every * every;
  // By the clock: looked at after each step.
  return options_.keeper.save_checkpoint_seconds > 0 ? (saved_step_ == state.step ? state.step + 1 : state.step)
                                                     : INT64_MAX;
}

Status CheckpointHook::AtStep(const TrainState& state) {
  NoteFailure(saver_.Poll());
  if (state.step == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool due, Due(state));
  if (due) Save(state);
  return absl::OkStatus();
}

// Ranks save together by steps that all of them count, or when the clock of a rank that writes says so.
StatusOr<bool> CheckpointHook::Due(const TrainState& state) {
  if (ranks() == nullptr) return keeper_->Due(state.step, Now());
  const int64_t every = options_.keeper.save_checkpoint_steps;
  if (every > 0) return state.step % every == 0;
  const bool mine = keeper_ != nullptr && keeper_->Due(state.step, Now());
  return LargestOfRanks(*ranks(), mine ? 1 : 0, "whether a checkpoint is due");
}

void CheckpointHook::Save(const TrainState& state) {
  if (saved_step_ == state.step) return;
  saved_step_ = state.step;
  const Status done = SaveTo(keeper_.get(), state);
  if (keeper_ != nullptr) NoteFailure(done);
}

void CheckpointHook::SaveBest(const TrainState& state) {
  const Status done = SaveTo(best_.get(), state);
  if (best_ != nullptr) NoteFailure(done);
}

void CheckpointHook::NoteFailure(const Status& status) const {
  if (!status.ok()) notice_(absl::StrCat("checkpoint not saved: ", status.message()));
}

Status CheckpointHook::Saved(checkpoint::CheckpointKeeper* keeper, const std::string& path) {
  RETURN_IF_ERROR(keeper->Saved(path, Now()));
  if (keeper == keeper_.get()) {
    saved_ = true;
    lineage_.parent = path.substr(path.rfind('/') + 1);
  }
  return absl::OkStatus();
}

checkpoint::RunState CheckpointHook::NextRun(const TrainState& state) {
  checkpoint::RunState run;
  ++lineage_.generation;
  run.lineage = lineage_;
  run.job = options_.job;
  run.epoch = state.epoch;
  run.step = state.step;
  run.seed = options_.seed;
  run.data_epoch = state.epoch;
  run.data_batch = state.step_in_epoch;
  run.schedule_step = state.step;
  run.recipe_hash = options_.recipe_hash;
  run.graph_hash = options_.graph_hash;
  run.plan = options_.plan;
  run.counters = trainer_->SaveCounters();
  run.interventions = trainer_->interventions();
  run.world = options_.world;
  return run;
}

Status CheckpointHook::SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state) {
  NoteFailure(saver_.Wait());  // an earlier save's, which is not to be taken for this one's
  const checkpoint::RunState run = NextRun(state);
  const std::string path = keeper == nullptr ? "" : keeper->PathFor(EpochInName(state), state.step);
  if (keeper == keeper_.get()) {
    last_path_ = path;
    saved_ = false;
  }
  if (options_.together != nullptr) return SaveTogether(keeper, path, run);
  std::vector<KeptTensor> kept;
  if (options_.varying != nullptr) {
    if (!alone_) {
      // Without them a run that resumes would differ, so an earlier checkpoint is the better one.
      ASSIGN_OR_RETURN(kept, GatherVarying());
    } else if (options_.writes) {
      notice_(absl::StrCat("the checkpoint of step ", state.step,
                           " has the running statistics of rank 0 alone, since training ended by an error: a run that "
                           "resumes from it differs in the last digits"));
    }
  }
  if (keeper == nullptr) return absl::OkStatus();  // this rank was asked for its values only
  std::vector<checkpoint::TensorData> tensors;
  absl::flat_hash_set<absl::string_view> instead;
  for (const KeptTensor& k : kept) {
    tensors.push_back({k.name, k.type, k.bytes.data()});
    instead.insert(k.name);
  }
  for (const auto& e : store_->entries()) {
    const auto name = options_.names.find(e->name);
    if (name != options_.names.end() && !instead.contains(name->second))
      tensors.push_back({name->second, e->type, e->memory.data()});
  }
  if (options_.async_save) {
    return saver_.Start(path, run, tensors, [this, keeper, path] { return Saved(keeper, path); });
  }
  RETURN_IF_ERROR(checkpoint::SaveCheckpoint(path, run, tensors));
  return Saved(keeper, path);
}

StatusOr<std::string> CheckpointHook::SaveNow(const TrainState& state, const std::string& name) {
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_')
      return absl::InvalidArgumentError(
          absl::StrCat("a checkpoint's name has letters, digits, '-', '_': '", name, "'"));
  }
  if (name.empty()) {
    Save(state);
    RETURN_IF_ERROR(saver_.Wait());
    if (keeper_ != nullptr && !saved_)
      return absl::UnavailableError(absl::StrCat("the checkpoint of step ", state.step, " was not saved"));
    return last_path_;
  }
  std::unique_ptr<checkpoint::CheckpointKeeper> keeper;
  if (keeper_ != nullptr) {
    checkpoint::KeeperOptions named = options_.keeper;
    named.prefix = name;
    named.keep_checkpoint_max = INT32_MAX;
    auto made = checkpoint::CheckpointKeeper::Create(named, "", Now());
    if (!made.ok() && ranks() != nullptr) SaveTo(nullptr, state).IgnoreError();  // the other ranks are about to
    RETURN_IF_ERROR(made.status());
    keeper = std::make_unique<checkpoint::CheckpointKeeper>(*std::move(made));
  }
  RETURN_IF_ERROR(SaveTo(keeper.get(), state));
  RETURN_IF_ERROR(saver_.Wait());
  return keeper == nullptr ? "" : keeper->PathFor(EpochInName(state), state.step);
}

StatusOr<std::map<std::string, std::string>> CheckpointHook::CompareVarying(std::vector<KeptTensor>* first) const {
  constexpr char kWhat[] = "saving values that ranks have of their own";
  // By name: all ranks take them in one order.
  std::map<std::string, const Store::Entry*> varying;
  for (const auto& e : store_->entries()) {
    const auto part = options_.parts.find(e->name);
    const bool varies = part != options_.parts.end() && part->second.varies;
    if (varies && options_.names.contains(e->name)) varying[e->name] = e.get();
  }
  std::map<std::string, std::string> differs;
  if (varying.empty()) return differs;
  std::string mine;
  for (const auto& [name, e] : varying) {
    const auto bytes = static_cast<size_t>(e->type.bytes());
    const char* const own = static_cast<const char*>(e->memory.data());
    std::string zeros(own, bytes);
    RETURN_IF_ERROR(ShareTensors(*ranks(), {{{DType::kU8, {e->type.bytes()}}, &zeros[0]}}, kWhat));
    const bool other = std::memcmp(zeros.data(), own, bytes) != 0;
    mine.push_back(other ? '1' : '0');
    if (other) first->push_back({options_.names.at(name), e->type, std::move(zeros)});
  }
  ASSIGN_OR_RETURN(const auto all, GatherTexts(*ranks(), mine, kWhat));
  size_t i = 0;
  for (const auto& [name, e] : varying) {
    for (const std::string& rank : all) differs[name].push_back(rank[i]);
    ++i;
  }
  return differs;
}

StatusOr<std::vector<CheckpointHook::KeptTensor>> CheckpointHook::GatherVarying() const {
  std::vector<KeptTensor> kept;
  ASSIGN_OR_RETURN(const auto differs, CompareVarying(&kept));
  for (const auto& [name, of_rank] : differs) {
    if (of_rank.find('1') == std::string::npos) continue;
    const Store::Entry& e = *store_->Find(name);
    const auto bytes = static_cast<size_t>(e.type.bytes());
    ASSIGN_OR_RETURN(const auto values,
                     GatherTexts(*ranks(), std::string(static_cast<const char*>(e.memory.data()), bytes),
                                 "saving values that ranks have of their own"));
    for (size_t r = 0; options_.writes && r < values.size(); ++r) {
      if (of_rank[r] == '1') kept.push_back({OfRank(options_.names.at(name), static_cast<int>(r)), e.type, values[r]});
    }
  }
  return kept;
}

StatusOr<checkpoint::Manifest> CheckpointHook::WriteOwnPart(const std::string& folder,
                                                            const std::map<std::string, std::string>& differs) {
  const int rank = options_.together->rank();
  std::vector<checkpoint::ShardData> shards;
  for (const auto& e : store_->entries()) {
    const auto named = options_.names.find(e->name);
    if (named == options_.names.end()) continue;
    const std::string& name = named->second;
    const auto part = options_.parts.find(e->name);
    if (part == options_.parts.end()) {
      if (rank == 0) shards.push_back({name, e->type, e->memory.data(), e->type.shape, Shape(e->type.rank(), 0)});
      continue;
    }
    const TensorPart& p = part->second;
    if (p.replica || (p.varies && rank > 0 && differs.at(e->name)[rank] == '0')) continue;
    if (!p.of.empty()) {
      shards.push_back({name, e->type, e->memory.data(), p.of, p.at});
    } else if (p.whole == 0) {
      shards.push_back({NameOf(name, p, rank), e->type, e->memory.data(), e->type.shape, Shape(e->type.rank(), 0)});
    } else if (p.begin < p.whole) {
      const TensorType type{e->type.dtype, {std::min(e->type.elements(), p.whole - p.begin)}};
      shards.push_back({name, type, e->memory.data(), {p.whole}, {p.begin}});
    }
  }
  return checkpoint::WritePart(folder, rank, shards);
}

// All ranks write into one folder, rank 0 the manifest. What went wrong on any is rank 0's to tell.
Status CheckpointHook::SaveTogether(checkpoint::CheckpointKeeper* keeper, const std::string& path,
                                    const checkpoint::RunState& run) {
  Groups& groups = *options_.together;
  std::unique_ptr<checkpoint::CheckpointWriter> writer;
  std::string folder;
  Status status;
  if (groups.rank() == 0) {
    auto created = checkpoint::CheckpointWriter::Create(path);
    status = created.status();
    if (created.ok()) folder = (writer = *std::move(created))->folder();
  }
  RETURN_IF_ERROR(ShareText(groups, &folder, "saving a checkpoint"));
  if (folder.empty()) return status.ok() ? absl::UnavailableError("rank 0 could not make the folder") : status;
  std::vector<KeptTensor> first;  // rank 0 writes them itself
  ASSIGN_OR_RETURN(const auto differs, CompareVarying(&first));
  const auto mine = WriteOwnPart(folder, differs);
  const auto text = mine.ok() ? checkpoint::SerializeManifest(*mine) : mine.status();
  ASSIGN_OR_RETURN(const auto texts,
                   GatherTexts(groups, text.ok() ? absl::StrCat("+", *text) : std::string(text.status().message()),
                               "saving a checkpoint"));
  if (groups.rank() != 0) return absl::OkStatus();
  std::vector<checkpoint::Manifest> parts;
  for (size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty() || texts[r][0] != '+') return absl::UnavailableError(absl::StrCat("rank ", r, ": ", texts[r]));
    ASSIGN_OR_RETURN(parts.emplace_back(), checkpoint::ParseManifest(absl::string_view(texts[r]).substr(1)));
  }
  if (!options_.integrated) {
    RETURN_IF_ERROR(writer->Commit(run, parts));
    return Saved(keeper, path);
  }
  // The other ranks train on; joining the parts is the thread's work.
  const std::shared_ptr<checkpoint::CheckpointWriter> kept = std::move(writer);
  saver_.StartTask(path, [this, kept, run, parts = std::move(parts), keeper, path]() -> Status {
    RETURN_IF_ERROR(kept->CommitWhole(run, parts));
    return Saved(keeper, path);
  });
  return options_.async_save ? absl::OkStatus() : saver_.Wait();
}

void CheckpointHook::AtEnd(const TrainState& state, const Status& outcome) {
  const bool wanted = outcome.ok() || absl::IsCancelled(outcome)
                          ? options_.save_at_end
                          : options_.exception_save && options_.together == nullptr;  // the others may not come
  alone_ = !outcome.ok() && !absl::IsCancelled(outcome);
  if (wanted && state.whole && state.step > 0) Save(state);
  NoteFailure(saver_.Wait());
}

namespace {

// `plain`: the tensor's name in the checkpoint, but for what a rank has of its own.
Status ReadEntry(checkpoint::Checkpoint& from, const Store::Entry& e, const std::string& plain, const TensorPart& part,
                 int rank) {
  std::string name = NameOf(plain, part, rank);
  if (part.varies && from.Find(name) == nullptr) name = plain;  // it was rank 0's
  const checkpoint::TensorRecord* record = from.Find(name);
  if (record == nullptr && part.own && rank > 0) {
    return absl::NotFoundError(absl::StrCat(from.path(), " was saved by ", from.manifest().run.world,
                                            " rank(s): it has no value of rank ", rank, "'s own '", plain, "'"));
  }
  if (record == nullptr)
    return absl::NotFoundError(absl::StrCat(from.path(), " has no tensor '", name, "', which the recipe has"));
  if (!part.of.empty()) {
    const TensorType whole{e.type.dtype, part.of}, flat{e.type.dtype, {whole.elements()}};
    if (record->type == flat && record->type != whole) {  // saved in slices of flat tensors
      std::string all(static_cast<size_t>(whole.bytes()), '\0');
      RETURN_IF_ERROR(from.Read(name, &all[0]));
      CutPart(whole, part.at, e.type.shape, all.data(), e.memory.data());
      return absl::OkStatus();
    }
    if (record->type != whole)
      return absl::InvalidArgumentError(absl::StrCat(from.path(), ": '", name, "' is ", ToString(record->type),
                                                     ", the recipe has ", ToString(whole)));
    Shape end = part.at;
    for (size_t d = 0; d < end.size(); ++d) end[d] += e.type.shape[d];
    return from.ReadSlice(name, part.at, end, e.memory.data());
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
  if (part.whole == 0) return from.Read(name, e.memory.data());
  const int64_t begin = std::min(part.begin, elements), end = std::min(begin + e.type.elements(), elements);
  const int64_t size = SizeOf(e.type.dtype);
  std::memset(e.memory.data(), 0, static_cast<size_t>(e.type.bytes()));
  if (begin == end) return absl::OkStatus();
  if (record->type == flat) return from.ReadSlice(name, {begin}, {end}, e.memory.data());
  std::string whole(static_cast<size_t>(elements * size), '\0');
  RETURN_IF_ERROR(from.Read(name, &whole[0]));
  std::memcpy(e.memory.data(), whole.data() + begin * size, static_cast<size_t>((end - begin) * size));
  return absl::OkStatus();
}

}  // namespace

StatusOr<TrainState> RestoreCheckpoint(checkpoint::Checkpoint& from, const Store& store, const TensorNames& names,
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
    RETURN_IF_ERROR(ReadEntry(from, *e, other == older.end() ? named->second : other->second,
                              part == parts.end() ? TensorPart() : part->second, rank));
  }
  std::sort(report->renamed.begin(), report->renamed.end());
  for (const std::string& name : stored) {
    if (!known.contains(name)) report->ignored.push_back(name);
  }
  TrainState state;
  const checkpoint::RunState& run = from.manifest().run;
  state.step = run.step;
  state.epoch = run.data_epoch;
  state.step_in_epoch = run.data_batch;
  return state;
}

}  // namespace mslua
