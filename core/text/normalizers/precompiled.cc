// SentencePiece's table of replacements as the tokenizers library applies it: to grapheme clusters of less than six
// bytes, else to characters.
#include "absl/strings/escaping.h"
#include "core/text/charsmap.h"
#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}

  Status Apply(std::string* text) const override {
    std::string out;
    const absl::string_view whole = *text;
    size_t begin = 0;
    for (const size_t end : GraphemeEnds(whole)) {
      const absl::string_view cluster = whole.substr(begin, end - begin);
      begin = end;
      const auto found = cluster.size() < 6 ? map_.Find(cluster, /*longest=*/false) : absl::nullopt;
      if (found.has_value()) {
        out.append(found->text.data(), found->text.size());
      } else {
        AppendChars(cluster, &out);
      }
    }
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  void AppendChars(absl::string_view cluster, std::string* out) const {
    for (size_t at = 0; at < cluster.size();) {
      const absl::string_view c = cluster.substr(at, CharBytes(cluster[at]));
      at += c.size();
      const auto found = map_.Find(c, /*longest=*/false);
      const absl::string_view text = found.has_value() ? found->text : c;
      out->append(text.data(), text.size());
    }
  }

  const Charsmap map_;
};

}  // namespace

MSLUA_NORMALIZER(precompiled) {
  return {{"Precompiled"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<Normalizer>> {
            std::string blob;
            if (!absl::Base64Unescape(reader->String("precompiled_charsmap"), &blob))
              return reader->Wrong("precompiled_charsmap", "is not base64");
            StatusOr<Charsmap> map = Charsmap::Read(blob);
            if (!map.ok()) return reader->Wrong("precompiled_charsmap", map.status().message());
            return std::make_unique<Precompiled>(*std::move(map));
          }};
}

}  // namespace mslua::text
