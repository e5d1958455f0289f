#include "core/train/checkpoint_hook.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "core/base/round_up.h"
#include "core/checkpoint/begin_lineage.h"
#include "core/checkpoint/tensor_names.h"
#include "core/runtime/store_snapshot.h"
#include "core/sharding/layout.h"
#include "core/train/agreement.h"
#include "core/train/counters_of_ranks.h"

namespace mslua {
namespace {

constexpr char kGood = '+', kBad = '-';  // first bytes of texts that ranks give each other

// The ranks' texts without their first byte; an error that names the first rank whose text is kBad, of those that lead
// a place (all, where `places` is null).
StatusOr<std::vector<std::string>> GatherGood(Groups& groups, const std::string& mine,
                                              const std::vector<int>* places = nullptr) {
  ASSIGN_OR_RETURN(auto all, GatherTexts(groups, mine, "saving a checkpoint"));
  for (size_t r = 0; r < all.size(); ++r) {
    const bool counts = places == nullptr || (places->empty() ? r == 0 : (*places)[r] == static_cast<int>(r));
    if (all[r][0] == kBad && counts) return absl::UnavailableError(absl::StrCat("rank ", r, ": ", all[r].substr(1)));
    all[r].erase(0, 1);
  }
  return all;
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
  if (!options.writes || !hook->leads()) return hook;
  if (options.keep_unfinished) hook->saver_.KeepUnfinished(options.keep_unfinished);
  if (options.async_save && options.together == nullptr) hook->ReserveSnapshot();
  ASSIGN_OR_RETURN(CheckpointKeeper keeper, CheckpointKeeper::Create(k, options.resumed_from, Now()));
  hook->keeper_ = std::make_unique<CheckpointKeeper>(std::move(keeper));
  if (options.keep_best) {
    checkpoint::KeeperOptions best = k;
    best.directory += "/best";
    best.keep_checkpoint_max = 1;
    // A run keeps one best checkpoint, whichever of its checkpoints it resumes from.
    const std::string own = checkpoint::NewestOfFamily(best.directory, options.resumed_from);
    ASSIGN_OR_RETURN(CheckpointKeeper best_keeper,
                     CheckpointKeeper::Create(best, own.empty() ? options.resumed_from : own, Now()));
    hook->best_ = std::make_unique<CheckpointKeeper>(std::move(best_keeper));
  }
  if (options.lineage) {
    hook->lineage_ = *options.lineage;
  } else {
    ASSIGN_OR_RETURN(hook->lineage_,
                     checkpoint::BeginLineage({k.directory, k.directory + "/best"}, options.resumed_from));
  }
  return hook;
}

bool CheckpointHook::leads() const {
  if (options_.together == nullptr) return true;
  const int rank = options_.together->rank();
  return one_place() ? rank == 0 : options_.places[rank] == rank;
}

bool CheckpointHook::one_place() const {
  return std::all_of(options_.places.begin(), options_.places.end(), [](int leader) { return leader == 0; });
}

int64_t CheckpointHook::NextStep(const TrainState& state) {
  if (best_due_) return state.step;
  const int64_t every = options_.keeper.save_checkpoint_steps;
  if (every > 0) return saved_step_ == state.step ? state.step + 1 : RoundUp(state.step, every);
  // By the clock: looked at after each step.
  return options_.keeper.save_checkpoint_seconds > 0 ? (saved_step_ == state.step ? state.step + 1 : state.step)
                                                     : INT64_MAX;
}

Status CheckpointHook::AtStep(const TrainState& state) {
  NoteFailure(saver_.Poll());
  SaveBestIfDue(state);
  if (state.step == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool due, Due(state));
  if (due) Save(state);
  return absl::OkStatus();
}

Status CheckpointHook::AtEpochEnd(const TrainState& state) {
  SaveBestIfDue(state);
  return absl::OkStatus();
}

Status CheckpointHook::AtLastStep(const TrainState& state) {
  SaveBestIfDue(state);
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
  const TimedWork timed(&planned_);
  const Status done = SaveTo(keeper_.get(), state);
  if (keeper_ != nullptr) NoteFailure(done);
}

void CheckpointHook::SaveBestIfDue(const TrainState& state) {
  if (!std::exchange(best_due_, false)) return;
  const Status done = SaveTo(best_.get(), state);
  if (best_ == nullptr) return;
  NoteFailure(done);
  if (options_.recovers) NoteFailure(saver_.Wait());
}

void CheckpointHook::NoteFailure(const Status& status) const {
  for (const auto* const keeper : {&keeper_, &best_}) {
    const Status staying = *keeper == nullptr || saver_.busy() ? absl::OkStatus() : (*keeper)->TakeStaying();
    if (!staying.ok()) notice_(absl::StrCat("an older checkpoint stays: ", staying.message()));
  }
  if (status.ok()) return;
  // Another rank's error is only its text.
  const bool full = absl::StrContains(status.message(), std::strerror(ENOSPC));
  const int64_t most = options_.keeper.keep_checkpoint_max;
  std::string fix = full ? ": free some space" : "";
  if (full && most > 0)
    absl::StrAppend(&fix, ", or keep fewer: keep_checkpoint_max = ", most, " needs the space of ", most + 1,
                    " checkpoints, and ckpt/best that of one more");
  notice_(absl::StrCat("checkpoint not saved: ", status.message(), fix));
}

Status CheckpointHook::Saved(checkpoint::CheckpointKeeper* keeper, const std::string& path) {
  RETURN_IF_ERROR(keeper->Saved(path, Now()));
  NoteSaved(keeper, path);
  return absl::OkStatus();
}

void CheckpointHook::NoteSaved(const checkpoint::CheckpointKeeper* keeper, const std::string& path) {
  if (keeper != keeper_.get()) return;
  saved_ = true;
  lineage_.parent = path.substr(path.rfind('/') + 1);
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
  run.rank = options_.rank;
  return run;
}

Status CheckpointHook::SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state) {
  if (options_.write_records) options_.write_records();
  NoteFailure(saver_.Wait());  // an earlier save's, which is not to be taken for this one's
  checkpoint::RunState run = NextRun(state);
  if (ranks() != nullptr && !alone_) RETURN_IF_ERROR(AddCountersOfRanks(*ranks(), &run.counters));
  const std::string path =
      keeper == nullptr ? "" : keeper->PathFor(checkpoint::EpochInName(state.epoch, state.step_in_epoch), state.step);
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
      run.counters[kFirstRankCounter] = 1;
      notice_(absl::StrCat(
          "the checkpoint of step ", state.step,
          " has the running statistics and mean losses of rank 0 alone, since training ended by an error: a run that "
          "resumes from it differs in the last digits"));
    }
  }
  if (keeper == nullptr) return absl::OkStatus();  // this rank was asked for its values only
  const auto then = [this, keeper, path] { return Saved(keeper, path); };
  if (options_.async_save && ReserveSnapshot()) return SaveSnapshot(path, run, std::move(kept), then);
  std::vector<checkpoint::TensorData> tensors;
  absl::flat_hash_set<absl::string_view> instead;
  for (const KeptTensor& k : kept) {
    tensors.push_back({k.name, k.type, k.bytes.data()});
    instead.insert(k.name);
  }
  for (const Store::Entry* e : SavedEntries()) {
    const std::string& name = options_.names.at(e->name);
    if (instead.contains(name)) continue;
    ASSIGN_OR_RETURN(const TensorView value, store_->Read(*e));
    tensors.push_back({name, e->type, value.data});
  }
  if (options_.async_save) return saver_.Start(path, run, tensors, then, companions_);
  RETURN_IF_ERROR(checkpoint::SaveCheckpoint(path, run, tensors, companions_));
  return then();
}

