#include "core/text/byte_level.h"

#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class ByteLevel : public TokenDecoder {
 public:
  // A token with other characters, an added one, is text itself.
  std::string Decode(std::string token, bool) const override {
    std::string bytes;
    if (FindInvalidUtf8(token) != std::string::npos) return token;  // bytes of a decoder before this one
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
