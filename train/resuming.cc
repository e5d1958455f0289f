#include "train/resuming.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/base/version.h"
#include "core/checkpoint/begin_lineage.h"
#include "core/files/record_file.h"
#include "core/step/global_view.h"
#include "core/train/agreement.h"
#include "core/train/checkpoint_hook.h"
#include "core/train/counters_of_ranks.h"
#include "core/train/restore.h"
#include "train/notice.h"
#include "train/recoveries.h"
#include "train/run_folder.h"
#include "train/saved_tensors.h"
#include "train/unsaved_values.h"

namespace mslua {

std::string RatesText(const std::string& input, const Schedule& schedule, int64_t before) {
  constexpr int64_t kSteps = 10000;
  const std::string name = input == "lr" ? "learning rate" : input;
  std::vector<double> rates;
  for (int64_t step = 0; step < kSteps; ++step) rates.push_back(schedule.At(before + step));
  std::string text;
  for (size_t step = 1; step <= kSteps; step *= 10)
    absl::StrAppend(&text, name, " of step ", step, " ", rates[step - 1], "\n");
  absl::StrAppend(&text, name, "s of steps 1 to ", kSteps, " with the checksum ",
                  Crc32c(rates.data(), rates.size() * sizeof(double)), "\n");
  return text;
}

std::string ScheduleText(const TrainingSpec& spec) {
  std::string text = absl::StrCat("epochs ", spec.options.epochs, ", max_steps ", spec.options.max_steps, "\n");
  for (const RateSpec& rate : spec.rates) {
    if (!rate.function) absl::StrAppend(&text, RatesText(rate.input, rate.schedule, spec.options.before.steps));
  }
  return text;
}

std::string Resuming::IdentityText() const {
  std::string text = absl::StrCat(kVersion, "\n", spec_.recipe_hash, "\n", ScheduleText(spec_), "\n",
                                  spec_.options.seed, " ", rank_.state->ranks);
  for (const StepGraph* shape : spec_.graph->shapes())
    absl::StrAppend(&text, "\n", shape->common, "\n", absl::Hex(Fingerprint(shape->graph)));
  return Blake2bHex(text).substr(0, 32);
}

std::string Resuming::FamilyText() const {
  const std::string text = absl::StrCat(kVersion, "\n", spec_.name, "\n", spec_.recipe_hash, "\n", spec_.config, "\n",
                                        spec_.options.seed, "\n", spec_.options.epochs, "\n", spec_.options.max_steps);
  return Blake2bHex(text).substr(0, 32);
}

std::string Resuming::CheckpointsOf(const std::string& folder) const {
  if (!spec_.checkpoint_directory.empty()) return spec_.checkpoint_directory;
  return folder.empty() ? "" : absl::StrCat(folder, "/ckpt");
}

std::string Resuming::CheckpointDirectory() const {
  // A training that saves nothing has no folder, and may resume from the one that it is given.
  return CheckpointsOf(directory_->path().empty() ? rank_.flags.out : directory_->path());
}

std::string Resuming::SavedPlan() const {
  return kept_->found() ? kept_->record().plan : checkpoint() != nullptr ? checkpoint()->manifest().run.plan : "";
}

Status Resuming::Find() {
  RETURN_IF_ERROR(FindKept());
  if (kept_->found() || moved()) return absl::OkStatus();
  if (from_.empty()) from_ = rank_.flags.resume;
  if (from_.empty()) RETURN_IF_ERROR(FindOwnCheckpoint());
  return from_.empty() ? absl::OkStatus() : WithExitCode(OpenCheckpoint(), kExitStorage);
}

// What this job has kept of the training in memory.
Status Resuming::FindKept() {
  // A training whose turns are not kept in memory, as on a device, has a run folder of its own that is remembered.
  const bool counts = rank_.job != nullptr && (rank_.flags.keeps_turns || rank_.flags.saves);
  kept_ = std::make_unique<KeptTraining>(rank_.flags.keeps_turns ? rank_.job : nullptr,
                                         counts ? rank_.job->NextTraining() : 0, spec_.together, rank_.state->rank);
  RETURN_IF_ERROR(kept_->Find({IdentityText(), FamilyText()}));
  if (moved()) {
    ASSIGN_OR_RETURN(const bool as_new, CheckpointIsAsNew());
    if (!as_new) return TakeMoved();
    directory_->Use(kept_->record().folder);
    from_ = "last";
    kept_->DropMoved();
  }
  if (!kept_->found()) return absl::OkStatus();
  state_ = kept_->record().state;
  directory_->Use(kept_->record().folder);
  if (!directory_->path().empty()) RETURN_IF_ERROR(WithExitCode(MakeFolders(directory_->path()), kExitStorage));
  RETURN_IF_ERROR(directory_->Take());
  for (const auto& [path, bytes] : kept_->record().files)
    RETURN_IF_ERROR(absl::EndsWith(path, kRunEvents) ? TruncateEvents(path, bytes) : TruncateRecords(path, bytes));
  return absl::OkStatus();
}

// Ranks that have left a job which was not over have taken values of their own with them. Where the newest checkpoint
// is as new, it is the better one.
StatusOr<bool> Resuming::CheckpointIsAsNew() const {
  const TurnRecord& record = kept_->record();
  if (kept_->moved()->without_own() == 0 || record.lineage.empty()) return false;
  const std::string newest = checkpoint::NewestOfRun({CheckpointsOf(record.folder)}, record.lineage);
  int32_t older = 1;
  if (!newest.empty()) {
    const auto saved = checkpoint::LoadCheckpoint(newest);
    older = saved.ok() && (*saved)->manifest().run.step >= record.state.step ? 0 : 1;
  }
  if (spec_.together != nullptr) {
    ASSIGN_OR_RETURN(older, LargestOfRanks(*spec_.together, older, "whether a checkpoint is as new"));
  }
  return older == 0;
}

Status Resuming::TakeMoved() {
  resumed_ = kept_->moved()->Take();
  directory_->Use(kept_->record().folder);
  if (directory_->path().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(WithExitCode(MakeFolders(directory_->path()), kExitStorage));
  return directory_->Take();
}

std::string Resuming::FolderFile() const {
  if (!recovers()) return "";
  const Identity& identity = rank_.job->identity();
  const auto path = identity.recovery_path.empty() ? ImageKeeper::Folder(identity.recovery)
                                                   : StatusOr<std::string>(identity.recovery_path);
  const std::string own =
      spec_.together == nullptr && rank_.state->ranks > 1 ? absl::StrCat(".", rank_.state->rank) : "";
  return path.ok() ? absl::StrCat(*path, "/run_folder.", kept_->number(), own) : "";
}

Status Resuming::RememberFolder() const {
  if (!spec_.first() || directory_->path().empty() || FolderFile().empty()) return absl::OkStatus();
  const std::string& path = rank_.job->identity().recovery_path;
  if (!path.empty()) RETURN_IF_ERROR(MakeFolders(path));
  // Of a keeper that was killed, another process may remove the folder. The next keeper makes it again.
  constexpr int kTries = 3;
  Status written = WriteFileAtomically(FolderFile(), directory_->path());
  for (int i = 1; absl::IsNotFound(written) && i < kTries; ++i) {
    ASSIGN_OR_RETURN(ImageKeeper* const images, rank_.job->images());
    if (images == nullptr) return written;
    RETURN_IF_ERROR(images->KeepOwn());
    written = WriteFileAtomically(FolderFile(), directory_->path());
  }
  return written;
}

void Resuming::ForgetFolder() const {
  if (spec_.first() && !FolderFile().empty()) unlink(FolderFile().c_str());
}

// Where a job starts again and no memory has outlived it: the newest checkpoint of the run folder that was named.
Status Resuming::FindOwnCheckpoint() {
  if (!recovers()) return absl::OkStatus();
  const auto read = [this]() -> StatusOr<std::string> {
    if (FolderFile().empty()) return "";
    const auto remembered = ReadFile(FolderFile(), 1 << 16);
    return absl::IsNotFound(remembered.status()) ? "" : remembered;
  };
  ASSIGN_OR_RETURN(remembered_, TextOfFirstRank(spec_.together, read, "the run folder that is remembered"));
  const bool given = !rank_.flags.out.empty();
  const std::string& out = given ? rank_.flags.out : remembered_;
  const std::string directory = CheckpointsOf(out);
  if (directory.empty() || !spec_.has_checkpoint) return absl::OkStatus();
  const auto lacks = [](const std::string& folder) {
    const auto there = checkpoint::ListCheckpoints(folder);
    return there.ok() && !there->empty() ? 0 : 1;
  };
  std::array<int32_t, 2> without = {lacks(directory), lacks(directory + "/best")};
  if (spec_.together != nullptr)
    RETURN_IF_ERROR(LargestOfRanks(*spec_.together, absl::MakeSpan(without), "whether there are checkpoints"));
  if (without[0] != 0 && without[1] != 0) return absl::OkStatus();  // nothing is there to resume from
  from_ = without[0] == 0 ? "last" : "best";
  if (!given) directory_->Use(remembered_);
  return absl::OkStatus();
}

namespace {

// The checkpoint of `place`: this rank's alone, or the one that all ranks `together` open.
Status OpenPlace(Groups* together, const std::string& place, SharedCheckpoint* opened) {
  if (together == nullptr) {
    ASSIGN_OR_RETURN(opened->own, checkpoint::LoadCheckpoint(place));
  } else {
    ASSIGN_OR_RETURN(*opened, OpenOnAllRanks(*together, place));
  }
  return absl::OkStatus();
}

// FailedPrecondition where the place in the epoch is behind this run's last batch.
Status CheckPlace(const checkpoint::Checkpoint& from, const TrainState& state, int64_t steps_per_epoch) {
  if (state.step_in_epoch <= steps_per_epoch) return absl::OkStatus();
  const auto saved = static_cast<int64_t>(CounterOf(from.manifest().run.counters, kEpochStepsCounter, 0));
  return absl::FailedPreconditionError(
      absl::StrCat(from.path(), " was saved after batch ", state.step_in_epoch,
                   saved > 0 ? absl::StrCat(" of ", saved) : "", " of an epoch, and the dataset has ", steps_per_epoch,
                   " batches an epoch: resume with the dataset that it was trained with; --init-from=", from.path(),
                   " starts a training on another one with its values"));
}

}  // namespace

Status Resuming::OpenCheckpoint() {
  RETURN_IF_ERROR(directory_->Find(from_));
  RETURN_IF_ERROR(directory_->Take());  // before the newest checkpoint is looked for
  std::string directory = CheckpointDirectory();
  // The recipe named another directory when the run saved them.
  if (spec_.checkpoint_directory.empty() && !directory_->path().empty())
    directory = checkpoint::CheckpointsOfRun(directory_->path());
  ASSIGN_OR_RETURN(const std::string place, CheckpointPlace(from_, spec_.name, directory));
  const Status opened = OpenPlace(spec_.together, place, &resumed_);
  if (!absl::IsNotFound(opened) || (from_ != "last" && from_ != "best")) return opened;
  return absl::NotFoundError(absl::StrCat(
      opened.message(), "; without --resume the training begins, and --resume=PATH names a checkpoint elsewhere"));
}

// The place in the epoch where a run with other batches continues: the batch that the next sample is in. An epoch whose
// steps were all made has no next one: the samples behind its last full batch are left out, as that run would have.
void Resuming::FindPlace(int64_t rows, int64_t steps_per_epoch) {
  const bool shapes = !spec_.graph->other_shapes.empty();
  const checkpoint::RunState& run = checkpoint()->manifest().run;
  const auto saved = static_cast<int64_t>(CounterOf(run.counters, kRowsCounter, 0));
  const bool same_rows = saved == 0 || saved == rows;
  if (EndsEpoch(run, INT64_MAX) && (!same_rows || state_.step_in_epoch > steps_per_epoch)) {
    state_.step_in_epoch = steps_per_epoch;
    return;
  }
  if (same_rows) return;
  state_.step_in_epoch = std::min(state_.step_in_epoch * saved / rows, steps_per_epoch);
  if (state_.step_in_epoch == 0 || !spec_.first()) return;
  PrintNote(absl::StrCat("global batches were of ", saved, " rows and are of ", rows, ": the epoch continues at batch ",
                         state_.step_in_epoch + 1,
                         shapes ? ", and with buckets some of its samples may come again or be left out" : ""));
}

Status Resuming::CompareSteps() const {
  ASSIGN_OR_RETURN(const auto steps,
                   GatherTexts(*spec_.together, absl::StrCat(state_.step), "the steps of checkpoints"));
  for (size_t r = 1; r < steps.size(); ++r) {
    if (steps[r] != steps[0]) {
      return absl::InvalidArgumentError(absl::StrCat("rank 0 would resume at step ", steps[0], ", rank ", r,
                                                     " from step ", steps[r], ": give all ranks one checkpoint"));
    }
  }
  return absl::OkStatus();
}

// FailedPrecondition where the checkpoint has values of several ranks of a layerwise_parallel parameter, or of its
// optimizer's state, and this run is of fewer ranks or keeps it alike on all of them: it would lose values.
Status Resuming::CheckOwnValues(const TensorNames& names, const TensorParts& parts) const {
  // Of running statistics fewer ranks take theirs.
  absl::flat_hash_set<std::string> varying;
  for (const auto& p : spec_.parameters) {
    if (p->MayVary()) varying.insert(KeyOf(*rank_.state, *p));
  }
  std::map<absl::string_view, bool> own;  // by name: whether each rank of this run has a value of its own
  for (const auto& [key, name] : names) {
    const auto part = parts.find(key);
    if (!varying.contains(key)) own[name] = part != parts.end() && part->second.own;
  }
  const int64_t ranks = rank_.state->ranks, saved = checkpoint()->manifest().run.world;
  std::set<std::string> lost;
  bool alike = false;
  for (const checkpoint::TensorRecord& t : checkpoint()->manifest().tensors) {
    absl::string_view name = t.name;
    int64_t rank = 0;
    if (!absl::ConsumePrefix(&name, kRankPrefix) || !absl::SimpleAtoi(name.substr(0, name.find('/')), &rank)) continue;
    const auto found = own.find(name.substr(name.find('/') + 1));
    if (found == own.end()) continue;
    if (found->second && rank < ranks) continue;
    alike |= !found->second;
    lost.insert(std::string(found->first));
  }
  if (lost.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      checkpoint()->path(), " has values of ", saved, " ranks of their own of ", absl::StrJoin(lost, ", "),
      " (layerwise_parallel): expected ", saved, " ranks that train data parallel with them layerwise_parallel, got ",
      ranks, ranks == 1 ? " rank" : " ranks", alike ? ", alike on all of which they would be" : "", ": start ", saved,
      " ranks as that run did, or save the values of one rank as a file and give it to --init-from "
      "(docs/howto/data_parallel.md, The values of one rank)"));
}

Status Resuming::ReadCheckpoint(const TensorNames& names, const TensorParts& parts, int64_t rows,
                                int64_t steps_per_epoch, RestoreReport* report) {
  RankState& state = *rank_.state;
  const auto saved = [this](const std::string& name) { return checkpoint()->Find(name) != nullptr; };
  RETURN_IF_ERROR(CheckOwnValues(names, parts));
  RETURN_IF_ERROR(MakeValues(state, spec_, saved));
  ASSIGN_OR_RETURN(state_, RestoreCheckpoint(spec_.together, resumed_, state.store, names, parts, state.rank, report));
  FindPlace(rows, steps_per_epoch);
  if (spec_.together != nullptr) RETURN_IF_ERROR(CompareSteps());
  return CheckPlace(*checkpoint(), state_, steps_per_epoch);
}

// Makes the tensors that the image has.
Status Resuming::MakeKeptValues() const {
  absl::flat_hash_set<std::string> kept;
  for (const TurnTensor& tensor : kept_->record().tensors) kept.insert(tensor.name);
  for (const auto& p : spec_.parameters) {
    if (rank_.state->store.Find(KeyOf(*rank_.state, *p)) == nullptr && kept.contains(p->key))
      RETURN_IF_ERROR(ValueOf(*rank_.state, *p).status());
  }
  return absl::OkStatus();
}

Status Resuming::Restore(const TensorNames& names, const TensorParts& parts, int64_t rows, int64_t steps_per_epoch) {
  ASSIGN_OR_RETURN(unsaved_, DigestOfUnsaved(*rank_.state, spec_.parameters, spec_.parameter_names, spec_.together));
  if (kept_->found()) return MakeKeptValues();
  if (checkpoint() == nullptr) return absl::OkStatus();
  RestoreReport report;
  RETURN_IF_ERROR(WithExitCode(ReadCheckpoint(names, parts, rows, steps_per_epoch, &report), kExitStorage));
  const double saved = CounterOf(checkpoint()->manifest().run.counters, kUnsavedCounter, 0);
  RETURN_IF_ERROR(WithExitCode(
      CompareUnsaved(saved, unsaved_, checkpoint()->path(), spec_.parameters, spec_.parameter_names), kExitStorage));
  if (!checkpoint()->note().empty()) PrintNote(checkpoint()->note());
  const GlobalView* const view = rank_.state->view.get();
  const bool has_all = !spec_.graph->sharded || view->stages() == 1;  // else the other stages have the rest
  if (!report.ignored.empty() && has_all)
    PrintNote(absl::StrCat(checkpoint()->path(),
                           " has tensors that this run does not: ", absl::StrJoin(report.ignored, ", ")));
  if (!spec_.first()) return absl::OkStatus();
  if (!report.renamed.empty())
    PrintNote(absl::StrCat(checkpoint()->path(), " has other names, of a part or a wrapper of this network: ",
                           absl::StrJoin(report.renamed, ", ", absl::PairFormatter(" from "))));
  if (moved()) {
    again_ = kept_->steps_again();
    absl::FPrintF(stderr, "mslua: resuming from memory at step %d on %d ranks, kept by %d (%d %s computed again)\n",
                  state_.step, rank_.state->ranks, kept_->record().world, again_, again_ == 1 ? "step" : "steps");
    if (const int64_t without = kept_->moved()->without_own(); without > 0) {
      PrintNote(absl::StrCat("the running statistics of ", without, without == 1 ? " rank" : " ranks",
                             " are lost with the host that had them: the steps that follow differ in the last digits"));
    }
    return absl::OkStatus();
  }
  absl::FPrintF(stderr, "mslua: resuming from %s at step %d\n", checkpoint()->path(), state_.step);
  NoteDifferences(rows, steps_per_epoch);
  NoteOtherRanks(names, parts);
  return absl::OkStatus();
}

// What a checkpoint that rank 0 saved alone lacks.
void Resuming::NoteOtherRanks(const TensorNames& names, const TensorParts& parts) const {
  if (CounterOf(checkpoint()->manifest().run.counters, kFirstRankCounter, 0) == 0) return;
  std::vector<std::string> missing;
  for (const auto& [key, name] : names) {
    const auto part = parts.find(key);
    if (part != parts.end() && part->second.varies) missing.push_back(name);
  }
  if (missing.empty()) return;
  std::sort(missing.begin(), missing.end());
  PrintNote(absl::StrCat(checkpoint()->path(), " was saved by rank 0 alone, after an error: the other ranks take ",
                         absl::StrJoin(missing, ", "),
                         " from rank 0, and the steps that follow differ in the last digits"));
}

// What makes the steps that follow others than those of the run that was saved.
void Resuming::NoteDifferences(int64_t rows, int64_t steps_per_epoch) const {
  const checkpoint::RunState& saved = checkpoint()->manifest().run;
  if (!checkpoint()->has_manifest()) return;
  // Where batches have other sizes, their number says nothing of the dataset.
  const bool countable =
      spec_.graph->other_shapes.empty() && static_cast<int64_t>(CounterOf(saved.counters, kRowsCounter, 0)) == rows;
  const auto steps = static_cast<int64_t>(CounterOf(saved.counters, kEpochStepsCounter, steps_per_epoch));
  if (countable && state_.step_in_epoch > 0 && state_.step_in_epoch < steps && steps != steps_per_epoch) {
    PrintNote(absl::StrCat(checkpoint()->path(), " was saved in an epoch of ", steps, " batches, and the dataset has ",
                           steps_per_epoch, ": in this epoch some samples come again and some are left out"));
  }
  if (saved.seed != spec_.options.seed) {
    PrintNote(absl::StrCat(checkpoint()->path(), " was saved with seed ", saved.seed, ", this run has seed ",
                           spec_.options.seed, ": the order of samples and random numbers differ from here on"));
  }
  if (!saved.recipe_hash.empty() && !spec_.recipe_hash.empty() && saved.recipe_hash != spec_.recipe_hash) {
    PrintNote(absl::StrCat("the recipe's file has changed since ", checkpoint()->path(), " was saved"));
  }
}

Status Resuming::PlaceTrainer(Trainer* trainer) const {
  if (checkpoint() == nullptr) return absl::OkStatus();
  const checkpoint::RunState& run = checkpoint()->manifest().run;
  const int64_t ranks = spec_.together == nullptr ? 1 : spec_.together->size();
  const int64_t rank = spec_.together == nullptr ? 0 : spec_.together->rank();
  RETURN_IF_ERROR(trainer->Restore(state_, CountersOfRank(run.counters, run.world, rank, ranks)));
  for (const std::string& intervention : run.interventions) trainer->AddIntervention(intervention);
  return absl::OkStatus();
}

Status Resuming::KeepTurns(const std::string& plan, const std::string& lineage, const KeptTraining::Keeping& keeping) {
  TurnRecord fixed;
  fixed.identity = IdentityText();
  fixed.family = FamilyText();
  fixed.folder = directory_->path();
  fixed.plan = plan;
  fixed.lineage = lineage;
  RETURN_IF_ERROR(kept_->Keep(std::move(fixed), keeping));
  if (!kept_->found()) return absl::OkStatus();
  Trainer& trainer = *keeping.progress->trainer;
  RETURN_IF_ERROR(trainer.Restore(state_, kept_->record().counters));
  for (const std::string& intervention : kept_->record().interventions) trainer.AddIntervention(intervention);
  if (!spec_.first()) return absl::OkStatus();
  again_ = kept_->steps_again();
  absl::FPrintF(stderr, "mslua: resuming from memory at step %d (%d %s computed again)\n", state_.step, again_,
                again_ == 1 ? "step" : "steps");
  return absl::OkStatus();
}

void Resuming::RecordRecovery(int64_t step) const {
  if (!recovers() || rank_.job->epoch() == 1 || directory_->path().empty() || !spec_.first()) return;
  const bool begins = !from_memory() && checkpoint() == nullptr;
  // A script's later trainings, which the processes before had not come to.
  if (begins && kept_->number() > 0 && !SameFolder()) return;
  Recovery recovery;
  recovery.step = step;
  recovery.epoch = rank_.job->epoch();
  recovery.ranks = rank_.state->ranks;
  recovery.from = from_memory() ? "memory" : begins ? "the beginning" : checkpoint()->path();
  recovery.again = again_;
  recovery.cause = rank_.job->restart_cause();
  const Status added = AddRecovery(directory_->path(), recovery);
  if (!added.ok()) PrintNote(absl::StrCat("the recovery is not recorded: ", added.message()));
}

std::string Resuming::NewestSaved(const std::string& directory) const {
  const std::string& run = kept_->record().lineage;
  return run.empty() ? "" : checkpoint::NewestOfRun({directory, directory + "/best"}, run);
}

}  // namespace mslua