std::vector<const Store::Entry*> CheckpointHook::SavedEntries() const {
  std::vector<const Store::Entry*> entries;
  for (const auto& e : store_->entries()) {
    if (options_.names.contains(e->name)) entries.push_back(e.get());
  }
  return entries;
}

bool CheckpointHook::ReserveSnapshot() {
  StoreSnapshots* const snapshots = SnapshotsOf(*store_);
  if (snapshots == nullptr) return false;
  const std::vector<const Store::Entry*> entries = SavedEntries();
  if (entries == snapshot_) return takes_snapshots_;
  snapshot_ = entries;
  const Status reserved = snapshots->Reserve(entries).status();
  takes_snapshots_ = reserved.ok();
  if (!reserved.ok()) {
    notice_(absl::StrCat("training stops while checkpoints are copied, as the device has no memory for a copy: ",
                         reserved.message()));
  }
  return takes_snapshots_;
}

Status CheckpointHook::SaveSnapshot(const std::string& path, const checkpoint::RunState& run,
                                    std::vector<KeptTensor> kept, std::function<Status()> then) {
  for (const Store::Entry* e : snapshot_) store_->Open(*e);
  ASSIGN_OR_RETURN(std::shared_ptr<StoreSnapshot> snapshot, SnapshotsOf(*store_)->Take());
  std::vector<checkpoint::TensorData> tensors;
  std::vector<std::function<Status(void*)>> values;  // of them
  absl::flat_hash_set<std::string> instead;
  for (KeptTensor& k : kept) {
    tensors.push_back({k.name, k.type, nullptr});
    instead.insert(k.name);
    values.emplace_back([bytes = std::move(k.bytes)](void* to) {
      std::memcpy(to, bytes.data(), bytes.size());
      return absl::OkStatus();
    });
  }
  for (size_t i = 0; i < snapshot_.size(); ++i) {
    const std::string& name = options_.names.at(snapshot_[i]->name);
    if (instead.contains(name)) continue;
    tensors.push_back({name, snapshot_[i]->type, nullptr});
    values.emplace_back([snapshot, i](void* to) { return snapshot->Read(i, to); });
  }
  saver_.Start(
      path, run, std::move(tensors),
      [values = std::move(values)](size_t i, void* to) -> Status { return values[i](to); }, std::move(then),
      companions_);
  return absl::OkStatus();
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
  return keeper == nullptr ? ""
                           : keeper->PathFor(checkpoint::EpochInName(state.epoch, state.step_in_epoch), state.step);
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
    ASSIGN_OR_RETURN(const TensorView value, store_->Read(*e));
    const char* const own = value.as<const char>();
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
    ASSIGN_OR_RETURN(const TensorView value, store_->Read(e));
    ASSIGN_OR_RETURN(const auto values,
                     GatherTexts(*ranks(), std::string(value.as<const char>(), static_cast<size_t>(e.type.bytes())),
                                 "saving values that ranks have of their own"));
    for (size_t r = 0; options_.writes && r < values.size(); ++r) {
      if (of_rank[r] == '1')
        kept.push_back({NameOfRank(options_.names.at(name), static_cast<int>(r)), e.type, values[r]});
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
    ASSIGN_OR_RETURN(const TensorView value, store_->Read(*e));
    const auto part = options_.parts.find(e->name);
    if (part == options_.parts.end()) {
      if (rank == 0) shards.push_back({name, e->type.dtype, value.data, Part::Of(e->type.shape)});
      continue;
    }
    const TensorPart& p = part->second;
    if (p.replica || (p.varies && rank > 0 && differs.at(e->name)[rank] == '0')) continue;
    if (p.flat && p.part.size[0] == 0) continue;  // all of it is padding
    if (p.sharded())
      shards.push_back({name, e->type.dtype, value.data, p.part});
    else
      shards.push_back({NameOfPart(name, p, rank), e->type.dtype, value.data, Part::Of(e->type.shape)});
  }
  return checkpoint::WritePart(folder, rank, shards);
}

