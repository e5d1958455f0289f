#include "core/json/json_string.h"

#include "core/json/json.h"

namespace mslua {

std::string JsonString(absl::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace mslua
