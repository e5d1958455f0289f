#include "core/text/byte_level.h"

#include "core/text/define.h"

namespace mslua::text {
namespace {

class ByteLevel : public TokenDecoder {
 public:
  // A token with other characters, an added one, is text itself.
  std::string Decode(std::string token, bool) const override {
    std::string bytes;
    return TextToBytes(token, &bytes) ? bytes : token;
  }
};

}  // namespace

MSLUA_DECODER(byte_level) {
  return {{"ByteLevel"}, [](PartReader* reader) {
            reader->Ignore({"add_prefix_space", "trim_offsets", "use_regex"});
            return std::make_unique<ByteLevel>();
          }};
}

}  // namespace mslua::text
