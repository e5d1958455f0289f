#include "collectives/net/links.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/hash.h"

namespace mslua {
namespace {

// The most that one turn of the thread moves on a socket while it holds the mutex.
constexpr size_t kTurn = 512 << 10;
// Of a payload under way, the thread is woken for as much as this: to wake it costs more than to copy a packet.
constexpr size_t kWorthWaking = 256 << 10;

// How long who waits looks for frames before he sleeps.
constexpr absl::Duration kSpin = absl::Microseconds(30);
// How long after a wait the thread stays out of the way of the next.
constexpr absl::Duration kRest = absl::Milliseconds(1);

}  // namespace

Links::Links(std::map<int, Stream> sockets, bool spin) : spin_(spin), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (auto& [peer, socket] : sockets) peers_[peer].socket = std::move(socket);
  thread_ = std::thread([this] { Run(); });
}

Links::~Links() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  Wake();
  parked_.notify_all();
  thread_.join();
}

void Links::Wake() {
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) changed_.notify_all();
}

void Links::Send(int peer, const Frame& frame, const void* payload, int* unsent) {
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& p = peers_.at(peer);
  if (!p.lost.empty()) return;  // Wait reports it
  if (unsent != nullptr) ++*unsent;
  const bool idle = p.queue.empty();
  p.queue.push_back({EncodeFrame(frame), static_cast<const char*>(payload), frame.bytes, 0, frame.group, unsent});
  if (idle) Write(p);  // what the kernel takes at once need not wake the thread
  if (!p.queue.empty()) Wake();
}

void Links::SendAbort(int peer, Frame frame, absl::string_view reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  Peer& p = peers_.at(peer);
  if (!p.lost.empty()) return;
  frame.type = Frame::Type::kAbort;
  frame.bytes = reason.size();
  frame.payload_crc = Crc32c(reason.data(), reason.size());
  const bool idle = p.queue.empty();
  p.queue.push_back({absl::StrCat(EncodeFrame(frame), reason), nullptr, 0, 0, frame.group, nullptr});
  if (idle) Write(p);
  if (!p.queue.empty()) Wake();
}

std::shared_ptr<Arrival> Links::Expect(int peer, uint64_t group, uint64_t sequence, uint8_t stage, void* into,
                                       int64_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Key key(peer, group, sequence, stage);
  const auto found = arrivals_.find(key);
  if (found != arrivals_.end()) {
    std::shared_ptr<Arrival> arrival = std::move(found->second);
    arrivals_.erase(found);
    arrival->into = static_cast<char*>(into);
    arrival->capacity = capacity;
    return arrival;
  }
  auto arrival = std::make_shared<Arrival>();
  arrival->into = static_cast<char*>(into);
  arrival->capacity = capacity;
  arrivals_[key] = arrival;
  return arrival;
}

void Links::Drop(uint64_t group) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = arrivals_.begin(); it != arrivals_.end();) {
    it = std::get<1>(it->first) == group ? arrivals_.erase(it) : std::next(it);
  }
  for (auto& [rank, peer] : peers_) {
    if (peer.reading != nullptr && peer.reading->frame.group == group && peer.reading->heap == nullptr) {
      peer.reading->heap.reset(new char[peer.reading->frame.bytes + 1]);  // the rest is read and forgotten
    }
    for (auto it = peer.queue.begin(); it != peer.queue.end();) {
      if (it->group != group || it->bytes == 0) {
        ++it;
      } else if (it->done == 0 && !(it == peer.queue.begin() && peer.socket.MidWrite())) {
        it = peer.queue.erase(it);
      } else {
        Lose(peer, "a frame was given up half-way");
        changed_.notify_all();
        shutdown(peer.socket.fd().get(), SHUT_RDWR);
        peer.queue.clear();
        break;
      }
    }
    // Frames without payload (an abort) still go out, and count for nobody.
    for (Outgoing& out : peer.queue) {
      if (out.group == group) out.unsent = nullptr;
    }
  }
}

Status Links::Wait(uint64_t group, absl::Duration limit, const std::function<bool(std::vector<int>*)>& done) {
  std::unique_lock<std::mutex> lock(mutex_);
  const MonotonicTime deadline = MonotonicNow() + limit;
  Status status;
  ++waiters_;
  if (driven_) Wake();  // the thread hands over
  while (!Ended(group, done, &status)) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      status = absl::DeadlineExceededError("no frame came");
      break;
    }
    if (driven_) {
      changed_.wait_for(lock, absl::ToChronoNanoseconds(left));
    } else {
      Drive(lock, left);
    }
  }
  --waiters_;
  waited_ = MonotonicNow();
  if (waiters_ > 0) changed_.notify_all();
  return status;
}

