// A session with everything that recipes use.
#pragma once

#include <memory>

#include "lua/session.h"

namespace mslua {

// Session::Create, with the module mslua.core and this process's os.execute.
StatusOr<std::unique_ptr<Session>> OpenSession(SessionOptions options);

}  // namespace mslua
