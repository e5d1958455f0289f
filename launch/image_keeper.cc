#include "launch/image_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/spawn.h"
#include "rendezvous/local_meeting.h"

extern char** environ;

namespace mslua {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(30);  // of the process, which does nothing that takes time
constexpr absl::Duration kStart = absl::Seconds(30);
constexpr char kHello[] = "hello", kDone[] = "done", kNothing[] = "nothing";
// What has changed, for the mirrors; the requests too.
constexpr char kPut[] = "put ", kDrop[] = "drop ";
constexpr size_t kMostClients = 4096;
constexpr int kMostKilled = 3;                              // starts in a row of a process that a signal ends
constexpr int kMostRevivals = 3;                            // while one question is asked
constexpr absl::Duration kPause = absl::Milliseconds(100);  // after a revival
constexpr absl::Duration kLongPause = absl::Seconds(1);     // after one that has failed

// The folder's name that stands for the job.
std::string FolderOf(const std::string& job) { return absl::StrCat("meet-images-", job); }

StatusOr<std::string> SocketOf(const std::string& job) {
  ASSIGN_OR_RETURN(const std::string folder, ImageKeeper::Folder(job));
  return MeetingSocket(folder);
}

// Starts `mslua keep`, which ends when its images can be reached. Aborted: a signal has ended it.
Status StartKeeper(const std::string& job, absl::Duration keep) {
  const std::string seconds = absl::StrCat(absl::ToDoubleSeconds(keep));
  const std::vector<std::string> words = {"mslua", "keep", job, "--seconds", seconds};
  const SpawnAttributes attributes({}, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);  // it stays: a pipe of this process would not end
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &files, attributes.get(), SpawnTexts(words).data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return absl::ErrnoToStatus(error, "starting mslua keep");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFSIGNALED(status)) {
    return absl::AbortedError(
        absl::StrCat("mslua keep was killed by signal ", WTERMSIG(status), " before it could be reached"));
  }
  return absl::UnavailableError("mslua keep has ended before it could be reached");
}

StatusOr<Packet> Exchange(const Fd& socket, const std::string& request, int descriptor) {
  RETURN_IF_ERROR(SendPacket(socket, request, descriptor));
  ASSIGN_OR_RETURN(Packet answer, ReceivePacket(socket, MonotonicNow() + kAnswer));
  if (answer.bytes != kDone && answer.bytes != kNothing && !absl::StartsWith(answer.bytes, absl::StrCat(kDone, " ")))
    return absl::DataLossError(absl::StrCat("mslua keep answers '", PrintableMessage(answer.bytes), "'"));
  return answer;
}

// `ask` gives the process a request.
StatusOr<std::vector<ImageKeeper::Kept>> ListBy(
    const std::string& prefix, const std::function<StatusOr<Packet>(const std::string& request)>& ask) {
  std::vector<ImageKeeper::Kept> all;
  std::string after = prefix;
  while (true) {
    ASSIGN_OR_RETURN(Packet answer, ask(absl::StrCat("next ", prefix, " ", after)));
    absl::string_view name = answer.bytes;
    if (!absl::ConsumePrefix(&name, absl::StrCat(kDone, " "))) return all;
    after = std::string(name);
    all.push_back({after, std::move(answer.descriptor)});
  }
}

// Connects to the job's process, which is started where there is none.
StatusOr<Fd> Reach(const std::string& job, absl::Duration keep) {
  ASSIGN_OR_RETURN(const std::string path, SocketOf(job));
  const MonotonicTime deadline = MonotonicNow() + kStart;
  int killed = 0;
  while (true) {
    auto socket = ConnectMeeting(path, SOCK_SEQPACKET);
    Status there = socket.status();
    // A connection that waits to be accepted does not hold a keeper that ends: once it has answered, it stays.
    if (socket.ok()) there = Exchange(*socket, kHello, -1).status();
    if (there.ok()) return std::move(*socket);
    const bool later = absl::IsUnavailable(there);
    if (!later || MonotonicNow() >= deadline) {
      return WithExitCode(absl::Status(there.code(), absl::StrCat("mslua keep: ", there.message())), kExitEnvironment);
    }
    if (socket.ok()) continue;
    // Several ranks may start one at once: those that come second find the folder held.
    const Status started = StartKeeper(job, keep);
    if (absl::IsAborted(started) && ++killed < kMostKilled) continue;
    RETURN_IF_ERROR(WithExitCode(started, kExitEnvironment));
  }
}

