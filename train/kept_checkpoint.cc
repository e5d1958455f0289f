#include "train/kept_checkpoint.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kWhat[] = "the images that ranks have kept";
constexpr char kPlace[] = "memory";     // instead of a path
constexpr char kBetweenParts = '\x01';  // not in a manifest

std::vector<ImageEntry> EntriesOf(const TurnRecord& record) {
  std::vector<ImageEntry> entries;
  for (const TurnTensor& t : record.tensors) entries.push_back({t.name, t.type, t.updated});
  return entries;
}

checkpoint::RunState RunOf(const TurnRecord& record) {
  checkpoint::RunState run;
  run.lineage.run = record.lineage;
  run.world = record.world;
  run.rank = record.rank;
  run.epoch = run.data_epoch = record.state.epoch;
  run.data_batch = record.state.step_in_epoch;
  run.step = run.schedule_step = record.state.step;
  run.plan = record.plan;
  run.counters = record.counters;
  run.interventions = record.interventions;
  return run;
}

// How a checkpoint of all ranks has a tensor that one of them kept.
struct Place {
  std::string name;
  TensorType whole;
  checkpoint::Slice slice;
  bool taken = false;  // else another rank's is
};

// `first`: the rank whose values stand for all, where they are the same or have plain names.
Place PlaceOf(const TurnTensor& t, int rank, bool first) {
  const TensorPart& p = t.part;
  const Part part = p.sharded() ? p.part : Part::Of(t.type.shape);
  Place place;
  place.name = (p.own || p.varies) && !first ? NameOfRank(t.saved_as, rank) : t.saved_as;
  place.whole = {t.type.dtype, part.whole};
  place.slice.begin = part.begin;
  place.slice.end = part.end();
  const bool padding = p.flat && part.size[0] == 0;
  place.taken = !padding && (first || p.sharded() || p.own || p.varies);
  return place;
}

int64_t BytesOf(const Place& place) {
  int64_t elements = 1;
  for (size_t d = 0; d < place.slice.begin.size(); ++d) elements *= place.slice.end[d] - place.slice.begin[d];
  return elements * SizeOf(place.whole.dtype);
}

// Of a part that several ranks have kept one is enough, the same everywhere.
void RemoveReplicas(std::vector<checkpoint::Manifest>* parts) {
  std::set<std::pair<std::string, Shape>> known;
  for (checkpoint::Manifest& part : *parts) {
    auto& tensors = part.tensors;
    const auto replica = [&](const checkpoint::TensorRecord& t) {
      return !known.insert({t.name, t.slices[0].begin}).second;
    };
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), replica), tensors.end());
  }
}

// Which one is right nobody can tell: that a job has continued twice from one state a scheduler prevents that has its
// journal.
Status TwoStates(int64_t generation) {
  return WithExitCode(absl::DataLossError(absl::StrCat(
                          "ranks have kept two different states in memory, both of generation ", generation,
                          ": the scheduler's journal was lost; end all workers and their mslua keep, and "
                          "start the job again: it resumes from the newest checkpoint")),
                      kExitStorage);
}

}  // namespace

StatusOr<std::unique_ptr<KeptCheckpoint>> KeptCheckpoint::Find(ImageKeeper& keeper, int64_t number,
                                                               const Program& program, Groups* together) {
  std::unique_ptr<KeptCheckpoint> found(new KeptCheckpoint);
  found->together_ = together;
  RETURN_IF_ERROR(found->LookAround(keeper, number, program));
  std::set<int64_t> generations;
  for (const auto& seen : found->all_) {
    for (const Summary& s : seen) {
      generations.insert(s.generation);
      found->newest_generation_ = std::max(found->newest_generation_, s.generation);
      found->newest_turn_ = std::max({found->newest_turn_, s.committed, s.prepared});
    }
  }
  for (auto generation = generations.rbegin(); generation != generations.rend(); ++generation) {
    // A turn that all have prepared may be committed by one that is not here.
    int64_t committed = Image::kNoTurn;
    std::set<int64_t> turns;
    std::vector<Summary> here;
    for (const auto& seen : found->all_) {
      for (const Summary& s : seen) {
        if (s.generation == *generation) here.push_back(s);
      }
    }
    for (const Summary& s : here) {
      committed = std::max(committed, s.committed);
      turns.insert({s.committed, s.prepared});
      if (s.birth != here[0].birth) return TwoStates(*generation);
    }
    for (auto turn = turns.rbegin(); turn != turns.rend() && *turn >= committed; ++turn) {
      const auto holds = [&](const Summary& s) { return s.Holds(*turn); };
      if (*turn > committed && !std::all_of(here.begin(), here.end(), holds)) continue;
      ASSIGN_OR_RETURN(const bool made, found->Make(*generation, *turn));
      if (made) return found;
    }
  }
  return std::unique_ptr<KeptCheckpoint>();
}

