#include "core/text/define.h"
#include "core/text/parts.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

// The normalizer of this name, on each token.
class ReplaceDecoder : public TokenDecoder {
 public:
  explicit ReplaceDecoder(std::unique_ptr<Normalizer> replace) : replace_(std::move(replace)) {}
  std::string Decode(std::string token, bool) const override {
    if (FindInvalidUtf8(token) != std::string::npos) return token;  // bytes of a decoder before this one
    const std::string given = token;
    return replace_->Apply(&token).ok() ? token : given;
  }

 private:
  const std::unique_ptr<Normalizer> replace_;
};

}  // namespace

MSLUA_DECODER(replace) {
  return {{"Replace"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<Decoder>> {
            const Json json = {
                {"type", "Replace"}, {"pattern", reader->Object("pattern")}, {"content", reader->String("content")}};
            ASSIGN_OR_RETURN(auto replace, ReadNormalizer(json, reader->place()));
            return std::make_unique<ReplaceDecoder>(std::move(replace));
          }};
}

}  // namespace mslua::text
