#include "core/text/byte_level.h"

#include "core/text/define.h"

namespace mslua::text {
namespace {

class ByteLevel : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    *text = BytesToText(*text);
    return absl::OkStatus();
  }
};

}  // namespace

MSLUA_NORMALIZER(byte_level) {
  return {{"ByteLevel"}, [](PartReader*) { return std::make_unique<ByteLevel>(); }};
}

}  // namespace mslua::text
