#include "collectives/host/local_host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

// Together the windows of a group are to stay in a second-level cache: each rank reduces a slice of all.
constexpr int64_t kAllWindows = 1 << 20;
// A board holds a channel for each ordered pair; together their windows are not to exceed this.
constexpr int64_t kAllPieces = 8 << 20;

int64_t WindowBytes(int ranks) { return ranks == 1 ? 0 : std::max<int64_t>(64 << 10, kAllWindows / ranks); }

int64_t PieceBytes(int ranks) {
  return std::min<int64_t>(64 << 10, std::max<int64_t>(4 << 10, kAllPieces / (2 * ranks * ranks)));
}

// First message on a socket.
struct Hello {
  uint32_t magic = 0x6d736c31;
  uint32_t epoch;
  int32_t rank;
};

// Goes with a descriptor: which board (a hash of the group's key) or segment it is.
struct Parcel {
  uint64_t name;
  int64_t bytes;
};

// FNV-1a.
uint64_t Hash(absl::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

// What a peer is to find at an address of the sender's memory; null: it shall not look.
struct Invitation {
  uint64_t address, value;
};

template <class T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::shared_ptr<void> Map(const Fd& fd, int64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (p == MAP_FAILED) return nullptr;
  return std::shared_ptr<void>(p, [bytes](void* q) { munmap(q, bytes); });
}

Status NoMemory(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no shared memory for ", bytes, " bytes (", strerror(errno), "); a container may limit it"));
}

// Allocated in full, so that a lack of memory is an error here and not a signal later, and never resized.
StatusOr<Fd> MakeMemory(int64_t bytes) {
  Fd fd(memfd_create("mslua", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), bytes) != 0 || TEMP_FAILURE_RETRY(fallocate(fd.get(), 0, 0, bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory(bytes);
  }
  return fd;
}

// Copies memory of process `pid`; false and errno where it cannot be read.
bool ReadProcess(int pid, uint64_t address, void* to, int64_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const iovec here = {at, static_cast<size_t>(bytes)};
    const iovec there = {reinterpret_cast<void*>(address), static_cast<size_t>(bytes)};
    const ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    at += got;
    address += got;
    bytes -= got;
  }
  return true;
}

class LocalHost : public Host {
 public:
  explicit LocalHost(const LocalHostOptions& options) : options_(options) {}

  Status Connect();
  int ranks() const override { return static_cast<int>(options_.ranks.size()); }
  Address Locate(const void* data, int64_t bytes) const override;
  char* Resolve(int rank, Address address) const override {
    return static_cast<char*>(peers_.at(rank).segments[address.segment].get()) + address.offset;
  }
  Status Fetch(int rank, Address address, void* to, int64_t bytes) const override;
  std::string Gone(int rank) override;
  StatusOr<Board> Join(const std::vector<int>& members, int place, const std::string& key,
                       absl::Duration limit) override;
  StatusOr<void*> AddSegment(int64_t bytes, absl::Duration limit) override;

 private:
  struct Segment {
    std::shared_ptr<void> memory;
    int64_t bytes;
  };
  struct Peer {
    Fd socket;
    int pid = 0;
    std::vector<std::shared_ptr<void>> segments;
    std::map<uint64_t, Packet> parcels;  // come before they were asked for
  };

  std::string SocketPath(int rank) const { return absl::StrCat(options_.folder, "/r", options_.epoch, ".", rank); }
  Status Greet(const Fd& socket) const;
  StatusOr<int> Greeted(const Fd& socket, MonotonicTime deadline) const;
  // Finds out whether all peers can read this rank's memory.
  Status Invite(MonotonicTime deadline);
  Status Send(int rank, uint64_t name, int64_t bytes, const Fd& memory);
  // The memory that `rank` sent under `name`.
  StatusOr<std::shared_ptr<void>> Receive(int rank, uint64_t name, int64_t bytes, MonotonicTime deadline);

  const LocalHostOptions options_;
  bool readable_ = false;  // by all peers
  std::map<int, Peer> peers_;
  std::vector<Segment> segments_;
};

// Every rank listens; each connects to the ranks below it.
Status LocalHost::Connect() {
  const MonotonicTime deadline = MonotonicNow() + options_.timeout;
  const std::string path = SocketPath(options_.rank);
  unlink(path.c_str());
  ASSIGN_OR_RETURN(const Fd listener, ListenUnix(path));
  const auto meet = [&]() -> Status {
    for (int r : options_.ranks) {
      if (r >= options_.rank) continue;
      auto socket = ConnectUnix(SocketPath(r), deadline);
      if (!socket.ok()) {
        return Status(socket.status().code(), absl::StrCat("rank ", options_.rank, ": rank ", r,
                                                           " of this host has not come: ", socket.status().message()));
      }
      RETURN_IF_ERROR(Greet(*socket));
      ASSIGN_OR_RETURN(const int who, Greeted(*socket, deadline));
      if (who != r) return absl::InternalError(absl::StrCat("rank ", who, " answers on the socket of rank ", r));
      peers_[r].socket = std::move(*socket);
    }
    while (static_cast<int>(peers_.size()) < ranks() - 1) {
      auto socket = AcceptUnix(listener, deadline);
      if (absl::IsPermissionDenied(socket.status())) continue;
      if (!socket.ok()) {
        std::string missing;
        for (int r : options_.ranks) {
          if (r != options_.rank && peers_.count(r) == 0) absl::StrAppend(&missing, missing.empty() ? "" : ", ", r);
        }
        return Status(socket.status().code(),
                      absl::StrCat("rank ", options_.rank, ": ranks ", missing, " of this host have not come within ",
                                   absl::FormatDuration(options_.timeout)));
      }
      ASSIGN_OR_RETURN(const int who, Greeted(*socket, deadline));
      const bool expected =
          who > options_.rank && std::binary_search(options_.ranks.begin(), options_.ranks.end(), who);
      if (!expected || peers_.count(who) > 0) {
        return absl::AlreadyExistsError(absl::StrCat("rank ", options_.rank, ": process ", PeerPid(*socket),
                                                     " says that it is rank ", who, ", which is ",
                                                     expected ? "already here" : "not one of this host"));
      }
      RETURN_IF_ERROR(Greet(*socket));
      peers_[who].socket = std::move(*socket);
    }
    return absl::OkStatus();
  };
  const Status status = meet();
  unlink(path.c_str());
  RETURN_IF_ERROR(status);
  for (auto& [rank, peer] : peers_) peer.pid = PeerPid(peer.socket);
  return Invite(deadline);
}

Status LocalHost::Invite(MonotonicTime deadline) {
  // Where only ancestors may read a process (Yama), those who started this one may, and with them its siblings.
  prctl(PR_SET_PTRACER, getppid(), 0, 0, 0);
  std::random_device random;
  const uint64_t secret = uint64_t{random()} << 32 | random();
  const Invitation mine = {options_.fetch ? reinterpret_cast<uint64_t>(&secret) : 0, secret};
  for (const auto& peer : peers_) RETURN_IF_ERROR(SendPacket(peer.second.socket, BytesOf(mine)));
  for (const auto& [rank, peer] : peers_) {
    ASSIGN_OR_RETURN(const Packet packet, ReceivePacket(peer.socket, deadline));
    Invitation theirs;
    if (packet.bytes.size() != sizeof theirs) return absl::DataLossError("a rank of this host sent no invitation");
    memcpy(&theirs, packet.bytes.data(), sizeof theirs);
    uint64_t found = 0;
    const bool read = theirs.address != 0 && ReadProcess(peer.pid, theirs.address, &found, sizeof found);
    RETURN_IF_ERROR(SendPacket(peer.socket, read && found == theirs.value ? "y" : "n"));
  }
  readable_ = true;
  for (const auto& [rank, peer] : peers_) {
    ASSIGN_OR_RETURN(const Packet packet, ReceivePacket(peer.socket, deadline));
    readable_ &= packet.bytes == "y";
  }
  return absl::OkStatus();
}

Status LocalHost::Greet(const Fd& socket) const {
  Hello hello;
  hello.epoch = options_.epoch;
  hello.rank = options_.rank;
  return SendPacket(socket, BytesOf(hello));
}

StatusOr<int> LocalHost::Greeted(const Fd& socket, MonotonicTime deadline) const {
  ASSIGN_OR_RETURN(const Packet packet, ReceivePacket(socket, deadline));
  Hello hello;
  if (packet.bytes.size() != sizeof hello) return absl::DataLossError("a rank of this host sent a malformed greeting");
  memcpy(&hello, packet.bytes.data(), sizeof hello);
  if (hello.magic != Hello().magic || hello.epoch != options_.epoch) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", hello.rank, " of this host is of epoch ", hello.epoch,
                                                      ", this one of epoch ", options_.epoch));
  }
  return hello.rank;
}

