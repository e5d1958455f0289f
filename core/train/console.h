// What training prints on stdout: `epoch: 1 step: 156, loss is 2.0084016`, one line a step, thinned on request.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/files/record_file.h"

namespace mslua {

// Lines are collected and written together a few times a second, at once on a terminal; Flush writes the rest.
// One thread uses a Console.
class Console {
 public:
  struct Options {
    bool enabled = true;             // this rank prints
    int64_t log_every = 1;           // steps of the training between loss lines; 0: none
    std::string prefix;              // "[rank 2] ", before the lines on `out` alone
    std::string log_path;            // rank_<r>.log: gets every line, also of a rank that does not print
    RecordHealth* health = nullptr;  // of the log; outlives the console. Null where there is no log
  };
  explicit Console(const Options& options, std::FILE* out = stdout);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // After `done` steps of the training. `epoch` and `step` (within the epoch) count from 1. The loss is printed as the
  // shortest float32 that reads back.
  void Loss(int64_t done, int64_t epoch, int64_t step, float loss) {
    if (log_every_ > 0 && done % log_every_ == 0) PrintLoss(epoch, step, loss);
  }
  void Line(absl::string_view text);
  void Flush();
  // What else stands on the terminal, such as a status line: `hide` is called before lines are written and by Flush,
  // `show` after lines were written. Null: nothing.
  void SetBeside(std::function<void()> hide, std::function<void()> show) {
    hide_ = std::move(hide);
    show_ = std::move(show);
  }
  // Whether log_path could be opened.
  const Status& opened() const { return opened_; }

 private:
  void PrintLoss(int64_t epoch, int64_t step, float loss);
  void MaybeFlush();
  void Write();

  const bool enabled_, terminal_;
  const int64_t log_every_;
  const std::string prefix_;
  std::FILE* const out_;
  std::unique_ptr<RecordFile> log_;
  Status opened_;
  std::string buffer_;
  std::function<void()> hide_, show_;
  std::chrono::steady_clock::time_point flushed_;
};

// The epoch and the step within it of a line that Console::Loss has written; false: it is another line.
bool ReadLossLine(absl::string_view line, int64_t* epoch, int64_t* step);
// The epoch of a line with its mean loss, which EpochHook prints at its end, and of how many steps it is: of all
// (INT64_MAX), or of those that training ended after. False: it is another line.
bool ReadMeanLossLine(absl::string_view line, int64_t* epoch, int64_t* steps);

}  // namespace mslua