bool Links::Ended(uint64_t group, const std::function<bool(std::vector<int>*)>& done, Status* status) const {
  std::vector<int> awaited;
  if (done(&awaited)) return true;
  const auto abort = aborts_.find(group);
  if (abort != aborts_.end()) {
    *status = abort->second;
    return true;
  }
  for (int r : awaited) {
    if (peers_.at(r).lost.empty()) continue;
    *status = absl::UnavailableError(
        absl::StrCat("the connection to rank ", r, " of the world is lost: ", peers_.at(r).lost));
    return true;
  }
  return false;
}

bool Links::Check(const std::function<bool()>& done) {
  std::lock_guard<std::mutex> lock(mutex_);
  return done();
}

// Moves frames while nobody waits for any, and does not begin with it between waits that follow each other closely.
void Links::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const absl::Duration rest = waited_ + kRest - MonotonicNow();
    if (waiters_ > 0 || driven_) {
      parked_.wait_for(lock, absl::ToChronoNanoseconds(kRest));
    } else if (rest > absl::ZeroDuration()) {
      parked_.wait_for(lock, absl::ToChronoNanoseconds(rest));
    } else {
      Drive(lock, absl::InfiniteDuration());
    }
  }
}

// How many sockets are ready. To be woken takes longer than most frames take.
int Links::Poll(absl::Duration limit) {
  const bool endless = limit == absl::InfiniteDuration();
  if (spin_ && !endless) {
    const MonotonicTime until = MonotonicNow() + std::min(limit, kSpin);
    do {
      const int ready = poll(entries_.data(), entries_.size(), 0);
      if (ready != 0) return ready;
      sched_yield();
    } while (MonotonicNow() < until);
  }
  const timespec timeout = absl::ToTimespec(limit);
  return ppoll(entries_.data(), entries_.size(), endless ? nullptr : &timeout, nullptr);
}

