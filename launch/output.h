// What the launcher prints, written by a thread of its own: a reader that does not read must not keep the launcher from
// hearing signals and from seeing that ranks end.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/status.h"

namespace mslua {

// What a failed write to the standard output means: `error` is its errno. OK for 0, and for EPIPE: a reader that has
// closed its end wants no more. Else a part of what was printed is lost, which has the exit code kExitStorage.
Status LossOfOutput(int error);
// Writes what stdio still holds for the standard output; LossOfOutput where this write or an earlier one failed.
Status FlushStandardOutput();

class Output {
 public:
  // Writes to `fd`, which the caller keeps open. `wake` is an eventfd that is written when there is space again.
  Output(int fd, int wake);
  // Does not wait: what has not been written yet is lost.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Any thread; never waits. Texts are written in the order of the calls.
  void Write(absl::string_view text);
  // Whether so much waits for the reader that the caller should stop to read its source.
  bool Full() const;
  // Waits until everything is written; false when that takes longer than `limit`. True as well when writing fails, as
  // it does once the reader has closed its end: nobody will read the rest.
  bool Flush(absl::Duration limit);
  // errno of the write that failed; 0: none has.
  int error() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may hang in write() for ever
};

}  // namespace mslua