class Keeper {
 public:
  Keeper(Fd listener, absl::Duration keep) : listener_(std::move(listener)), keep_(keep) {}

  void Serve() {
    MonotonicTime alone_since = MonotonicNow();
    while (!over_) {
      std::vector<pollfd> entries;
      for (const Client& client : clients_) entries.push_back({client.socket.get(), POLLIN, 0});
      if (clients_.size() < kMostClients) entries.push_back({listener_.get(), POLLIN, 0});
      // Nobody comes back for nothing.
      if (clients_.empty() && served_ && images_.empty()) return;
      const absl::Duration left = alone_since + keep_ - MonotonicNow();
      if (clients_.empty() && left <= absl::ZeroDuration()) return;
      const absl::Duration most = std::min<absl::Duration>(left, absl::Hours(1));
      const int wait = clients_.empty() ? static_cast<int>(absl::ToInt64Milliseconds(most)) + 1 : -1;
      poll(entries.data(), entries.size(), wait);
      const size_t before = clients_.size();
      for (size_t i = 0; i < before && !over_; ++i) {
        if (entries[i].revents != 0 && !Answer(clients_[i])) Part(clients_[i]);
      }
      if (entries.size() > before && entries.back().revents != 0) {
        Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client && IsOwn(client)) {
          clients_.emplace_back();
          clients_.back().socket = std::move(client);
          served_ = true;
        }
      }
      const auto gone = [](const Client& c) { return !c.socket; };
      clients_.erase(std::remove_if(clients_.begin(), clients_.end(), gone), clients_.end());
      if (!clients_.empty()) alone_since = MonotonicNow();
    }
  }

 private:
  static constexpr int kMirrorLag = 200;  // milliseconds

  struct Client {
    Fd socket;
    int64_t start = -1;  // of the job, which it is a rank of; -1: of none
    bool mirrors = false;
  };

  // A mirror that does not keep up is waited for a little. Then it has to ask again, from the start.
  void TellMirrors(const std::string& news, int descriptor) {
    for (Client& client : clients_) {
      if (!client.mirrors || SendPacket(client.socket, news, descriptor).ok()) continue;
      pollfd entry = {client.socket.get(), POLLOUT, 0};
      const bool again = poll(&entry, 1, kMirrorLag) == 1 && (entry.revents & POLLOUT) != 0;
      if (!again || !SendPacket(client.socket, news, descriptor).ok()) client.socket.Close();
    }
  }

  void Keep(const std::string& name, Fd memory) {
    TellMirrors(kPut + name, memory.get());
    images_[name] = std::move(memory);
  }

  // The client is no rank any more.
  void Leave(Client& client, bool in_order) {
    if (client.start < 0) return;
    ImageKeeper::Ranks& ranks = ranks_[client.start];
    --ranks.present;
    if (!in_order) ++ranks.lost;
    client.start = -1;
  }

  void Part(Client& client) {
    Leave(client, /*in_order=*/false);
    client.socket.Close();
  }

  static bool IsOwn(const Fd& client) {
    ucred peer = {};
    socklen_t size = sizeof peer;
    return getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
  }

  // False: the client has gone, or says what is no request.
  bool Answer(Client& from) {
    const Fd& client = from.socket;
    auto request = ReceivePacket(client, MonotonicNow());
    int64_t start = 0;
    if (absl::IsDeadlineExceeded(request.status())) return true;
    if (!request.ok()) return false;
    absl::string_view name = request->bytes;
    if (absl::ConsumePrefix(&name, kPut) && request->descriptor) {
      settled_.insert(std::string(name));
      Keep(std::string(name), std::move(request->descriptor));
    } else if (absl::ConsumePrefix(&name, "offer ") && request->descriptor) {
      const std::string offered(name);
      if (images_.count(offered) + settled_.count(offered) == 0) Keep(offered, std::move(request->descriptor));
    } else if (absl::ConsumePrefix(&name, "get ")) {
      const auto found = images_.find(std::string(name));
      if (found == images_.end()) return SendPacket(client, kNothing, -1).ok();
      return SendPacket(client, kDone, found->second.get()).ok();
    } else if (absl::ConsumePrefix(&name, "next ")) {
      const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(name, absl::MaxSplits(' ', 1));
      const auto found = images_.upper_bound(std::string(words.second));
      if (found == images_.end() || !absl::StartsWith(found->first, words.first))
        return SendPacket(client, kNothing, -1).ok();
      return SendPacket(client, absl::StrCat(kDone, " ", found->first), found->second.get()).ok();
    } else if (absl::ConsumePrefix(&name, kDrop)) {
      settled_.insert(std::string(name));
      images_.erase(std::string(name));
      TellMirrors(request->bytes, -1);
    } else if (name == "mirror") {
      from.mirrors = true;
    } else if (name == "end") {
      over_ = true;
    } else if (absl::ConsumePrefix(&name, "rank ") && absl::SimpleAtoi(name, &start) && start >= 0) {
      Leave(from, /*in_order=*/true);
      from.start = start;
      ++ranks_[start].came;
      ++ranks_[start].present;
    } else if (name == "ends") {
      Leave(from, /*in_order=*/true);
    } else if (absl::ConsumePrefix(&name, "ranks ") && absl::SimpleAtoi(name, &start)) {
      const auto found = ranks_.find(start);
      const ImageKeeper::Ranks ranks = found == ranks_.end() ? ImageKeeper::Ranks() : found->second;
      return SendPacket(client, absl::StrCat(kDone, " ", ranks.came, " ", ranks.present, " ", ranks.lost), -1).ok();
    } else if (name != kHello) {
      return false;
    }
    return SendPacket(client, kDone, -1).ok();
  }

  const Fd listener_;
  const absl::Duration keep_;
  std::vector<Client> clients_;
  std::map<std::string, Fd> images_;
  std::set<std::string> settled_;                // put or dropped here: mirrors offer older ones of that name
  std::map<int64_t, ImageKeeper::Ranks> ranks_;  // by start
  bool over_ = false, served_ = false;
};

