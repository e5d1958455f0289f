// Run folders: runs/<name>-<date>-<time> in the working folder, each with logs, metrics and checkpoints.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Makes "runs/quickstart-20260131-120000"; a number follows when the name is taken.
StatusOr<std::string> NewRunFolder(const std::string& name);
// The newest run folder of that name (of any, when empty) that has checkpoints; NotFound when there is none.
StatusOr<std::string> LastRunFolder(const std::string& name);

}  // namespace mslua