// The first rank of each directory makes the folder there and the others write into it. What went wrong on any is rank
// 0's to tell.
Status CheckpointHook::SaveTogether(checkpoint::CheckpointKeeper* keeper, const std::string& path,
                                    const checkpoint::RunState& run) {
  Groups& groups = *options_.together;
  std::unique_ptr<checkpoint::CheckpointWriter> writer;
  const std::string& directory = options_.keeper.directory;
  std::string folder(1, kBad);
  if (keeper != nullptr) {
    auto created = checkpoint::CheckpointWriter::Create(path, companions_);
    if (created.ok()) folder = kGood + (writer = *std::move(created))->folder().substr(directory.size());
    if (!created.ok()) folder += std::string(created.status().message());
  } else if (leads()) {
    folder += "it could not make the folder";
  }
  // Without the directory, which the ranks may have under different paths.
  ASSIGN_OR_RETURN(const auto folders, GatherGood(groups, folder, &options_.places));
  std::vector<KeptTensor> first;  // rank 0 writes them itself
  ASSIGN_OR_RETURN(const auto differs, CompareVarying(&first));
  const size_t leader = options_.places.empty() ? 0 : static_cast<size_t>(options_.places[groups.rank()]);
  const auto mine = WriteOwnPart(absl::StrCat(directory, folders[leader]), differs);
  const auto text = mine.ok() ? checkpoint::SerializeManifest(*mine) : mine.status();
  ASSIGN_OR_RETURN(const auto texts,
                   GatherGood(groups, text.ok() ? kGood + *text : kBad + std::string(text.status().message())));
  if (one_place() && groups.rank() != 0) return absl::OkStatus();
  std::vector<checkpoint::Manifest> parts;
  for (const std::string& part : texts) {
    ASSIGN_OR_RETURN(parts.emplace_back(), checkpoint::ParseManifest(part));
  }
  return one_place() ? CommitParts(keeper, path, run, std::move(writer), std::move(parts))
                     : CommitPlaces(keeper, path, run, writer.get(), std::move(parts));
}

