#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class Lowercase : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    *text = ToLower(*text);
    return absl::OkStatus();
  }
};

}  // namespace

MSLUA_NORMALIZER(lowercase) {
  return {{"Lowercase"}, [](PartReader*) { return std::make_unique<Lowercase>(); }};
}

}  // namespace mslua::text
