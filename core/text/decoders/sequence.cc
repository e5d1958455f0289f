#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/parts.h"

namespace mslua::text {
namespace {

// Joins the tokens. What follows gets them one by one all the same; it is told so when it is read.
class Fuse : public TokenDecoder {
 public:
  std::string Decode(std::string token, bool) const override { return token; }
};

class Sequence : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}

  std::unique_ptr<DecoderRun> Start() const override {
    auto run = std::make_unique<Run>();
    for (const auto& part : parts_) run->parts.push_back(part->Start());
    return run;
  }

 private:
  struct Run : public DecoderRun {
    std::string Push(std::string token) override { return From(0, std::move(token)); }
    std::string Finish() override {
      std::string out;
      for (size_t k = 0; k < parts.size(); ++k) {
        std::string rest = parts[k]->Finish();
        if (!rest.empty()) out += From(k + 1, std::move(rest));
      }
      return out;
    }
    std::string From(size_t part, std::string token) {
      for (; part < parts.size(); ++part) token = parts[part]->Push(std::move(token));
      return token;
    }
    std::vector<std::unique_ptr<DecoderRun>> parts;
  };
  const std::vector<std::unique_ptr<Decoder>> parts_;
};

StatusOr<std::unique_ptr<Decoder>> Read(PartReader* reader) {
  if (reader->String("type") == "Fuse") return std::make_unique<Fuse>();
  std::vector<std::unique_ptr<Decoder>> parts;
  bool joined = reader->joined;
  for (const Json& json : reader->List("decoders")) {
    const std::string place = absl::StrCat(reader->place(), ".decoders[", parts.size(), "]");
    ASSIGN_OR_RETURN(auto part, ReadDecoder(json, place, joined));
    if (part == nullptr) return absl::InvalidArgumentError(place + ": expected an object, got null");
    const std::string type = json["type"];
    if (joined && (type == "WordPiece" || type == "Metaspace")) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": the decoder '", type, "' behind Fuse is not built: it decodes single tokens"));
    }
    joined = joined || type == "Fuse";
    parts.push_back(std::move(part));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

MSLUA_DECODER(sequence) { return {{"Sequence", "Fuse"}, Read}; }

}  // namespace mslua::text
