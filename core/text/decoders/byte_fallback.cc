// <0x0A> is a byte.
#include "core/text/byte_fallback.h"

#include "core/text/define.h"

namespace mslua::text {
namespace {

class ByteFallback : public TokenDecoder {
 public:
  std::string Decode(std::string token, bool) const override {
    const int byte = ByteOfToken(token);
    return byte < 0 ? token : std::string(1, static_cast<char>(byte));
  }
};

}  // namespace

MSLUA_DECODER(byte_fallback) {
  return {{"ByteFallback"}, [](PartReader*) { return std::make_unique<ByteFallback>(); }};
}

}  // namespace mslua::text
