#include "core/train/turns.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace mslua {
namespace {

constexpr double kBetweenCommits = 0.002;  // seconds
constexpr int64_t kLongestPace = 1 << 16;

void Line(std::string* text, absl::string_view key, absl::string_view value) {
  absl::StrAppend(text, key, " ", absl::CEscape(value), "\n");
}

// Numbers that read back as they are.
std::string Exact(double value) { return absl::StrFormat("%a", value); }

bool Whole(absl::string_view text, int64_t* value) { return absl::SimpleAtoi(text, value) && *value >= 0; }

// "123 rest": a number and what follows it.
bool NumberAndRest(const std::string& text, std::string* number, std::string* rest) {
  const size_t space = text.find(' ');
  if (space == std::string::npos) return false;
  *number = text.substr(0, space);
  *rest = text.substr(space + 1);
  return true;
}

// Numbers of a shape: "3,4"; "-": none.
std::string ShapeText(const Shape& shape) { return shape.empty() ? "-" : absl::StrJoin(shape, ","); }

bool ReadShape(absl::string_view text, Shape* shape) {
  if (text == "-") return true;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int64_t n = 0;
    if (!Whole(word, &n)) return false;
    shape->push_back(n);
  }
  return true;
}

// "<updated> <dtype> <shape> <own> <flat> <replica> <varies> <whole> <begin> <size>\t<saved_as>\t<name>"
std::string TensorText(const TurnTensor& t) {
  const TensorPart& p = t.part;
  return absl::StrCat(static_cast<int>(t.updated), " ", Name(t.type.dtype), " ", ShapeText(t.type.shape), " ",
                      static_cast<int>(p.own), " ", static_cast<int>(p.flat), " ", static_cast<int>(p.replica), " ",
                      static_cast<int>(p.varies), " ", ShapeText(p.part.whole), " ", ShapeText(p.part.begin), " ",
                      ShapeText(p.part.size), "\t", t.saved_as, "\t", t.name);
}

bool ReadTensor(const std::string& value, TurnTensor* t) {
  const std::vector<std::string> parts = absl::StrSplit(value, absl::MaxSplits('\t', 2));
  if (parts.size() != 3) return false;
  const std::vector<std::string> words = absl::StrSplit(parts[0], ' ');
  if (words.size() != 10) return false;
  const auto dtype = ParseDType(words[1]);
  int64_t updated = 0, own = 0, flat = 0, replica = 0, varies = 0;
  TensorPart& p = t->part;
  if (!dtype || !Whole(words[0], &updated) || !ReadShape(words[2], &t->type.shape) || !Whole(words[3], &own) ||
      !Whole(words[4], &flat) || !Whole(words[5], &replica) || !Whole(words[6], &varies) ||
      !ReadShape(words[7], &p.part.whole) || !ReadShape(words[8], &p.part.begin) || !ReadShape(words[9], &p.part.size))
    return false;
  t->type.dtype = *dtype;
  t->updated = updated != 0;
  p.own = own != 0;
  p.flat = flat != 0;
  p.replica = replica != 0;
  p.varies = varies != 0;
  t->saved_as = parts[1];
  t->name = parts[2];
  return true;
}

bool ReadLine(absl::string_view key, const std::string& value, TurnRecord* record) {
  std::string number, rest;
  if (key == "identity") return record->identity = value, true;
  if (key == "folder") return record->folder = value, true;
  if (key == "plan") return record->plan = value, true;
  if (key == "lineage") return record->lineage = value, true;
  if (key == "family") return record->family = value, true;
  if (key == "birth") return record->birth = value, true;
  if (key == "world") return Whole(value, &record->world);
  if (key == "rank") return Whole(value, &record->rank);
  if (key == "generation") return Whole(value, &record->generation);
  if (key == "tensor") return ReadTensor(value, &record->tensors.emplace_back());
  if (key == "intervention") return record->interventions.push_back(value), true;
  if (key == "step") return Whole(value, &record->state.step);
  if (key == "epoch") return Whole(value, &record->state.epoch);
  if (key == "step_in_epoch") return Whole(value, &record->state.step_in_epoch);
  if (key == "stopped") return record->stopped = true, true;
  if (key == "loss") return absl::SimpleAtod(value, &record->state.loss);
  if (key == "counter")
    return NumberAndRest(value, &number, &rest) && absl::SimpleAtod(number, &record->counters[rest]);
  if (key == "file") return NumberAndRest(value, &number, &rest) && Whole(number, &record->files[rest]);
  return false;
}

