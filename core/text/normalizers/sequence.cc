#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/parts.h"

namespace mslua::text {
namespace {

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  Status Apply(std::string* text) const override {
    for (const auto& part : parts_) RETURN_IF_ERROR(part->Apply(text));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

MSLUA_NORMALIZER(sequence) {
  return {{"Sequence"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<Normalizer>> {
            std::vector<std::unique_ptr<Normalizer>> parts;
            for (const Json& json : reader->List("normalizers")) {
              const std::string place = absl::StrCat(reader->place(), ".normalizers[", parts.size(), "]");
              ASSIGN_OR_RETURN(auto part, ReadNormalizer(json, place));
              if (part == nullptr) return absl::InvalidArgumentError(place + ": expected an object, got null");
              parts.push_back(std::move(part));
            }
            return std::make_unique<Sequence>(std::move(parts));
          }};
}

}  // namespace mslua::text
