#include "lua/image_lua.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/data/encode.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {

StatusOr<data::Picture> ReadPicture(lua_State* L, Session& session, int tensor_at, int options_at,
                                    const std::string& what) {
  ASSIGN_OR_RETURN(const Tensor tensor, ReadTensor(session, L, tensor_at, DType::kF32, what + ": x"));
  RETURN_IF_ERROR(CheckFields(L, options_at, what.c_str(), {"low", "high", "columns", "padding"}));
  data::PictureOptions options;
  ASSIGN_OR_RETURN(options.low, FieldNumber(L, options_at, "low", options.low));
  ASSIGN_OR_RETURN(options.high, FieldNumber(L, options_at, "high", options.high));
  ASSIGN_OR_RETURN(options.columns, FieldInt(L, options_at, "columns", options.columns));
  ASSIGN_OR_RETURN(options.padding, FieldInt(L, options_at, "padding", options.padding));
  auto picture = data::MakePicture(tensor.view(), options);
  if (!picture.ok()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", picture.status().message()));
  return picture;
}

namespace {

// core.write_png(path, tensor, {low =, high =, columns =, padding =}): makes the folders of path.
StatusOr<int> WritePng(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "write: path"));
  ASSIGN_OR_RETURN(const data::Picture picture, ReadPicture(L, session, 2, 3, "write"));
  ASSIGN_OR_RETURN(const std::string png, data::EncodePng(picture));
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0)
    RETURN_IF_ERROR(WithExitCode(MakeFolders(path.substr(0, slash)), kExitStorage));
  RETURN_IF_ERROR(WithExitCode(WriteFileAtomically(path, png), kExitStorage));
  return 0;
}

}  // namespace

void OpenImages(lua_State* L) { SetFunctions(L, {{"write_png", Entry<WritePng>}}); }

}  // namespace mslua
