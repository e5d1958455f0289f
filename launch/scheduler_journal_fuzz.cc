// The scheduler's journal: what is read is what would be written, within the limits of a job.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "launch/scheduler_journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto epoch =
      mslua::ParseJournal(absl::string_view(reinterpret_cast<const char*>(data), size), "folder/scheduler.json");
  if (!epoch.ok()) return 0;
  if (epoch->number < 0 || epoch->size < 0 || epoch->least < 0 || epoch->most < epoch->least) std::abort();
  const auto again = mslua::ParseJournal(mslua::JournalText(*epoch), "folder/scheduler.json");
  if (!again.ok() || again->number != epoch->number || again->size != epoch->size || again->least != epoch->least ||
      again->most != epoch->most)
    std::abort();
  return 0;
}
