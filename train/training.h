// A run of the step loop (core/train) as a TrainingSpec describes it: data, hooks, checkpoints, signals, who may
// attach.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attach/server/endpoint.h"
#include "core/step/plan_decisions.h"
#include "core/train/early_stopping_hook.h"
#include "core/train/evaluator.h"
#include "core/train/loss_scale_hook.h"
#include "core/train/monitor.h"
#include "train/notice.h"
#include "train/resuming.h"
#include "train/run_directory.h"
#include "train/signal_scope.h"
#include "train/training_spec.h"

namespace mslua {

// Everything that lives as long as one training. Members die in the opposite order of their making.
class Training {
 public:
  // Both outlive it. spec->progress says what was found, also afterwards.
  Training(TrainingSpec* spec, const TrainingRank& rank)
      : spec_(*spec), rank_(rank), directory_(spec_, rank_), resuming_(spec_, rank_, &directory_) {}
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // The last epoch's mean loss. The status has an exit code where another one than an internal error's is right.
  StatusOr<double> Run();
  // Trains as long as measuring `steps` steps takes, prints the profile (as JSON, the steps alone) and writes the trace
  // to a file, "" for none. Nothing is saved.
  Status Profile(int64_t steps, bool steps_only, bool json, const std::string& trace);

 private:
  StatusOr<double> TrainToEnd();
  // Data, step, the checkpoint to resume from.
  Status Prepare();
  // Records, trainer.
  Status MakeTrainer();
  Status CompareStart();
  Status OpenData();
  Status ComparePrograms() const;
  Status CompareCollectives(const Executable* program) const;
  Status OpenRecords();
  StatusOr<std::vector<ScheduledScalar>> Scalars();
  StatusOr<double> RateOf(const RateSpec& rate, int64_t step);
  StatusOr<bool> AgreeToStop(bool stop);
  // Of a global batch, which ranks have one each of.
  int64_t Parts() const { return data_.divided ? data_.feeds : 1; }
  // Rows of a batch over all ranks, with buckets of the longest.
  int64_t GlobalRows() const { return data_.pipeline->rows() * Parts(); }

  // In the order in which they act: an evaluation's numbers are there for the metrics, the checkpoint, the callbacks.
  Status AddHooks();
  StatusOr<std::unique_ptr<MetricsHook>> MakeMetrics();
  Status AddEvaluation();
  void AddStatusLine();
  Status AddSummaries();
  Status CheckHistograms() const;
  Status AddProfile();
  Status AddCheckpoints();
  void AddWatchers();
  template <typename Hook>
  Hook* Add(std::unique_ptr<Hook> hook);
  bool WatchesOwnLosses(const TrainingSpec::Watch& watch) const;
  Monitor MonitorOf(const TrainingSpec::Watch& watch, const char* owner, const char* key);
  void RecordMatrices(const FinishedMetrics& finished) const;
  void RecordSamples(const std::vector<std::string>& labels) const;

  Status KeepTurns();
  Status AddFault();
  void PrintPlan() const;
  std::string NothingLeft() const;
  Status RecordConfig(bool no_step) const;
  endpoint::TrainingView View();
  SignalScope::Console SignalConsole() const;
  void ReportCrashes();
  StatusOr<double> Finish(Status outcome);
  // What a training that has ended with `outcome` gives, its checkpoint saved or not.
  Status OutcomeOf(Status outcome) const;

  Progress& progress() { return spec_.progress; }
  const Progress& progress() const { return spec_.progress; }
  Groups* together() const { return spec_.together; }
  bool first() const { return spec_.first(); }

  TrainingSpec& spec_;
  const TrainingRank& rank_;
  TrainingData data_;
  std::unique_ptr<data::Loader> loader_, eval_loader_;
  Decisions decisions_;  // of the training step's plan
  std::string machine_;  // that it was made for
  std::unique_ptr<Executable> executable_, eval_executable_;
  RunDirectory directory_;
  bool done_ = false;  // trained to the end
  RecordHealth health_{PrintNote};
  Resuming resuming_;
  TensorParts parts_;
  TensorNames names_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<LossScaleHook> loss_scale_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CrashFile> crash_file_;  // null: nothing is saved
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<std::unique_ptr<TrainHook>> hooks_;
  CheckpointHook* checkpoint_hook_ = nullptr;
  // Lineage::run of this training's checkpoints, also on ranks that save none; empty: there are none.
  std::string lineage_;
  EvalHook* eval_hook_ = nullptr;
  EarlyStoppingHook* early_stopping_ = nullptr;
  UserHook* user_hook_ = nullptr;
  std::unique_ptr<endpoint::Endpoint> endpoint_;  // null: nobody can attach
};

}  // namespace mslua