// The lines that are the same at the end of every turn.
std::string FixedText(const TurnRecord& record) {
  std::string text;
  Line(&text, "identity", record.identity);
  Line(&text, "folder", record.folder);
  Line(&text, "plan", record.plan);
  Line(&text, "lineage", record.lineage);
  Line(&text, "family", record.family);
  Line(&text, "birth", record.birth);
  absl::StrAppend(&text, "world ", record.world, "\nrank ", record.rank, "\ngeneration ", record.generation, "\n");
  for (const TurnTensor& tensor : record.tensors) Line(&text, "tensor", TensorText(tensor));
  return text;
}

// The lines of one turn.
std::string ChangingText(const TurnRecord& record) {
  std::string text;
  absl::StrAppend(&text, "step ", record.state.step, "\nepoch ", record.state.epoch, "\nstep_in_epoch ",
                  record.state.step_in_epoch, "\nloss ", Exact(record.state.loss), "\n");
  if (record.stopped) absl::StrAppend(&text, "stopped \n");
  for (const auto& [name, value] : record.counters) Line(&text, "counter", absl::StrCat(Exact(value), " ", name));
  for (const auto& [path, bytes] : record.files) Line(&text, "file", absl::StrCat(bytes, " ", path));
  for (const std::string& intervention : record.interventions) Line(&text, "intervention", intervention);
  return text;
}

}  // namespace

std::string TurnText(const TurnRecord& record) { return FixedText(record) + ChangingText(record); }

StatusOr<TurnRecord> ParseTurn(absl::string_view text) {
  TurnRecord record;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    std::string value;
    if (!absl::CUnescape(words.second, &value) || !ReadLine(words.first, value, &record))
      return absl::DataLossError(
          absl::StrCat("the record of a turn has a line '", absl::CEscape(line.substr(0, 100)), "'"));
  }
  return record;
}

int64_t NextPace(int64_t pace, double seconds, int64_t steps) {
  if (steps <= 0) return pace;
  const double each = std::max(seconds, 1e-9) / static_cast<double>(steps);
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(kBetweenCommits / each)), 1,
                             std::min(2 * pace, kLongestPace));
}

Turns::Turns(TurnRecord record, Store* store, const Progress* progress, RecordHealth* health,
             std::function<void(const std::string&)> notice)
    : record_(std::move(record)),
      fixed_(FixedText(record_)),
      store_(*store),
      image_(*store->image()),
      progress_(*progress),
      health_(*health),
      notice_(std::move(notice)),
      committed_at_(std::chrono::steady_clock::now()) {}

void Turns::StartAt(int64_t turn) {
  turn_ = turn;
  due_ = turn + 1;
}

Status Turns::Prepare() {
  const Trainer& trainer = *progress_.trainer;
  if (++turn_ < due_) return absl::OkStatus();
  progress_.console->Flush();
  record_.files = health_.FlushAll();
  record_.state = trainer.state();
  record_.counters = trainer.SaveCounters();
  record_.interventions = trainer.interventions();
  record_.stopped = progress_.stopped;
  const Status prepared = store_.PrepareTurn(turn_, fixed_ + ChangingText(record_));
  prepared_ = prepared.ok();
  if (!prepared_ && !std::exchange(noted_, true))
    notice_(absl::StrCat(prepared.message(), ": a process that ends loses what comes after step ", record_.state.step));
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - committed_at_;
  pace_ = NextPace(agreed_, since.count(), committed_step_ < 0 ? 0 : record_.state.step - committed_step_);
  return absl::OkStatus();
}

Status Turns::PrepareNow() {
  due_ = turn_ + 1;
  return Prepare();
}

void Turns::Commit(int64_t pace) {
  if (turn_ >= due_) {
    agreed_ = pace;
    due_ = turn_ + pace;
    committed_step_ = record_.state.step;
    committed_at_ = std::chrono::steady_clock::now();
    if (std::exchange(prepared_, false)) store_.CommitTurn();
  }
  image_.Begin(progress_.trainer->state().step + 1);
}

}  // namespace mslua
