#include "core/text/part.h"

#include <utility>

namespace mslua::text {
namespace {

class TokenDecoderRun : public DecoderRun {
 public:
  explicit TokenDecoderRun(const TokenDecoder& decoder) : decoder_(decoder) {}
  std::string Push(std::string token) override {
    return decoder_.Decode(std::move(token), std::exchange(first_, false));
  }

 private:
  const TokenDecoder& decoder_;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<DecoderRun> TokenDecoder::Start() const { return std::make_unique<TokenDecoderRun>(*this); }

}  // namespace mslua::text
