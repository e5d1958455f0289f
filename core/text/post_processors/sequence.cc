// Several in turn, of which at most one adds tokens: ByteLevel moves offsets only.
#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/parts.h"

namespace mslua::text {
namespace {

class Unchanged : public PostProcessor {
 public:
  Encoding Join(std::vector<int32_t> first, const std::vector<int32_t>* second) const override {
    Encoding out;
    out.ids = std::move(first);
    out.types.resize(out.ids.size(), 0);
    if (second == nullptr) return out;
    out.ids.insert(out.ids.end(), second->begin(), second->end());
    out.types.resize(out.ids.size(), 1);
    return out;
  }
};

StatusOr<std::unique_ptr<PostProcessor>> Read(PartReader* reader) {
  if (reader->String("type") == "ByteLevel") {
    reader->Ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<Unchanged>();
  }
  std::unique_ptr<PostProcessor> adds;
  int k = 0;
  for (const Json& json : reader->List("processors")) {
    const std::string place = absl::StrCat(reader->place(), ".processors[", k++, "]");
    ASSIGN_OR_RETURN(auto part, ReadPostProcessor(json, place));
    if (part == nullptr) return absl::InvalidArgumentError(place + ": expected an object, got null");
    if (json["type"] == "ByteLevel") continue;
    if (adds != nullptr)
      return absl::InvalidArgumentError(place + ": two post-processors that add tokens are not built");
    adds = std::move(part);
  }
  if (adds == nullptr) adds = std::make_unique<Unchanged>();
  return adds;
}

}  // namespace

MSLUA_POST_PROCESSOR(sequence) { return {{"Sequence", "ByteLevel"}, Read}; }

}  // namespace mslua::text
