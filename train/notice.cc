#include "train/notice.h"

#include <cstdio>

namespace mslua {

void PrintNote(const std::string& text) { std::fprintf(stderr, "mslua: note: %s\n", text.c_str()); }

}  // namespace mslua
