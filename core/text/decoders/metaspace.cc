#include "core/text/metaspace.h"

#include "absl/strings/str_replace.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

class MetaspaceDecoder : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(Metaspace settings) : settings_(std::move(settings)) {}
  std::string Decode(std::string token, bool first) const override {
    const bool drop = first && settings_.prepend != Metaspace::Prepend::kNever;
    return absl::StrReplaceAll(token, {{settings_.replacement, drop ? "" : " "}});
  }

 private:
  const Metaspace settings_;
};

}  // namespace

MSLUA_DECODER(metaspace) {
  return {{"Metaspace"}, [](PartReader* reader) { return std::make_unique<MetaspaceDecoder>(ReadMetaspace(reader)); }};
}

}  // namespace mslua::text
