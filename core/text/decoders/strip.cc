// Takes a character away from the ends of each token, or of the whole text when Fuse has joined the tokens.
#include "absl/strings/match.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

struct Settings {
  std::string content;
  int64_t start = 0, stop = 0;  // at most so many at the begin and at the end
};

std::string StripStart(absl::string_view text, const Settings& s, int64_t* left) {
  while (*left > 0 && absl::StartsWith(text, s.content)) {
    text.remove_prefix(s.content.size());
    --*left;
  }
  return std::string(text);
}

class StripTokens : public TokenDecoder {
 public:
  explicit StripTokens(Settings settings) : settings_(std::move(settings)) {}
  std::string Decode(std::string token, bool) const override {
    int64_t start = settings_.start;
    token = StripStart(token, settings_, &start);
    for (int64_t k = 0; k < settings_.stop && absl::EndsWith(token, settings_.content); ++k)
      token.resize(token.size() - settings_.content.size());
    return token;
  }

 private:
  const Settings settings_;
};

class StripText : public Decoder {
 public:
  explicit StripText(Settings settings) : settings_(std::move(settings)) {}
  std::unique_ptr<DecoderRun> Start() const override { return std::make_unique<Run>(settings_); }

 private:
  class Run : public DecoderRun {
   public:
    explicit Run(const Settings& settings) : settings_(settings), left_(settings.start) {}

    std::string Push(std::string token) override {
      const bool at_start = left_ > 0;
      token = StripStart(token, settings_, &left_);
      if (at_start && !token.empty()) left_ = 0;
      held_ += token;
      // What may turn out to be the end of the text stays here.
      absl::string_view sure = held_;
      for (int64_t k = 0; k < settings_.stop && absl::EndsWith(sure, settings_.content); ++k)
        sure.remove_suffix(settings_.content.size());
      std::string out(sure);
      held_ = held_.substr(out.size());
      return out;
    }

   private:
    const Settings& settings_;
    int64_t left_;
    std::string held_;
  };
  const Settings settings_;
};

}  // namespace

MSLUA_DECODER(strip) {
  return {{"Strip"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<Decoder>> {
            Settings settings{reader->String("content"), reader->Int("start", 0), reader->Int("stop", 0)};
            if (settings.content.empty()) return reader->Wrong("content", "expected a character, got an empty text");
            if (reader->joined) return std::make_unique<StripText>(std::move(settings));
            return std::make_unique<StripTokens>(std::move(settings));
          }};
}

}  // namespace mslua::text
