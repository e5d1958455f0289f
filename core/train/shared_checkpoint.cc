#include "core/train/shared_checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/communicator.h"
#include "collectives/groups.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointName;

constexpr char kWhat[] = "reading a checkpoint";

// The checkpoints that `place` names, newest first.
StatusOr<std::vector<CheckpointName>> NamedBy(const std::string& place) {
  if (!checkpoint::NamesOneCheckpoint(place)) return checkpoint::FindCheckpoints(place);
  std::vector<CheckpointName> one(1);
  one[0].path = place;
  return one;
}

// What rank 0 proposes to the others.
struct Proposal {
  std::string path;      // absolute
  std::string manifest;  // empty: a plain file
};
constexpr char kNone = '!', kSome = '=';

StatusOr<Proposal> Share(Groups& groups, const Proposal* mine, const Status& error) {
  std::string text;
  if (groups.rank() == 0) {
    text = mine == nullptr ? kNone + std::string(error.message()) : absl::StrCat("=", mine->path, "\n", mine->manifest);
  }
  RETURN_IF_ERROR(ShareText(groups, &text, kWhat));
  if (groups.rank() == 0 && mine == nullptr) return error;
  if (text.empty() || text[0] != kSome) return absl::InvalidArgumentError(absl::StrCat("rank 0: ", text.substr(1)));
  const std::pair<std::string, std::string> parts = absl::StrSplit(text.substr(1), absl::MaxSplits('\n', 1));
  return Proposal{parts.first, parts.second};
}

// What a rank makes of a proposal. As text: "S<has>", "C", or "-<why it is passed over>".
struct Answer {
  enum Kind : char { kSame = 'S', kOwnCopy = 'C', kRefused = '-' };
  Kind kind = kRefused;
  std::string text;  // of kSame: '1' for each file that it can read; of kRefused: why
  std::unique_ptr<Checkpoint> opened;
};

Answer Refuse(absl::string_view why) { return {Answer::kRefused, std::string(why), nullptr}; }

Answer Accept(std::unique_ptr<Checkpoint> opened) {
  Answer answer{Answer::kSame, "", std::move(opened)};
  for (size_t i = 0; i < answer.opened->manifest().files.size(); ++i) {
    answer.text.push_back(answer.opened->has(i) ? '1' : '0');
  }
  return answer;
}

// This rank's view of the proposal: the same checkpoint in its own directory; a whole one that it saved there at that
// step of that training; or, where it has none of that training, rank 0's. With `any` also rank 0's where this rank has
// other steps only.
Answer Find(const Proposal& proposal, const std::string& place, const std::vector<CheckpointName>& names, bool any) {
  if (proposal.manifest.empty()) {
    auto file = Checkpoint::OpenParts(proposal.path);
    for (size_t i = 0; !file.ok() && i < names.size(); ++i) file = Checkpoint::OpenParts(names[i].path);
    return file.ok() ? Accept(*std::move(file)) : Refuse(file.status().message());
  }
  auto remote = Checkpoint::WithoutFiles(proposal.path, proposal.manifest);
  if (!remote.ok()) return Refuse(remote.status().message());
  const checkpoint::RunState& run = (*remote)->manifest().run;
  const bool known = !run.lineage.run.empty();
  bool has_others = false;
  std::string damaged;
  for (const CheckpointName& name : names) {
    has_others = has_others || (known && name.lineage.run == run.lineage.run);
    if (name.step != run.step && !checkpoint::NamesOneCheckpoint(place)) continue;
    auto mine = Checkpoint::OpenParts(name.path);
    if (!mine.ok()) {
      damaged = std::string(mine.status().message());
      continue;
    }
    if ((*mine)->manifest_text() == proposal.manifest) return Accept(*std::move(mine));
    const checkpoint::RunState& my_run = (*mine)->manifest().run;
    const bool same = known && my_run.lineage.run == run.lineage.run && my_run.step == run.step;
    if (same && (*mine)->has_all()) return {Answer::kOwnCopy, "", *std::move(mine)};
  }
  if (!damaged.empty() && !any) return Refuse(damaged);
  if (has_others && !any) return Refuse(absl::StrCat("it has no checkpoint of step ", run.step));
  auto there = Checkpoint::OpenParts(proposal.path);
  if (there.ok() && (*there)->manifest_text() == proposal.manifest) return Accept(*std::move(there));
  return Accept(*std::move(remote));
}

