// The chunks of a file in order, read past the page cache where the file system can do that: what was just written is
// checked as the disk has it, and the copy that nobody wants is not made.
#pragma once

#include <functional>

#include "core/base/input_file.h"

namespace mslua::checkpoint {

// Calls each(data, bytes) for every chunk of kChunkBytes, the last one shorter. The data are valid during the call.
Status ForEachChunkOnDisk(const InputFile& file, const std::function<void(const char*, int64_t)>& each);

}  // namespace mslua::checkpoint
