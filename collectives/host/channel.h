// Send and receive between ranks of one host: the pending messages of one rank, moved without ever blocking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/host/board.h"
#include "collectives/host/host.h"

namespace mslua {

class Messages {
 public:
  // All outlive this. `rank` and the peers of calls are ranks of the board's group `members`.
  Messages(const Board& board, const Host& host, const std::vector<int>& members, int rank)
      : board_(board), host_(host), members_(members), rank_(rank), received_(members.size()) {}

  // Enlists a valid kSend or kRecv under `id`. Messages of a direction go over in the order of their start.
  void Start(const Call& call, uint64_t id, uint64_t ticket);
  bool empty() const { return pending_.empty(); }
  bool Has(uint64_t id) const;
  // The call `id`, which is pending; its peer's rank is `peer`.
  const Call& Find(uint64_t id) const;

  // Moves whatever can move now. True when something did. `ended` receives the tickets of finished calls.
  // FailedPrecondition when the two ends disagree, naming both calls.
  StatusOr<bool> Progress(std::vector<uint64_t>* ended);

 private:
  struct Pending {
    Call call;
    std::string source;
    uint64_t id, ticket;
    bool matched = false;  // send: announced; recv: the announcement has come and agrees
    int64_t pieces = 0;    // moved so far
  };

  StatusOr<bool> MoveSend(Pending& p, bool* finished);
  StatusOr<bool> MoveRecv(Pending& p, bool* finished);
  // Pieces of a message that goes through the window (every message has one) or by its address.
  int64_t Pieces(int64_t bytes, bool direct) const;
  void Ring(int peer) const;
  Status Differs(const Call& mine, const Channel::Message& theirs) const;
  static void Write(const Call& call, Address address, Channel::Message* message);

  const Board& board_;
  const Host& host_;
  const std::vector<int>& members_;
  const int rank_;
  std::vector<Pending> pending_;
  std::vector<uint32_t> received_;  // messages that have come, by peer
};

}  // namespace mslua
