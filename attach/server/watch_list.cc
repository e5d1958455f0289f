#include "attach/server/watch_list.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/combine.h"
#include "attach/server/statistics.h"
#include "core/base/dtype.h"

namespace mslua::endpoint {

Watched& WatchList::values() {
  if (watched_ == nullptr) watched_ = std::make_unique<Watched>(view_);
  return *watched_;
}

StatusOr<Named> WatchList::Find(const std::string& name, bool whole, Request* request) {
  const bool gathers = whole && request->ranks.empty();
  ASSIGN_OR_RETURN(Named named, gathers ? values().FindWhole(name) : values().Find(name));
  if (named.owners.empty()) return named;
  if (request->ranks.empty()) {
    request->reports = named.owners[0] == view_.rank;
    return named;
  }
  const auto has = [&](int rank) { return std::binary_search(named.owners.begin(), named.owners.end(), rank); };
  if (std::none_of(request->ranks.begin(), request->ranks.end(), has)) {
    const auto ranks = [](const std::vector<int>& r) {
      return absl::StrCat(r.size() == 1 ? "rank " : "ranks ", RankList(r));
    };
    return absl::NotFoundError(absl::StrCat(named.name, " is not on ", ranks(request->ranks), "; it is on ",
                                            ranks(named.owners), ": @", RankList(named.owners), " ",
                                            request->command.text));
  }
  request->reports = request->reports && named.here();
  return named;
}

Status WatchList::Add(const Request& request, const Named& named, int64_t every, int64_t limit) {
  watches_.push_back({request.client, named, every, limit, request.reports});
  const Status shown = ShowWanted();
  if (!shown.ok()) watches_.pop_back();
  return shown;
}

size_t WatchList::Remove(uint64_t client, const std::string& name) {
  const size_t before = watches_.size();
  watches_.erase(
      std::remove_if(watches_.begin(), watches_.end(),
                     [&](const Watch& w) { return w.client == client && (name.empty() || w.named.name == name); }),
      watches_.end());
  return before - watches_.size();
}

void WatchList::Forget(uint64_t client) { Remove(client, ""); }

StatusOr<Answer> WatchList::Answered(const Once& once, int64_t step) {
  if (!once.named.here()) return Answer();
  ASSIGN_OR_RETURN(const TensorView value, values().ValueOf(once.named));
  return once.describe({view_, once.request, once.named, value, step});
}

// The ranks' answers become one, as those of a command do that is answered at once.
void WatchList::Tell(const Once& once, StatusOr<Answer> answer) {
  if (!once.request.told || !view_.gather) return outlet_.answer(once.request, answer);
  const Json mine = {{"reports", once.request.reports},
                     {"ok", answer.ok()},
                     {"text", answer.ok() ? answer->text : std::string(answer.status().message())},
                     {"json", answer.ok() ? answer->json : ""}};
  const auto all = view_.gather(Dump(mine));
  if (!all.ok()) return outlet_.answer(once.request, all.status());
  Answers answers;
  int first = -1;  // of the ranks that report
  for (size_t r = 0; r < all->size(); ++r) {
    const auto said = ReadObject(
        (*all)[r], {{"reports", Field::kFlag}, {"ok", Field::kFlag}, {"text", Field::kText}, {"json", Field::kText}});
    if (!said) continue;
    const int rank = static_cast<int>(r);
    if (first < 0 && (*said)["reports"].get<bool>()) first = rank;
    Answer of_rank = {(*said)["text"].get<std::string>(), (*said)["json"].get<std::string>()};
    answers.emplace(rank, (*said)["ok"].get<bool>() ? StatusOr<Answer>(std::move(of_rank))
                                                    : StatusOr<Answer>(absl::FailedPreconditionError(of_rank.text)));
  }
  if (first == view_.rank) outlet_.answer(once.request, Combine(once.request.command, answers, absl::ZeroDuration()));
}

StatusOr<Answer> WatchList::ShowOnce(const Request& request, const std::string& name, bool whole, Describe describe,
                                     int64_t step, bool paused, bool* later) {
  Request asked = request;
  ASSIGN_OR_RETURN(const Named named, Find(name, whole, &asked));
  if (values().Shows(named)) return Answered({asked, named, describe, step}, step);
  asked.told = paused;
  once_.push_back({asked, named, describe, step});
  *later = !paused;
  if (!paused || !named.here()) return Answer();
  return Answer{absl::StrCat(named.name, " ", ToString(named.type), ": after the next step"), ""};
}

Status WatchList::ShowWanted() {
  std::vector<Named> wanted;
  const auto want = [&](const Named& named) {
    const auto same = [&](const Named& other) { return other.name == named.name; };
    if (!named.kept && std::none_of(wanted.begin(), wanted.end(), same)) wanted.push_back(named);
  };
  for (const Watch& w : watches_) want(w.named);
  for (const Once& o : once_) want(o.named);
  const Status shown = values().Show(wanted);
  if (!shown.ok()) {
    for (const Once& o : once_) outlet_.answer(o.request, shown);
    once_.clear();
  }
  return watches_.empty() ? absl::OkStatus() : shown;
}

void WatchList::Report(const TrainState& state) {
  std::map<std::string, std::string> said;  // of a value, for all its watchers
  for (Watch& w : watches_) {
    if (!values().Shows(w.named) || state.step % w.every != 0) continue;
    --w.left;
    std::string& text = said[absl::StrCat(w.named.name, w.named.gathered ? "" : " here")];
    // All ranks gather parts, whichever rank reports.
    if (text.empty() && (w.reports || w.named.gathered)) {
      const auto value = values().ValueOf(w.named);
      text = value.ok() ? ToString(StatisticsOf(*value)) : std::string(value.status().message());
    }
    if (!w.reports) continue;
    const auto part = PartOf(view_, w.named);
    outlet_.event(w.client, absl::StrCat("s", state.step, "  ", w.named.name, part ? RangesOf(*part) : "", "  ", text));
    if (w.left == 0) outlet_.event(w.client, absl::StrCat("watch of ", w.named.name, " is over"));
  }
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(), [](const Watch& w) { return w.left == 0; }),
                 watches_.end());
  for (size_t i = 0; i < once_.size();) {
    if (state.step <= once_[i].from || !values().Shows(once_[i].named)) {
      ++i;
      continue;
    }
    Tell(once_[i], Answered(once_[i], state.step));
    once_.erase(once_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::string WatchList::Text() const {
  std::string text;
  for (const Watch& w : watches_)
    absl::StrAppend(&text, "watch ", w.named.name, " every ", w.every, ", ", w.left, " samples left\n");
  return text;
}

void WatchList::Close(std::vector<Request>* unanswered) {
  for (const Once& o : once_) unanswered->push_back(o.request);
  once_.clear();
  watched_.reset();
}

}  // namespace mslua::endpoint
