// Tensors as pictures: core.write_png.
#pragma once

#include <string>

#include "core/data/encode.h"
#include "lua/session.h"

namespace mslua {

void OpenImages(lua_State* L);

// The tensor at `tensor_at` as a picture by the table at `options_at`, {low =, high =, columns =, padding =}. `what`
// begins messages.
StatusOr<data::Picture> ReadPicture(lua_State* L, Session& session, int tensor_at, int options_at,
                                    const std::string& what);

}  // namespace mslua