void Links::Drive(std::unique_lock<std::mutex>& lock, absl::Duration limit) {
  driven_ = true;
  entries_.assign(1, {wake_.get(), POLLIN, 0});
  entry_ranks_.assign(1, -1);
  for (auto& [rank, peer] : peers_) {
    if (!peer.lost.empty()) continue;
    entries_.push_back({peer.socket.fd().get(), static_cast<short>(peer.queue.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    entry_ranks_.push_back(rank);
    if (peer.socket.Pending()) limit = absl::ZeroDuration();
  }
  lock.unlock();
  const int ready = Poll(limit);
  uint64_t count;
  if (ready > 0 && entries_[0].revents != 0 && read(wake_.get(), &count, sizeof count) < 0) count = 0;
  lock.lock();
  for (size_t i = 1; i < entries_.size(); ++i) {
    Peer& peer = peers_[entry_ranks_[i]];
    const short got = ready > 0 ? entries_[i].revents : 0;
    if ((got & (POLLIN | POLLHUP | POLLERR)) != 0 || peer.socket.Pending()) Read(entry_ranks_[i], peer);
    if ((got & POLLOUT) != 0) Write(peer);
  }
  driven_ = false;
  // Who waits does so for whole frames, or to drive.
  if (std::exchange(news_, false) || waiters_ > 0) changed_.notify_all();
}

void Links::Lose(Peer& peer, absl::string_view why) {
  peer.lost = std::string(why);
  news_ = true;
}

void Links::Write(Peer& peer) {
  for (size_t moved = 0; peer.lost.empty() && !peer.queue.empty() && moved < kTurn;) {
    Outgoing& out = peer.queue.front();
    const size_t head = out.head.size();
    iovec parts[2] = {};
    int n = 0;
    if (out.done < head) parts[n++] = {&out.head[out.done], head - out.done};
    const uint64_t payload_done = out.done < head ? 0 : out.done - head;
    if (payload_done < out.bytes) {
      parts[n++] = {const_cast<char*>(out.payload) + payload_done, std::min<size_t>(out.bytes - payload_done, kTurn)};
    }
    const ssize_t sent = peer.socket.Write(parts, n);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      Lose(peer, peer.socket.ErrorText());
      return;
    }
    out.done += sent;
    moved += sent;
    if (out.done == head + out.bytes) {
      if (out.unsent != nullptr) --*out.unsent;
      news_ = true;
      peer.queue.pop_front();
    }
  }
}

void Links::WakeFor(Peer& peer, size_t bytes) {
  if (peer.socket.encrypted()) return;  // the socket's bytes are not those of the payload
  const int least = std::max<int>(1, static_cast<int>(bytes));
  if (least == peer.least) return;
  if (setsockopt(peer.socket.fd().get(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0) peer.least = least;
}

void Links::Read(int rank, Peer& peer) {
  for (size_t moved = 0; peer.lost.empty() && moved < kTurn;) {
    ssize_t got;
    if (peer.reading == nullptr) {
      size_t wanted = kFrameHeaderBytes;
      if (peer.head.size() >= wanted) wanted += static_cast<uint8_t>(peer.head[kSourceSizeAt]);
      char buffer[kFrameHeaderBytes + kMaxSourceBytes];
      got = peer.socket.Read(buffer, wanted - peer.head.size());
      if (got > 0) peer.head.append(buffer, got);
    } else {
      Arrival& a = *peer.reading;
      char* to = a.heap != nullptr ? a.heap.get() : a.into;
      got = peer.socket.Read(to + a.received, std::min<size_t>(a.frame.bytes - a.received, kTurn));
      if (got > 0) {
        a.crc = Crc32c(to + a.received, got, a.crc);  // while it is in the cache
        a.received += got;
        WakeFor(peer, std::min<size_t>(a.frame.bytes - a.received, kWorthWaking));
      }
    }
    if (got == 0) {
      Lose(peer, "it has closed the connection");
    } else if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      Lose(peer, peer.socket.ErrorText());
    }
    if (!peer.lost.empty()) return;
    moved += got;
    if (peer.reading == nullptr) {
      const Status status = Begin(rank, peer);
      if (!status.ok()) Lose(peer, status.message());
    }
    if (peer.reading != nullptr && peer.reading->received == peer.reading->frame.bytes) Finish(peer);
  }
}

Status Links::Begin(int rank, Peer& peer) {
  if (peer.head.size() < kFrameHeaderBytes) return absl::OkStatus();
  int source_bytes = 0;
  ASSIGN_OR_RETURN(Frame frame,
                   DecodeFrameHeader(absl::string_view(peer.head).substr(0, kFrameHeaderBytes), &source_bytes));
  if (peer.head.size() < static_cast<size_t>(kFrameHeaderBytes + source_bytes)) return absl::OkStatus();
  if (Crc32c(peer.head.data() + kFrameHeaderBytes, static_cast<size_t>(source_bytes)) != frame.source_crc)
    return absl::DataLossError("the source of a frame is damaged: its CRC32C differs");
  if (frame.type == Frame::Type::kAbort && frame.bytes > 4096) return absl::DataLossError("an abort is too long");
  std::shared_ptr<Arrival> arrival;
  if (frame.type == Frame::Type::kAbort) {
    arrival = std::make_shared<Arrival>();
  } else {
    const Key key(rank, frame.group, frame.sequence, frame.stage);
    std::shared_ptr<Arrival>& slot = arrivals_[key];
    if (slot == nullptr) {
      slot = arrival = std::make_shared<Arrival>();
    } else {
      if (slot->begun) return absl::DataLossError("a frame came twice");
      arrival = std::move(slot);
      arrivals_.erase(key);
    }
  }
  arrival->begun = true;
  arrival->frame = frame;
  arrival->source = peer.head.substr(kFrameHeaderBytes);
  arrival->frame.call.source = arrival->source;
  if (arrival->into == nullptr || static_cast<uint64_t>(arrival->capacity) < frame.bytes) {
    arrival->heap.reset(new (std::nothrow) char[frame.bytes + 1]);
    if (arrival->heap == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", frame.bytes, " bytes"));
  }
  peer.head.clear();
  peer.reading = std::move(arrival);
  return absl::OkStatus();
}

void Links::Finish(Peer& peer) {
  Arrival& a = *peer.reading;
  a.complete = true;
  news_ = true;
  if (a.frame.type == Frame::Type::kAbort) {
    aborts_.emplace(a.frame.group,
                    Status(static_cast<absl::StatusCode>(a.frame.status),
                           a.crc == a.frame.payload_crc ? absl::string_view(a.heap.get(), a.frame.bytes)
                                                        : "another rank failed; its reason was damaged on its way"));
  }
  peer.reading = nullptr;
}

}  // namespace mslua
