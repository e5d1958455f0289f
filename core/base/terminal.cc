#include "core/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace mslua {
namespace {

constexpr int kMost = 10000;

int FromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) && value > 0 && value <= kMost ? value : 0;
}

}  // namespace

TerminalSize TerminalSizeOf(int fd) {
  if (isatty(fd) == 0) return {};
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return {size.ws_col > 0 ? size.ws_col : FromEnvironment("COLUMNS"),
          size.ws_row > 0 ? size.ws_row : FromEnvironment("LINES")};
}

int ColumnsOf(int fd, int fallback) {
  const int columns = TerminalSizeOf(fd).columns;
  return columns > 0 ? columns : fallback;
}

}  // namespace mslua
