#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/parts.h"

namespace mslua::text {
namespace {

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  Status Split(Piece piece, PieceSink out) const override { return From(0, piece, out); }

 private:
  Status From(size_t part, Piece piece, PieceSink out) const {
    if (part == parts_.size()) return out(piece);
    return parts_[part]->Split(piece, [&](Piece inner) { return From(part + 1, inner, out); });
  }
  const std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

MSLUA_PRE_TOKENIZER(sequence) {
  return {{"Sequence"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<PreTokenizer>> {
            std::vector<std::unique_ptr<PreTokenizer>> parts;
            for (const Json& json : reader->List("pretokenizers")) {
              const std::string place = absl::StrCat(reader->place(), ".pretokenizers[", parts.size(), "]");
              ASSIGN_OR_RETURN(auto part, ReadPreTokenizer(json, place));
              if (part == nullptr) return absl::InvalidArgumentError(place + ": expected an object, got null");
              parts.push_back(std::move(part));
            }
            return std::make_unique<Sequence>(std::move(parts));
          }};
}

}  // namespace mslua::text