// Verifies the files for which this rank answers: those that no lower rank can read.
Status Verify(const Answer& answer, const std::vector<std::string>& has, size_t rank) {
  const Checkpoint& opened = *answer.opened;
  for (size_t i = 0; opened.has_manifest() && i < opened.manifest().files.size(); ++i) {
    const auto reads = [&](const std::string& h) { return !h.empty() && h[i] == '1'; };
    const auto first = std::find_if(has.begin(), has.end(), reads);
    if (answer.kind == Answer::kSame && static_cast<size_t>(first - has.begin()) != rank) continue;
    RETURN_IF_ERROR(VerifyFile(opened, i, checkpoint::VerifyDepth::kChunks));
  }
  return absl::OkStatus();
}

// Whether all ranks can take the proposal: empty, or why not. `has` as in SharedCheckpoint.
StatusOr<std::string> Agree(Groups& groups, const Answer& answer, const checkpoint::Manifest& common,
                            std::vector<std::string>* has) {
  ASSIGN_OR_RETURN(const auto answers, GatherTexts(groups, static_cast<char>(answer.kind) + answer.text, kWhat));
  for (size_t r = 0; r < answers.size(); ++r) {
    if (answers[r][0] == Answer::kRefused) return absl::StrCat("rank ", r, ": ", answers[r].substr(1));
    has->push_back(answers[r].substr(1));
  }
  for (size_t i = 0; i < common.files.size(); ++i) {
    const auto reads = [&](const std::string& h) { return !h.empty() && h[i] == '1'; };
    if (std::any_of(has->begin(), has->end(), reads)) continue;
    return absl::StrCat("no rank can read ", common.files[i].name, ", which was saved in ", common.files[i].folder,
                        " on host ", common.files[i].host);
  }
  const Status verified = Verify(answer, *has, static_cast<size_t>(groups.rank()));
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, std::string(verified.message()), kWhat));
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) return absl::StrCat("rank ", r, ": ", all[r]);
  }
  return std::string();
}

bool Meet(const checkpoint::Slice& slice, const std::pair<Shape, Shape>& part) {
  for (size_t d = 0; d < slice.begin.size(); ++d) {
    if (std::max(slice.begin[d], part.first[d]) >= std::min(slice.end[d], part.second[d])) return false;
  }
  return true;
}

// A slice of the common manifest that at least one rank needs from another one.
struct Transfer {
  size_t tensor = 0, slice = 0;
  int from = 0;  // the rank that reads it
  bool mine = false;
};

// The slices that ranks cannot read themselves, the same on all ranks.
StatusOr<std::vector<Transfer>> FindTransfers(Groups& groups, const SharedCheckpoint& from, const WantedParts& wanted) {
  const std::string& own = from.has[static_cast<size_t>(groups.rank())];
  std::vector<Transfer> all;
  std::string needs;
  for (size_t t = 0; t < from.common.tensors.size(); ++t) {
    const checkpoint::TensorRecord& tensor = from.common.tensors[t];
    const auto want = wanted.find(tensor.name);
    for (size_t s = 0; s < tensor.slices.size(); ++s) {
      const checkpoint::Slice& slice = tensor.slices[s];
      const auto file = static_cast<size_t>(slice.file);
      const auto reads = [&](const std::string& has) { return !has.empty() && has[file] == '1'; };
      if (std::all_of(from.has.begin(), from.has.end(), [&](const auto& h) { return h.empty() || reads(h); })) continue;
      const auto reader = std::find_if(from.has.begin(), from.has.end(), reads);
      const bool here = own.empty() || reads(own);
      const bool mine =
          !here && want != wanted.end() &&
          std::any_of(want->second.begin(), want->second.end(), [&](const auto& part) { return Meet(slice, part); });
      all.push_back({t, s, static_cast<int>(reader - from.has.begin()), mine});
      needs.push_back(mine ? '1' : '0');
    }
  }
  ASSIGN_OR_RETURN(const auto of_ranks, GatherTexts(groups, needs, kWhat));
  std::vector<Transfer> needed;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::any_of(of_ranks.begin(), of_ranks.end(), [&](const std::string& n) { return n[i] == '1'; }))
      needed.push_back(all[i]);
  }
  return needed;
}