Address LocalHost::Locate(const void* data, int64_t bytes) const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const int64_t offset = static_cast<const char*>(data) - static_cast<const char*>(segments_[i].memory.get());
    if (offset >= 0 && offset + bytes <= segments_[i].bytes) {
      return {static_cast<int8_t>(i), static_cast<uint64_t>(offset)};
    }
  }
  if (readable_) return {Address::kReadable, reinterpret_cast<uint64_t>(data)};
  return {};
}

Status LocalHost::Fetch(int rank, Address address, void* to, int64_t bytes) const {
  if (address.segment >= 0) {
    memcpy(to, Resolve(rank, address), bytes);
    return absl::OkStatus();
  }
  const Peer& peer = peers_.at(rank);
  const bool read = ReadProcess(peer.pid, address.offset, to, bytes);
  const int error = read ? ESRCH : errno;
  // If it is gone by now, what was read may have been of a process that has taken its number.
  if (read && !PeerClosed(peer.socket)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the memory of rank ", rank, " (process ", peer.pid, ") cannot be read: ", strerror(error)));
}

std::string LocalHost::Gone(int rank) {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end() || !PeerClosed(peer->second.socket)) return "";
  return absl::StrCat("process ", peer->second.pid, " has closed its connection");
}

Status LocalHost::Send(int rank, uint64_t name, int64_t bytes, const Fd& memory) {
  const Parcel parcel = {name, bytes};
  return Annotate(SendPacket(peers_.at(rank).socket, BytesOf(parcel), memory.get()), absl::StrCat("rank ", rank));
}

