// Unicode's normal forms.
#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class ToNormalForm : public Normalizer {
 public:
  explicit ToNormalForm(NormalForm form) : form_(form) {}
  Status Apply(std::string* text) const override {
    *text = Normalized(*text, form_);
    return absl::OkStatus();
  }

 private:
  const NormalForm form_;
};

}  // namespace

MSLUA_NORMALIZER(normal_form) {
  return {{"NFC", "NFD", "NFKC", "NFKD"}, [](PartReader* reader) {
            const std::string type = reader->String("type");
            return std::make_unique<ToNormalForm>(type == "NFC"    ? NormalForm::kNfc
                                                  : type == "NFD"  ? NormalForm::kNfd
                                                  : type == "NFKC" ? NormalForm::kNfkc
                                                                   : NormalForm::kNfkd);
          }};
}

}  // namespace mslua::text
