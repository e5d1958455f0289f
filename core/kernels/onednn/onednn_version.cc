#include "core/kernels/onednn/onednn_version.h"

#include "absl/strings/str_cat.h"
#include "oneapi/dnnl/dnnl.h"

namespace mslua::onednn {

std::string Version() {
  const dnnl_version_t* const v = dnnl_version();
  return absl::StrCat(v->major, ".", v->minor, ".", v->patch);
}

}  // namespace mslua::onednn