constexpr char kGeneration[] = "generation";

}  // namespace

std::string ImagesOf(int64_t training) { return absl::StrCat("training", training, "."); }
std::string ImagesOfRank(int64_t training, int rank) { return absl::StrCat(ImagesOf(training), "rank", rank, "."); }
std::string ImageOf(int64_t training, int rank, int64_t generation) {
  return absl::StrCat(ImagesOfRank(training, rank), kGeneration, generation);
}
int64_t GenerationOf(const std::string& image) {
  const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(image, kGeneration);
  int64_t generation = 0;
  return absl::SimpleAtoi(words.second, &generation) ? generation : 0;
}
std::string UnfinishedSaveOf(int64_t training, int rank) {
  return absl::StrCat("save.training", training, ".rank", rank);
}
std::string NewestImageOf(int rank) { return absl::StrCat(kNewestImages, "rank", rank); }

StatusOr<std::string> ImageKeeper::Folder(const std::string& job) { return MeetingPath(FolderOf(job)); }

StatusOr<std::unique_ptr<ImageKeeper>> ImageKeeper::Connect(const std::string& job, absl::Duration keep) {
  ASSIGN_OR_RETURN(Fd socket, Reach(job, keep));
  return absl::WrapUnique(new ImageKeeper(job, keep, std::move(socket)));
}

ImageKeeper::~ImageKeeper() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.get(), 1);
  watcher_.join();
}

StatusOr<Packet> ImageKeeper::Ask(const std::string& request, int descriptor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return AskHeld(request, descriptor);
}