StatusOr<std::vector<std::string>> KeptCheckpoint::Gather(const std::string& mine) const {
  if (together_ == nullptr) return std::vector<std::string>{mine};
  return GatherTexts(*together_, mine, kWhat);
}

Status KeptCheckpoint::LookAround(ImageKeeper& keeper, int64_t number, const Program& program) {
  const int64_t ranks = together_ == nullptr ? 1 : together_->size();
  ASSIGN_OR_RETURN(const auto kept, keeper.List(ImagesOf(number)));
  std::vector<std::string> lines;
  for (const ImageKeeper::Kept& k : kept) {
    auto image = Image::Open(k.memory.get());
    if (!image.ok() || (*image)->committed() == Image::kNoTurn) continue;
    const auto text = (*image)->RecordOf((*image)->committed());
    const auto record = text.ok() ? ParseTurn(*text) : StatusOr<TurnRecord>(text.status());
    if (!record.ok() || record->family != program.family || !(*image)->Holds(EntriesOf(*record))) continue;
    if (record->world == ranks && record->identity != program.identity) continue;
    const Image& i = **image;
    lines.push_back(absl::StrCat(record->generation, " ", record->world, " ", record->rank, " ", i.committed(), " ",
                                 i.prepared(), " ", i.begun(), " ", record->birth));
    own_.push_back({*std::move(image), record->generation, record->world, record->rank});
  }
  ASSIGN_OR_RETURN(const auto texts, Gather(absl::StrJoin(lines, "\n")));
  for (const std::string& text : texts) {
    all_.emplace_back();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      Summary s;
      if (words.size() != 7 || !absl::SimpleAtoi(words[0], &s.generation) || !absl::SimpleAtoi(words[1], &s.world) ||
          !absl::SimpleAtoi(words[2], &s.rank) || !absl::SimpleAtoi(words[3], &s.committed) ||
          !absl::SimpleAtoi(words[4], &s.prepared) || !absl::SimpleAtoi(words[5], &s.begun))
        return absl::InternalError(absl::StrCat(kWhat, ": '", line, "'"));
      s.birth = words[6];
      all_.back().push_back(s);
    }
  }
  return absl::OkStatus();
}

StatusOr<std::string> KeptCheckpoint::PartOf(const Own& own, int64_t turn, bool first, TurnRecord* record,
                                             Values* values) const {
  RETURN_IF_ERROR(own.image->GoTo(turn));
  ASSIGN_OR_RETURN(const std::string text, own.image->RecordOf(turn));
  ASSIGN_OR_RETURN(*record, ParseTurn(text));
  const std::vector<char*> at = own.image->Addresses(EntriesOf(*record), own.image->side());
  checkpoint::Manifest part;
  part.run = RunOf(*record);
  const std::string file = checkpoint::FileOfRank(own.rank);
  part.files.push_back({file, checkpoint::FileDigester(0).Finish(), "", ""});
  for (size_t i = 0; i < record->tensors.size(); ++i) {
    const TurnTensor& t = record->tensors[i];
    const Place place = PlaceOf(t, static_cast<int>(own.rank), first);
    if (t.saved_as.empty() || !place.taken) continue;
    part.tensors.push_back({place.name, place.whole, {place.slice}});
    (*values)[{file, place.name}] = absl::string_view(at[i], static_cast<size_t>(BytesOf(place)));
  }
  return checkpoint::SerializeManifest(part);
}