StatusOr<std::shared_ptr<void>> LocalHost::Receive(int rank, uint64_t name, int64_t bytes, MonotonicTime deadline) {
  Peer& peer = peers_.at(rank);
  while (peer.parcels.count(name) == 0) {
    auto packet = ReceivePacket(peer.socket, deadline);
    if (!packet.ok()) {
      return Annotate(packet.status(), absl::StrCat("waiting for shared memory of rank ", rank));
    }
    Parcel parcel;
    if (packet->bytes.size() != sizeof parcel || !packet->descriptor) {
      return absl::DataLossError(absl::StrCat("rank ", rank, " sent something that is not shared memory"));
    }
    memcpy(&parcel, packet->bytes.data(), sizeof parcel);
    peer.parcels[parcel.name] = std::move(*packet);
  }
  const Packet packet = std::move(peer.parcels.extract(name).mapped());
  Parcel parcel;
  memcpy(&parcel, packet.bytes.data(), sizeof parcel);
  if (parcel.bytes != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " asks for ", parcel.bytes, " bytes of shared memory, this rank for ", bytes));
  }
  const off_t size = lseek(packet.descriptor.get(), 0, SEEK_END);
  const int seals = fcntl(packet.descriptor.get(), F_GET_SEALS);
  if (size < bytes || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::DataLossError(absl::StrCat("rank ", rank, " sent shared memory that is too small or can shrink"));
  }
  std::shared_ptr<void> memory = Map(packet.descriptor, bytes);
  if (memory == nullptr) return NoMemory(bytes);
  return memory;
}

// The first member makes the board and hands it to the others.
StatusOr<Board> LocalHost::Join(const std::vector<int>& members, int place, const std::string& key,
                                absl::Duration limit) {
  const int n = static_cast<int>(members.size());
  const int64_t window = WindowBytes(n), piece = PieceBytes(n);
  const int64_t bytes = Board::Bytes(n, window, piece);
  std::shared_ptr<void> memory;
  if (place == 0) {
    ASSIGN_OR_RETURN(const Fd fd, MakeMemory(bytes));
    for (int r : members) {
      if (r != options_.rank) RETURN_IF_ERROR(Send(r, Hash(key), bytes, fd));
    }
    memory = Map(fd, bytes);
    if (memory == nullptr) return NoMemory(bytes);
  } else {
    ASSIGN_OR_RETURN(memory, Receive(members[0], Hash(key), bytes, MonotonicNow() + limit));
  }
  return Board(std::move(memory), n, window, piece);
}

StatusOr<void*> LocalHost::AddSegment(int64_t bytes, absl::Duration limit) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("a segment of ", bytes, " bytes"));
  if (segments_.size() == 127) return absl::ResourceExhaustedError("a rank has at most 127 shared segments");
  const MonotonicTime deadline = MonotonicNow() + limit;
  const uint64_t name = segments_.size();
  ASSIGN_OR_RETURN(const Fd fd, MakeMemory(bytes));
  for (const auto& peer : peers_) RETURN_IF_ERROR(Send(peer.first, name, bytes, fd));
  for (auto& [rank, peer] : peers_) {
    ASSIGN_OR_RETURN(std::shared_ptr<void> memory, Receive(rank, name, bytes, deadline));
    peer.segments.push_back(std::move(memory));
  }
  std::shared_ptr<void> mine = Map(fd, bytes);
  if (mine == nullptr) return NoMemory(bytes);
  segments_.push_back({mine, bytes});
  return mine.get();
}

}  // namespace

StatusOr<std::shared_ptr<Host>> MakeLocalHost(const LocalHostOptions& options) {
  auto host = std::make_shared<LocalHost>(options);
  RETURN_IF_ERROR(host->Connect());
  return std::shared_ptr<Host>(std::move(host));
}

}  // namespace mslua
