#include "collectives/host/channel.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"

namespace mslua {

void Messages::Start(const Call& call, uint64_t id, uint64_t ticket) {
  pending_.push_back({call, std::string(call.source), id, ticket, false, 0});
}

bool Messages::Has(uint64_t id) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.id == id; });
}

const Call& Messages::Find(uint64_t id) const {
  return std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.id == id; })->call;
}

StatusOr<bool> Messages::Progress(std::vector<uint64_t>* ended) {
  bool moved = false;
  for (size_t i = 0; i < pending_.size();) {
    Pending& p = pending_[i];
    p.call.source = p.source;  // the vector may have moved the text
    // Only the oldest message of a direction may move.
    const bool behind = std::any_of(pending_.begin(), pending_.begin() + i, [&](const Pending& q) {
      return q.call.kind == p.call.kind && q.call.peer == p.call.peer;
    });
    bool finished = false;
    if (!behind) {
      ASSIGN_OR_RETURN(const bool this_moved,
                       p.call.kind == Collective::kSend ? MoveSend(p, &finished) : MoveRecv(p, &finished));
      moved |= this_moved;
    }
    if (finished) {
      ended->push_back(p.ticket);
      pending_.erase(pending_.begin() + i);
    } else {
      ++i;
    }
  }
  return moved;
}

StatusOr<bool> Messages::MoveSend(Pending& p, bool* finished) {
  Channel& channel = board_.channel(rank_, p.call.peer);
  const int64_t bytes = p.call.count * SizeOf(p.call.dtype);
  bool moved = false;
  if (!p.matched) {
    Address address = host_.Locate(p.call.in, bytes);
    // Both ends copy at a time through the window; one that fetches does all.
    if (address.segment == Address::kReadable) address = Address();
    Write(p.call, address, &channel.offer);
    channel.offered.fetch_add(1);
    p.matched = moved = true;
  }
  if (channel.refused.load() == channel.offered.load()) return Differs(p.call, channel.want);
  const bool direct = channel.offer.segment != Address::kPrivate;
  const int64_t pieces = Pieces(bytes, direct);
  uint32_t sent = channel.sent.load();
  while (p.pieces < pieces && sent - channel.taken.load() < 2) {
    if (!direct) {
      const int64_t begin = p.pieces * board_.piece_bytes();
      std::memcpy(board_.piece(rank_, p.call.peer, sent % 2), static_cast<const char*>(p.call.in) + begin,
                  std::min(board_.piece_bytes(), bytes - begin));
    }
    channel.sent.store(++sent);
    ++p.pieces;
    moved = true;
  }
  if (moved) Ring(p.call.peer);
  *finished = p.pieces == pieces && channel.taken.load() == sent;
  return moved || *finished;
}

StatusOr<bool> Messages::MoveRecv(Pending& p, bool* finished) {
  Channel& channel = board_.channel(p.call.peer, rank_);
  uint32_t& received = received_[p.call.peer];
  if (channel.offered.load() == received) return false;
  const Channel::Message& offer = channel.offer;
  bool moved = false;
  if (!p.matched) {
    if (offer.count != p.call.count || offer.dtype != static_cast<uint8_t>(p.call.dtype) || offer.tag != p.call.tag) {
      Write(p.call, Address(), &channel.want);
      channel.refused.store(received + 1);
      Ring(p.call.peer);
      return Differs(p.call, offer);
    }
    p.matched = moved = true;
  }
  const int64_t bytes = p.call.count * SizeOf(p.call.dtype);
  const bool direct = offer.segment != Address::kPrivate;
  const int64_t pieces = Pieces(bytes, direct);
  uint32_t taken = channel.taken.load();
  while (p.pieces < pieces && channel.sent.load() != taken) {
    if (direct) {
      if (bytes > 0) {
        std::memcpy(p.call.out, host_.Resolve(members_[p.call.peer], {offer.segment, offer.offset}), bytes);
      }
    } else {
      const int64_t begin = p.pieces * board_.piece_bytes();
      std::memcpy(static_cast<char*>(p.call.out) + begin, board_.piece(p.call.peer, rank_, taken % 2),
                  std::min(board_.piece_bytes(), bytes - begin));
    }
    channel.taken.store(++taken);  // after the last one the sender may announce another message
    ++p.pieces;
    moved = true;
  }
  if (moved) Ring(p.call.peer);
  *finished = p.pieces == pieces;
  if (*finished) ++received;
  return moved;
}

int64_t Messages::Pieces(int64_t bytes, bool direct) const {
  return direct || bytes == 0 ? 1 : CeilDiv(bytes, board_.piece_bytes());
}

void Messages::Ring(int peer) const {
  RankWords& words = board_.words(peer);
  words.bell.fetch_add(1);
  if (words.listening.load() != 0) FutexWakeAll(words.bell);
}

Status Messages::Differs(const Call& mine, const Channel::Message& theirs) const {
  Call other;
  other.kind = mine.kind == Collective::kSend ? Collective::kRecv : Collective::kSend;
  other.dtype = static_cast<DType>(theirs.dtype % kNumDTypes);
  other.count = theirs.count;
  other.tag = theirs.tag;
  other.peer = rank_;
  other.source = absl::string_view(theirs.source, std::min<size_t>(theirs.source_size, sizeof theirs.source));
  return absl::FailedPreconditionError(absl::StrCat("the two ends of a message differ: rank ", rank_, " calls ",
                                                    Describe(mine), "; rank ", mine.peer, " calls ", Describe(other)));
}

void Messages::Write(const Call& call, Address address, Channel::Message* message) {
  message->count = call.count;
  message->segment = address.segment;
  message->offset = address.offset;
  message->tag = call.tag;
  message->dtype = static_cast<uint8_t>(call.dtype);
  message->source_size = static_cast<uint8_t>(call.source.copy(message->source, sizeof message->source));
}

}  // namespace mslua