Status CheckpointHook::CommitParts(checkpoint::CheckpointKeeper* keeper, const std::string& path,
                                   const checkpoint::RunState& run,
                                   std::unique_ptr<checkpoint::CheckpointWriter> writer,
                                   std::vector<checkpoint::Manifest> parts) {
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
  return options_.async_save && !options_.recovers ? absl::OkStatus() : saver_.Wait();
}

// All directories get one manifest, rank 0's. None loses an older checkpoint before all have verified this one.
Status CheckpointHook::CommitPlaces(checkpoint::CheckpointKeeper* keeper, const std::string& path,
                                    const checkpoint::RunState& run, checkpoint::CheckpointWriter* writer,
                                    std::vector<checkpoint::Manifest> parts) {
  Groups& groups = *options_.together;
  const std::string place = path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
  ASSIGN_OR_RETURN(const auto folders, GatherGood(groups, kGood + place));
  ASSIGN_OR_RETURN(const auto hosts, GatherGood(groups, kGood + options_.host));
  for (size_t r = 0; r < parts.size(); ++r) {
    for (checkpoint::DataFile& file : parts[r].files) {
      file.folder = folders[static_cast<size_t>(options_.places[r])];
      file.host = hosts[static_cast<size_t>(options_.places[r])];
    }
  }
  const auto join = [&] { return checkpoint::JoinParts(run, parts); };
  ASSIGN_OR_RETURN(const std::string manifest, TextOfFirstRank(&groups, join, "saving a checkpoint"));
  Status done;
  if (keeper != nullptr) {
    done = writer->CommitManifest(manifest);
    if (done.ok()) done = checkpoint::CheckpointKeeper::Verify(path);
  }
  RETURN_IF_ERROR(GatherGood(groups, done.ok() ? std::string(1, kGood) : kBad + std::string(done.message())).status());
  if (keeper == nullptr) return absl::OkStatus();
  keeper->Keep(path, Now());
  NoteSaved(keeper, path);
  return absl::OkStatus();
}

void CheckpointHook::AtEnd(const TrainState& state, const Status& outcome) {
  const bool wanted = outcome.ok() || absl::IsCancelled(outcome)
                          ? options_.save_at_end
                          : options_.exception_save && options_.together == nullptr;  // the others may not come
  alone_ = !outcome.ok() && !absl::IsCancelled(outcome);
  if (wanted && state.whole && state.step > 0) Save(state);
  NoteFailure(saver_.Wait());
}

}  // namespace mslua