// The rank that has the slice reads it and sends it to all, a part at a time; those that need it keep it.
Status Send(Groups& groups, SharedCheckpoint& from, const Transfer& transfer) {
  constexpr int64_t kPiece = 16 << 20;  // bytes
  const checkpoint::TensorRecord& tensor = from.common.tensors[transfer.tensor];
  const checkpoint::Slice& slice = tensor.slices[transfer.slice];
  TensorType type{tensor.type.dtype, slice.end};
  for (size_t d = 0; d < type.shape.size(); ++d) type.shape[d] -= slice.begin[d];
  std::string bytes;
  Status read;
  const bool reads = groups.rank() == transfer.from;
  if (reads || transfer.mine) bytes.resize(static_cast<size_t>(type.bytes()));
  if (reads) read = from.own->ReadSlice(tensor.name, slice.begin, slice.end, &bytes[0]);
  ASSIGN_OR_RETURN(const int32_t failed, LargestOfRanks(groups, read.ok() ? 0 : 1, kWhat));
  RETURN_IF_ERROR(read);
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat("rank ", transfer.from, " could not read '", tensor.name, "'"));
  }
  std::string other;  // of a rank that does not need it
  for (int64_t at = 0; at < type.bytes(); at += kPiece) {
    const int64_t size = std::min(kPiece, type.bytes() - at);
    if (bytes.empty()) other.resize(static_cast<size_t>(size));
    void* const piece = bytes.empty() ? &other[0] : &bytes[static_cast<size_t>(at)];
    RETURN_IF_ERROR(
        groups.world().Run(Call::Broadcast(DType::kU8, piece, size, transfer.from).At(kWhat).Within(groups.timeout())));
  }
  if (transfer.mine) from.own->Provide(transfer.tensor, transfer.slice, std::move(bytes));
  return absl::OkStatus();
}

// What rank 0 tells the user about its choice.
std::string NoteOf(const CheckpointName& chosen, const std::vector<CheckpointName>& names,
                   const std::vector<std::string>& passed_over) {
  std::vector<std::string> notes;
  if (!passed_over.empty()) notes.push_back(absl::StrCat("passed over ", absl::StrJoin(passed_over, "; ")));
  const std::string ignored = names.size() == 1 ? "" : checkpoint::IgnoredBeside(chosen, names);
  if (!ignored.empty()) notes.push_back(ignored);
  return absl::StrJoin(notes, "; ");
}

}  // namespace

StatusOr<SharedCheckpoint> OpenOnAllRanks(Groups& groups, const std::string& place) {
  const auto found = NamedBy(place);
  const std::vector<CheckpointName> names = found.ok() ? *found : std::vector<CheckpointName>();
  std::vector<std::string> passed_over;
  // Without a step that all ranks have, as after a kill where each kept one checkpoint, what rank 0 has will do where
  // it has all that the others need.
  for (const bool any : {false, true}) {
    for (size_t next = 0;; ++next) {
      Proposal mine;
      Status none;
      const bool first = groups.rank() == 0;
      if (first) {
        for (; next < names.size(); ++next) {
          const auto opened = Checkpoint::OpenParts(names[next].path);
          if (opened.ok()) {
            mine = {std::filesystem::absolute(names[next].path).string(), (*opened)->manifest_text()};
            break;
          }
          if (!any) passed_over.push_back(absl::StrCat(names[next].path, " (", opened.status().message(), ")"));
        }
        if (next == names.size()) none = found.ok() ? checkpoint::NothingToLoad(place, passed_over) : found.status();
      }
      ASSIGN_OR_RETURN(const int32_t over, LargestOfRanks(groups, none.ok() || any ? 0 : 1, kWhat));
      if (over != 0) break;
      ASSIGN_OR_RETURN(const Proposal proposal, Share(groups, none.ok() ? &mine : nullptr, none));
      Answer answer = Find(proposal, place, names, any);
      SharedCheckpoint shared;
      if (!proposal.manifest.empty()) {
        ASSIGN_OR_RETURN(shared.common, checkpoint::ParseManifest(proposal.manifest));
      }
      ASSIGN_OR_RETURN(const std::string refused, Agree(groups, answer, shared.common, &shared.has));
      if (!refused.empty()) {
        if (first && !any) passed_over.push_back(absl::StrCat(names[next].path, " (", refused, ")"));
        continue;
      }
      shared.own = std::move(answer.opened);
      if (first) shared.own->set_note(NoteOf(names[next], names, passed_over));
      return shared;
    }
  }
  return absl::InternalError("the search for a checkpoint did not end");
}

Status FetchParts(Groups& groups, SharedCheckpoint& from, const WantedParts& wanted) {
  const bool all = std::all_of(from.has.begin(), from.has.end(),
                               [](const std::string& has) { return has.find('0') == std::string::npos; });
  if (all) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto transfers, FindTransfers(groups, from, wanted));
  for (const Transfer& transfer : transfers) RETURN_IF_ERROR(Send(groups, from, transfer));
  return absl::OkStatus();
}

Status FetchAll(Groups& groups, SharedCheckpoint& from) {
  WantedParts wanted;
  for (const checkpoint::TensorRecord& tensor : from.common.tensors) {
    wanted[tensor.name].emplace_back(Shape(tensor.type.shape.size(), 0), tensor.type.shape);
  }
  return FetchParts(groups, from, wanted);
}

}  // namespace mslua
