#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

class WordPieceDecoder : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  std::string Decode(std::string token, bool first) const override {
    if (!first) token = absl::StartsWith(token, prefix_) ? token.substr(prefix_.size()) : absl::StrCat(" ", token);
    // One after the other, for one makes text that another one fits.
    static constexpr const char* kCleaned[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                  {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                  {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kCleaned) {
      if (cleanup_) token = absl::StrReplaceAll(token, {{from, to}});
    }
    return token;
  }

 private:
  const std::string prefix_;
  const bool cleanup_;
};

}  // namespace

MSLUA_DECODER(word_piece) {
  return {{"WordPiece"}, [](PartReader* reader) {
            const std::string prefix = reader->String("prefix", "##");
            return std::make_unique<WordPieceDecoder>(prefix, reader->Bool("cleanup", true));
          }};
}

}  // namespace mslua::text