StatusOr<Packet> ImageKeeper::AskHeld(const std::string& request, int descriptor) {
  auto answer = Exchange(socket_, request, descriptor);
  // An answer that comes later is not to be taken for that of the next question.
  if (absl::IsDeadlineExceeded(answer.status())) shutdown(socket_.get(), SHUT_RDWR);
  for (int n = 0; absl::IsUnavailable(answer.status()) && !over_ && n < kMostRevivals; ++n) {
    RETURN_IF_ERROR(Revive());
    answer = Exchange(socket_, request, descriptor);
  }
  return answer;
}

Status ImageKeeper::Revive() {
  ASSIGN_OR_RETURN(Fd socket, Reach(job_, keep_));
  for (const auto& own : own_) RETURN_IF_ERROR(Exchange(socket, kPut + own.first, own.second.get()).status());
  if (news_) Follow().IgnoreError();  // what the process had said before it was killed
  for (const auto& mirrored : mirrored_) {
    if (own_.count(mirrored.first) > 0) continue;
    RETURN_IF_ERROR(Exchange(socket, absl::StrCat("offer ", mirrored.first), mirrored.second.get()).status());
  }
  if (start_ >= 0) RETURN_IF_ERROR(Exchange(socket, absl::StrCat("rank ", start_), -1).status());
  socket_ = std::move(socket);
  ++revivals_;
  if (mirrors_) Subscribe().IgnoreError();  // or a second later
  return absl::OkStatus();
}

Status ImageKeeper::Follow() {
  while (true) {
    auto news = ReceivePacket(news_, MonotonicNow());
    if (absl::IsDeadlineExceeded(news.status())) return absl::OkStatus();
    RETURN_IF_ERROR(news.status());
    absl::string_view name = news->bytes;
    if (absl::ConsumePrefix(&name, kPut) && news->descriptor) {
      mirrored_[std::string(name)] = std::move(news->descriptor);
    } else if (absl::ConsumePrefix(&name, kDrop)) {
      mirrored_.erase(std::string(name));
    }
  }
}

Status ImageKeeper::Subscribe() {
  news_.Close();
  ASSIGN_OR_RETURN(Fd news, Reach(job_, keep_));
  RETURN_IF_ERROR(Exchange(news, "mirror", -1).status());
  // What changes while these are listed is said afterwards.
  ASSIGN_OR_RETURN(std::vector<Kept> all,
                   ListBy("", [this](const std::string& request) { return Exchange(socket_, request, -1); }));
  // Only now: where the process is killed meanwhile, what it had said before is still there.
  mirrored_.clear();
  for (Kept& kept : all) mirrored_[kept.name] = std::move(kept.memory);
  news_ = std::move(news);
  return absl::OkStatus();
}

void ImageKeeper::Watch() {
  const auto milliseconds = [](absl::Duration time) { return static_cast<int>(absl::ToInt64Milliseconds(time)); };
  while (true) {
    Fd watched, news;  // descriptors of its own, since another thread may replace the sockets
    int64_t revivals = 0;
    bool asks = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ending_) return;
      watched = Fd(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
      if (news_) news = Fd(fcntl(news_.get(), F_DUPFD_CLOEXEC, 0));
      revivals = revivals_;
      asks = mirrors_ && !news_;
    }
    pollfd wake = {wake_.get(), POLLIN, 0};
    pollfd entries[] = {wake, {watched.get(), 0, 0}, {news.get(), POLLIN, 0}};
    while (poll(entries, 3, asks ? milliseconds(kLongPause) : -1) < 0 && errno == EINTR) {
    }
    if (entries[0].revents != 0) {
      eventfd_t times = 0;
      eventfd_read(wake_.get(), &times);
      continue;
    }
    const bool ended = entries[1].revents != 0;
    Status revived;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (over_) return;
      if (ended && revivals == revivals_) revived = Revive();
      // A process that was killed may have closed one socket and not yet the other: it does not answer.
      const bool lags = !ended && mirrors_ && (asks || !Follow().ok());
      if (lags && AskHeld(kHello).ok() && revivals == revivals_) Subscribe().IgnoreError();
    }
    if (ended) poll(&wake, 1, milliseconds(revived.ok() ? kPause : kLongPause));
  }
}

