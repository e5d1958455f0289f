// A process of a host that keeps the images of a job's ranks (core/image/image.h) while those end and start again. It
// is reached through a folder that only this user can enter, and ends with the job, or some time after the last process
// of the job has gone.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "rendezvous/socket.h"

namespace mslua {

// How long images wait for a job that has ended without saying that it is over.
inline constexpr absl::Duration kKeepImages = absl::Seconds(60);

// The names of what a rank keeps there: the image of its training number `training` (from 0), and the one that it has
// committed to last. A job that continues on another number of ranks makes images of a new generation.
std::string ImageOf(int64_t training, int rank, int64_t generation);
// That of such a name; 0: it has none.
int64_t GenerationOf(const std::string& image);
std::string NewestImageOf(int rank);
// Where the names of a training's images, of a rank's in it, and of all NewestImageOf begin.
std::string ImagesOf(int64_t training);
std::string ImagesOfRank(int64_t training, int rank);
inline constexpr char kNewestImages[] = "newest.";
// The name of the checkpoint that a rank is writing there (checkpoint::UnfinishedSave).
std::string UnfinishedSaveOf(int64_t training, int rank);

// A connection to it. While there is one, the images stay. Any thread may use it. The process may be killed like any
// other of the job: each connection of a rank, or that mirrors, starts another one then, at once, and gives it what it
// has; other connections do when they are used next.
class ImageKeeper {
 public:
  // Of the job of that name; the process is started where there is none. The time from the last connection's end on is
  // that of the call that starts it.
  static StatusOr<std::unique_ptr<ImageKeeper>> Connect(const std::string& job, absl::Duration keep = kKeepImages);
  ~ImageKeeper();

  // The folder of the job's keeper, which is there as long as it: for what the job's processes tell the next ones.
  static StatusOr<std::string> Folder(const std::string& job);

  // Keeps the memory behind `descriptor` as `name` (without spaces and line breaks), instead of what it had.
  Status Put(const std::string& name, int descriptor);
  // A descriptor of what it keeps as `name`; none: nothing.
  StatusOr<Fd> Get(const std::string& name);
  // A descriptor of what this connection has put there as `name`; none: nothing, or the connection is in use. Does not
  // wait for the process.
  Fd GetOwn(const std::string& name);
  // All that it keeps under names that begin so, by name.
  struct Kept {
    std::string name;
    Fd memory;
  };
  StatusOr<std::vector<Kept>> List(const std::string& prefix);
  Status Drop(const std::string& name);
  // All that this connection has put there.
  Status DropOwn();
  // Returns when the process has what this connection has put there: it is started again where it has been killed.
  Status KeepOwn();
  // The job is over: nothing is kept any more.
  Status End();

  // From now on this connection has all that the process has, too: what a rank had put there survives the process and
  // the rank, though both are killed at once. Starts a thread.
  Status Mirror();

  // Says that this process is a rank of the job's start number `start` (from 0), until it says that it has ended in
  // order, or its connection ends without that.
  Status BeRank(int64_t start);
  Status EndInOrder();
  // The ranks of that start that have come, are there, and were lost without a word.
  struct Ranks {
    int64_t came = 0, present = 0, lost = 0;
  };
  StatusOr<Ranks> RanksOf(int64_t start);

 private:
  ImageKeeper(std::string job, absl::Duration keep, Fd socket)
      : job_(std::move(job)), keep_(keep), socket_(std::move(socket)) {}
  StatusOr<Packet> Ask(const std::string& request, int descriptor = -1);
  // With mutex_.
  StatusOr<Packet> AskHeld(const std::string& request, int descriptor = -1);
  Status Revive();
  // Takes what the process has said that others put and dropped.
  Status Follow();
  // Asks for it, and takes what there is.
  Status Subscribe();
  Status StartWatching();
  // The thread of a rank, or of a mirror: waits for the end of the process, follows what it says.
  void Watch();

  const std::string job_;
  const absl::Duration keep_;
  std::mutex mutex_;  // of a question and its answer
  Fd socket_;
  int64_t revivals_ = 0;
  std::map<std::string, Fd> own_;  // what it has put there
  int64_t start_ = -1;             // which it is a rank of; -1: of none
  bool mirrors_ = false;
  Fd news_;                             // of a mirror: what the process says; none: it has not been asked
  std::map<std::string, Fd> mirrored_;  // what the process has
  bool over_ = false;                   // the images are not needed any more
  bool ending_ = false;                 // watcher_ is to end
  Fd wake_;                             // readable when watcher_ is to look what has changed
  std::thread watcher_;
};

// The process itself: goes into the background, where it serves until the job is over. Gives the exit code of the
// process that was called, which ends as soon as others can connect.
int RunImageKeeper(const std::string& job, absl::Duration keep);

}  // namespace mslua
