#include "launch/scheduler_journal.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/json/json.h"

namespace mslua {

std::string JournalText(const JobEpoch& epoch) {
  return absl::StrCat("{\"epoch\":", epoch.number, ",\"workers\":", epoch.size, ",\"least\":", epoch.least,
                      ",\"most\":", epoch.most, "}");
}

StatusOr<JobEpoch> ParseJournal(absl::string_view text, absl::string_view path) {
  const auto json = ParseJson(text);
  constexpr int64_t kMost = int64_t{1} << 40, kMostRanks = 1 << 16;
  const auto number = [&](const char* name, int64_t most, bool needed) -> int64_t {
    if (!json.ok() || !json->is_object()) return -1;
    const auto found = json->find(name);
    if (found == json->end()) return needed ? -1 : 0;
    const bool good = found->is_number_integer() && found->get<int64_t>() >= 0 && found->get<int64_t>() <= most;
    return good ? found->get<int64_t>() : -1;
  };
  JobEpoch epoch;
  epoch.number = number("epoch", kMost, true);
  const int64_t size = number("workers", kMostRanks, false), least = number("least", kMostRanks, false),
                most = number("most", kMostRanks, false);
  if (epoch.number < 0 || size < 0 || least < 0 || most < least) {
    return absl::DataLossError(absl::StrCat(path, ": expected ", JournalText({3, 4, 0, 0}), ", got '",
                                            absl::CEscape(text.substr(0, 100)), "'; fix: remove the file"));
  }
  epoch.size = static_cast<int>(size);
  epoch.least = static_cast<int>(least);
  epoch.most = static_cast<int>(most);
  return epoch;
}

StatusOr<JobEpoch> ReadJournal(const std::string& path) {
  const auto text = ReadFile(path, 1 << 16);
  if (absl::IsNotFound(text.status())) return JobEpoch();
  RETURN_IF_ERROR(text.status());
  return ParseJournal(*text, path);
}

Status WriteJournal(const std::string& path, const JobEpoch& epoch) {
  RETURN_IF_ERROR(MakeFolders(path.substr(0, path.rfind('/'))));
  return WriteFileAtomically(path, JournalText(epoch) + "\n");
}

}  // namespace mslua
