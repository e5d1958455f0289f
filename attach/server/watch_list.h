// What clients have asked to see of the values of steps: watches, and values that are shown once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attach/server/command.h"
#include "attach/server/training_view.h"
#include "attach/server/watch.h"
#include "core/train/trainer.h"

namespace mslua::endpoint {

// How a boundary speaks to clients, from the training thread.
struct Outlet {
  std::function<void(const Request& request, const StatusOr<Answer>& answer)> answer;
  std::function<void(uint64_t client, const std::string& line)> event;  // client 0: all of them
  // This rank, which pauses after so many steps, is asked to stop: all ranks are to leave the pause.
  std::function<void(int64_t step)> leaves;
};

// A value that a request has asked for, after so many steps.
struct Shown {
  const TrainingView& view;
  const Request& request;
  const Named& named;
  TensorView value;
  int64_t step;
};
using Describe = StatusOr<Answer> (*)(const Shown& shown);

// Belongs to a boundary, on the training thread.
class WatchList {
 public:
  WatchList(const TrainingView& view, const Outlet& outlet) : view_(view), outlet_(outlet) {}

  // From the first boundary on.
  Watched& values();

  // The value that a request names, and which ranks tell of it: those that it names, else the first that has it.
  // NotFound: nothing fits, or none of the ranks that the request names has it.
  // `whole`: where no rank is named, a parameter or state that the ranks have parts of is the whole one.
  StatusOr<Named> Find(const std::string& name, bool whole, Request* request);
  // Statistics every `every` steps, `limit` times. Not OK: no plan shows the value.
  Status Add(const Request& request, const Named& named, int64_t every, int64_t limit);
  // A client's watches of a value, or all where `name` is empty; gives how many there were.
  size_t Remove(uint64_t client, const std::string& name);
  // The answer that `describe` gives of the value, `whole` as in Find: now where it is shown; else after the next step,
  // and until then `*later` - or, while the job is paused, a first answer that says so: the client would wait for a
  // step that it holds up.
  StatusOr<Answer> ShowOnce(const Request& request, const std::string& name, bool whole, Describe describe,
                            int64_t step, bool paused, bool* later);
  void Forget(uint64_t client);

  // After a step: what is watched and wanted.
  void Report(const TrainState& state);
  // The running plan shows what is watched, and nothing else.
  Status ShowWanted();
  bool empty() const { return watches_.empty() && once_.empty(); }
  // "watch Net/relu every 5, 95 samples left", one a line.
  std::string Text() const;
  // Nothing more is shown; the requests that wait are added to `unanswered`.
  void Close(std::vector<Request>* unanswered);

 private:
  struct Watch {
    uint64_t client;
    Named named;
    int64_t every, left;
    bool reports;
  };
  struct Once {
    Request request;
    Named named;
    Describe describe;
    int64_t from;  // to be answered after more steps than this
  };
  StatusOr<Answer> Answered(const Once& once, int64_t step);
  void Tell(const Once& once, StatusOr<Answer> answer);

  const TrainingView& view_;
  const Outlet& outlet_;
  std::unique_ptr<Watched> watched_;
  std::vector<Watch> watches_;
  std::vector<Once> once_;
};

}  // namespace mslua::endpoint
