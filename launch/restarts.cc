#include "launch/restarts.h"

#include <signal.h>
#include <sys/stat.h>

#include "absl/time/clock.h"
#include "core/image/image.h"

namespace mslua {

JobTurn NewestTurnOf(ImageKeeper& images) {
  const auto kept = images.Get(NewestImageOf(0));
  struct stat info;
  if (!kept.ok() || !*kept || fstat(kept->get(), &info) != 0) return {0, Image::kNoTurn};
  const auto image = Image::Open(kept->get());
  return {info.st_ino, image.ok() ? (*image)->committed() : Image::kNoTurn};
}

bool StopIsPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

void PauseUnlessAsked(absl::Duration pause) {
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  for (; pause > absl::ZeroDuration() && !StopIsPending(); pause -= kLook) absl::SleepFor(kLook);
}

}  // namespace mslua
