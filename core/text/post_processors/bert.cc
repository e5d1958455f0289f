// BERT's: [CLS] a [SEP] b [SEP], and RoBERTa's: <s> a </s></s> b </s>.
#include "absl/strings/str_cat.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

class Bert : public PostProcessor {
 public:
  Bert(int32_t cls, int32_t sep, bool roberta) : cls_(cls), sep_(sep), roberta_(roberta) {}

  Encoding Join(std::vector<int32_t> first, const std::vector<int32_t>* second) const override {
    Encoding out;
    out.ids = std::move(first);
    out.ids.insert(out.ids.begin(), cls_);
    out.ids.push_back(sep_);
    out.types.resize(out.ids.size(), 0);
    if (second == nullptr) return out;
    if (roberta_) out.ids.push_back(sep_);
    out.ids.insert(out.ids.end(), second->begin(), second->end());
    out.ids.push_back(sep_);
    out.types.resize(out.ids.size(), roberta_ ? 0 : 1);
    return out;
  }

 private:
  const int32_t cls_, sep_;
  const bool roberta_;
};

}  // namespace

MSLUA_POST_PROCESSOR(bert) {
  return {{"BertProcessing", "RobertaProcessing"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<PostProcessor>> {
            const bool roberta = reader->String("type") == "RobertaProcessing";
            if (roberta) reader->Ignore({"trim_offsets", "add_prefix_space"});
            int32_t ids[2];
            const char* const keys[] = {"cls", "sep"};
            for (int k = 0; k < 2; ++k) {
              const int64_t id = reader->TokenAndId(keys[k]).second;
              if (id >= kMostTokens) return reader->Wrong(keys[k], absl::StrCat("expected an id, got ", id));
              ids[k] = static_cast<int32_t>(id);
            }
            return std::make_unique<Bert>(ids[0], ids[1], roberta);
          }};
}

}  // namespace mslua::text
