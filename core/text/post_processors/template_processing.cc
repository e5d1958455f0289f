// Tokens around one text and around two, as a template lists them.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/text/define.h"

namespace mslua::text {
namespace {

struct Item {
  char sequence = 0;         // 'A', 'B', or 0: the tokens
  std::vector<int32_t> ids;  // of a special token
  int32_t type = 0;
};

void Append(const Item& item, const std::vector<int32_t>& first, const std::vector<int32_t>* second, Encoding* out) {
  const std::vector<int32_t>& ids = item.sequence == 'A' ? first : item.sequence == 'B' ? *second : item.ids;
  out->ids.insert(out->ids.end(), ids.begin(), ids.end());
  out->types.resize(out->ids.size(), item.type);
}

class Template : public PostProcessor {
 public:
  Template(std::vector<Item> single, std::vector<Item> pair) : single_(std::move(single)), pair_(std::move(pair)) {}

  Encoding Join(std::vector<int32_t> first, const std::vector<int32_t>* second) const override {
    Encoding out;
    for (const Item& item : second == nullptr ? single_ : pair_) Append(item, first, second, &out);
    return out;
  }

 private:
  const std::vector<Item> single_, pair_;
};

using SpecialIds = absl::flat_hash_map<std::string, std::vector<int32_t>>;

StatusOr<SpecialIds> ReadSpecialTokens(PartReader* reader) {
  SpecialIds special;
  for (const auto& [name, json] : reader->Object("special_tokens").items()) {
    PartReader token(json, absl::StrCat(reader->place(), ".special_tokens[\"", name, "\"]"));
    token.Ignore({"id", "tokens"});
    for (const Json& id : token.List("ids")) {
      if (CountOf(id) < 0 || CountOf(id) >= kMostTokens)
        return token.Wrong("ids", absl::StrCat("expected ids, got ", ShowJson(id)));
      special[name].push_back(id.get<int32_t>());
    }
    RETURN_IF_ERROR(token.status());
  }
  return special;
}

StatusOr<std::vector<Item>> ReadItems(PartReader* reader, const std::string& key, const SpecialIds& special) {
  std::vector<Item> items;
  for (const Json& json : reader->List(key)) {
    const std::string place = absl::StrCat(key, "[", items.size(), "]");
    const bool one = json.is_object() && json.size() == 1;
    const std::string kind = one ? json.items().begin().key() : "";
    if (kind != "SpecialToken" && kind != "Sequence")
      return reader->Wrong(place, absl::StrCat("expected a SpecialToken or a Sequence, got ", ShowJson(json)));
    PartReader fields(json.front(), absl::StrCat(reader->place(), ".", place, ".", kind));
    Item item;
    const std::string id = fields.String("id");
    const int64_t type = fields.Int("type_id", 0);
    RETURN_IF_ERROR(fields.status());
    if (type < 0 || type > 1000) return fields.Wrong("type_id", absl::StrCat("expected 0 to 1000, got ", type));
    item.type = static_cast<int32_t>(type);
    if (kind == "Sequence") {
      if (id != "A" && (id != "B" || key == "single"))
        return fields.Wrong("id", absl::StrCat("expected ", key == "single" ? "A" : "A or B", ", got '", id, "'"));
      item.sequence = id[0];
    } else {
      const auto found = special.find(id);
      if (found == special.end()) return fields.Wrong("id", absl::StrCat("special_tokens has no '", id, "'"));
      item.ids = found->second;
    }
    items.push_back(std::move(item));
  }
  return items;
}

StatusOr<std::unique_ptr<PostProcessor>> Read(PartReader* reader) {
  ASSIGN_OR_RETURN(const SpecialIds special, ReadSpecialTokens(reader));
  ASSIGN_OR_RETURN(std::vector<Item> single, ReadItems(reader, "single", special));
  ASSIGN_OR_RETURN(std::vector<Item> pair, ReadItems(reader, "pair", special));
  return std::make_unique<Template>(std::move(single), std::move(pair));
}

}  // namespace

MSLUA_POST_PROCESSOR(template_processing) { return {{"TemplateProcessing"}, Read}; }

}  // namespace mslua::text