StatusOr<bool> KeptCheckpoint::Make(int64_t generation, int64_t turn) {
  // For each rank that kept something: the first of those who look that sees its image tells of it.
  const size_t me = together_ == nullptr ? 0 : static_cast<size_t>(together_->rank());
  std::map<int64_t, size_t> teller;
  for (size_t r = 0; r < all_.size(); ++r) {
    for (const Summary& s : all_[r]) {
      if (s.generation == generation && s.Holds(turn)) teller.emplace(s.rank, r);
    }
  }
  if (teller.empty()) return false;
  const int64_t first = teller.begin()->first;
  Values values;
  std::string mine;
  Status failed;
  for (const Own& own : own_) {
    const auto told = teller.find(own.rank);
    if (own.generation != generation || told == teller.end()) continue;
    TurnRecord record;
    const auto part = PartOf(own, turn, own.rank == first, &record, &values);
    if (!part.ok()) failed = part.status();
    if (own.rank == first) record_ = record;
    if (part.ok() && told->second == me) absl::StrAppend(&mine, *part, std::string(1, kBetweenParts));
  }
  ASSIGN_OR_RETURN(const auto errors, Gather(std::string(failed.message())));
  for (const std::string& error : errors) {
    if (!error.empty()) return false;
  }
  ASSIGN_OR_RETURN(const auto texts, Gather(mine));
  ASSIGN_OR_RETURN(const auto records, Gather(teller.begin()->second == me ? TurnText(record_) : ""));
  ASSIGN_OR_RETURN(record_, ParseTurn(records[teller.begin()->second]));
  std::map<std::string, checkpoint::Manifest> parts;  // by file: in one order everywhere
  for (const std::string& text : texts) {
    for (const absl::string_view one : absl::StrSplit(text, kBetweenParts, absl::SkipEmpty())) {
      ASSIGN_OR_RETURN(checkpoint::Manifest part, checkpoint::ParseManifest(one));
      parts[part.files[0].name] = std::move(part);
    }
  }
  std::vector<checkpoint::Manifest> in_order;
  for (auto& part : parts) in_order.push_back(std::move(part.second));
  RemoveReplicas(&in_order);
  const auto varies = [](const TurnTensor& t) { return t.part.varies; };
  const int64_t ranks = std::min<int64_t>(record_.world, together_ == nullptr ? 1 : together_->size());
  without_own_ = 0;
  if (std::any_of(record_.tensors.begin(), record_.tensors.end(), varies)) {
    for (int64_t r = 0; r < ranks; ++r) without_own_ += teller.count(r) == 0 ? 1 : 0;
  }
  const auto manifest = checkpoint::JoinParts(RunOf(record_), in_order);
  if (!manifest.ok()) return false;  // a rank that has gone has had something that nobody else has
  ASSIGN_OR_RETURN(checkpoint_.common, checkpoint::ParseManifest(*manifest));
  ASSIGN_OR_RETURN(checkpoint_.own, checkpoint::Checkpoint::WithoutFiles(kPlace, *manifest));
  Provide(values);
  std::string has;
  for (const checkpoint::DataFile& file : checkpoint_.common.files) {
    const bool here = std::any_of(own_.begin(), own_.end(), [&](const Own& o) {
      return o.generation == generation && checkpoint::FileOfRank(o.rank) == file.name;
    });
    has.push_back(here ? '1' : '0');
  }
  ASSIGN_OR_RETURN(checkpoint_.has, Gather(has));
  for (const auto& seen : all_) {
    for (const Summary& s : seen) {
      if (s.generation == generation) steps_again_ = std::max(steps_again_, s.begun - record_.state.step);
    }
  }
  return true;
}

void KeptCheckpoint::Provide(const Values& values) {
  const checkpoint::Manifest& common = checkpoint_.common;
  for (size_t t = 0; t < common.tensors.size(); ++t) {
    const checkpoint::TensorRecord& tensor = common.tensors[t];
    for (size_t s = 0; s < tensor.slices.size(); ++s) {
      const std::string& file = common.files[static_cast<size_t>(tensor.slices[s].file)].name;
      const auto found = values.find({file, tensor.name});
      if (found != values.end()) checkpoint_.own->ProvideAt(t, s, found->second);
    }
  }
}

}  // namespace mslua
