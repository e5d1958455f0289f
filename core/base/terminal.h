// The size of the terminal that a person looks at.
#pragma once

namespace mslua {

struct TerminalSize {
  int columns = 0, rows = 0;  // 0: not known
};

// Of the terminal behind a file descriptor; $COLUMNS and $LINES where the terminal does not say. Zeros when `fd` is no
// terminal: what is written there does not depend on who looks at it.
TerminalSize TerminalSizeOf(int fd);

// The columns of the terminal behind `fd`, or `fallback` where they are not known.
int ColumnsOf(int fd, int fallback);

}  // namespace mslua