Status ImageKeeper::Put(const std::string& name, int descriptor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Fd own(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own) return absl::ErrnoToStatus(errno, absl::StrCat("keeping ", name));
  RETURN_IF_ERROR(AskHeld(kPut + name, descriptor).status());
  own_[name] = std::move(own);
  return absl::OkStatus();
}
Status ImageKeeper::DropOwn() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, Fd> own;
  own.swap(own_);
  for (const auto& put : own) RETURN_IF_ERROR(AskHeld(kDrop + put.first).status());
  return absl::OkStatus();
}
Status ImageKeeper::KeepOwn() { return Ask(kHello).status(); }
StatusOr<Fd> ImageKeeper::Get(const std::string& name) {
  ASSIGN_OR_RETURN(Packet answer, Ask(absl::StrCat("get ", name)));
  return std::move(answer.descriptor);
}
Fd ImageKeeper::GetOwn(const std::string& name) {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return Fd();
  const auto own = own_.find(name);
  return own == own_.end() ? Fd() : Fd(fcntl(own->second.get(), F_DUPFD_CLOEXEC, 0));
}
StatusOr<std::vector<ImageKeeper::Kept>> ImageKeeper::List(const std::string& prefix) {
  return ListBy(prefix, [this](const std::string& request) { return Ask(request); });
}
Status ImageKeeper::Drop(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  own_.erase(name);
  return AskHeld(kDrop + name).status();
}
Status ImageKeeper::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
  return AskHeld("end").status();
}

Status ImageKeeper::BeRank(int64_t start) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(AskHeld(absl::StrCat("rank ", start)).status());
  start_ = start;
  return StartWatching();
}
Status ImageKeeper::Mirror() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (mirrors_) return absl::OkStatus();
  mirrors_ = true;
  RETURN_IF_ERROR(Subscribe());
  return StartWatching();
}
Status ImageKeeper::StartWatching() {
  if (watcher_.joinable()) {
    eventfd_write(wake_.get(), 1);
    return absl::OkStatus();
  }
  wake_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!wake_) return absl::ErrnoToStatus(errno, "eventfd");
  watcher_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}
Status ImageKeeper::EndInOrder() {
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
  return AskHeld("ends").status();
}

StatusOr<ImageKeeper::Ranks> ImageKeeper::RanksOf(int64_t start) {
  ASSIGN_OR_RETURN(const Packet answer, Ask(absl::StrCat("ranks ", start)));
  const std::vector<std::string> words = absl::StrSplit(answer.bytes, ' ');
  Ranks ranks;
  if (words.size() != 4 || !absl::SimpleAtoi(words[1], &ranks.came) || !absl::SimpleAtoi(words[2], &ranks.present) ||
      !absl::SimpleAtoi(words[3], &ranks.lost))
    return absl::DataLossError(absl::StrCat("mslua keep answers '", PrintableMessage(answer.bytes), "'"));
  return ranks;
}

int RunImageKeeper(const std::string& job, absl::Duration keep) {
  const auto serve = [&]() -> Status {
    auto folder = MeetingFolder::Make(FolderOf(job));
    if (absl::IsAlreadyExists(folder.status())) return absl::OkStatus();  // another one keeps the job's images
    RETURN_IF_ERROR(folder.status());
    ASSIGN_OR_RETURN(Fd listener, (*folder)->Listen(SOCK_SEQPACKET));
    const pid_t child = fork();
    if (child < 0) return absl::ErrnoToStatus(errno, "fork");
    if (child > 0) _exit(kExitOk);  // the folder is the child's now
    const Fd nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int standard : {0, 1, 2}) dup2(nowhere.get(), standard);
    setsid();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (chdir("/") != 0) return absl::ErrnoToStatus(errno, "chdir");
    Keeper(std::move(listener), keep).Serve();
    (*folder)->Remove();
    return absl::OkStatus();
  };
  const Status status = serve();
  if (status.ok()) return kExitOk;
  std::fputs(
      absl::StrCat("mslua: error[", kExitEnvironment, "] keep: ", PrintableMessage(status.message()), "\n").c_str(),
      stderr);
  return kExitEnvironment;
}

}  // namespace mslua
