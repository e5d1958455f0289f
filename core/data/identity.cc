#include "core/data/identity.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/hash.h"

namespace mslua::data {
namespace {

template <class... Overloads>
struct Visitor : Overloads... {
  using Overloads::operator()...;
};
template <class... Overloads>
Visitor(Overloads...) -> Visitor<Overloads...>;

// With its length in front, so that no text runs into the next.
std::string Sized(const std::string& text) { return absl::StrCat(text.size(), ":", text); }

std::string Text(double v) { return absl::StrFormat("%.17g", v); }

template <class Numbers>
std::string List(const Numbers& numbers) {
  std::string text = "{";
  for (const double v : numbers) absl::StrAppend(&text, Text(v), ",");
  return text + "}";
}

std::string Strings(const std::vector<std::string>& list) {
  std::string text = "{";
  for (const std::string& s : list) absl::StrAppend(&text, Sized(s), ",");
  return text + "}";
}

std::string ValueText(const FieldValue& value) {
  return std::visit(Visitor{
                        [](std::monostate) { return std::string("-"); },
                        [](bool b) { return std::string(b ? "true" : "false"); },
                        [](int64_t i) { return absl::StrCat(i); },
                        [](double d) { return Text(d); },
                        [](const std::string& s) { return Sized(s); },
                        [](const std::vector<double>& list) { return List(list); },
                        [](const std::vector<std::string>& list) { return Strings(list); },
                        [](const std::map<std::string, std::string>& texts) {
                          std::string text = "{";
                          for (const auto& [key, v] : texts) absl::StrAppend(&text, Sized(key), "=", Sized(v), ",");
                          return text + "}";
                        },
                        [](const std::vector<NamedArray>& arrays) {
                          std::string text = "{";
                          for (const NamedArray& a : arrays) {
                            absl::StrAppend(&text, Sized(a.name), " ", ToString(a.type), " ",
                                            Crc32c(a.data.get(), static_cast<size_t>(a.type.bytes())), ",");
                          }
                          return text + "}";
                        },
                        [](const std::shared_ptr<Generator>& generator) { return Sized(generator->identity()); },
                        [](const std::shared_ptr<const SampleCode>& code) { return Sized(code->identity()); },
                    },
                    value);
}

std::string FieldsText(const FieldMap& fields) {
  std::string text = "{";
  for (const auto& [name, value] : fields) absl::StrAppend(&text, name, "=", ValueText(value), ",");
  return text + "}";
}

std::string TransformText(const Transform& transform) {
  const std::string fields = std::visit(
      Visitor{
          [](const RandomCrop& t) {
            return absl::StrJoin(std::vector<int64_t>{t.height, t.width, t.left, t.top, t.right, t.bottom}, ",");
          },
          [](const RandomHorizontalFlip& t) { return Text(t.prob); },
          [](const Resize& t) { return absl::StrCat(t.height, ",", t.width); },
          [](const CenterCrop& t) { return absl::StrCat(t.height, ",", t.width); },
          [](const Rescale& t) { return absl::StrCat(Text(t.scale), ",", Text(t.shift)); },
          [](const Normalize& t) { return absl::StrCat(List(t.mean), ",", List(t.std)); },
          [](const HWC2CHW&) { return std::string(); },
          [](const TypeCast& t) { return std::string(LongName(t.dtype)); },
          [](const OneHot& t) { return absl::StrCat(t.num_classes); },
          [](const Vision& t) { return FieldsText(t.fields); },
      },
      transform);
  return absl::StrCat(Name(transform), "(", fields, ")");
}

std::string OpText(const Op& op) {
  const std::string fields = std::visit(
      Visitor{
          [](const MapOp& o) {
            const auto write = [](std::string* out, const Transform& t) { out->append(TransformText(t)); };
            return absl::StrCat(absl::StrJoin(o.transforms, ",", write), Strings(o.columns), Strings(o.names));
          },
          [](const ShuffleOp& o) { return absl::StrCat(o.buffer_size); },
          [](const BatchOp& o) { return absl::StrCat(o.size); },
          [](const RepeatOp& o) { return absl::StrCat(o.count); },
          [](const TakeOp& o) { return absl::StrCat(o.count); },
          [](const SkipOp& o) { return absl::StrCat(o.count); },
          [](const ProjectOp& o) { return Strings(o.columns) + Strings(o.names); },
          [](const RenameOp& o) { return Strings(o.from) + Strings(o.to); },
          [](const KeepOp& o) { return List(*o.samples); },
          [](const WeightedOp& o) { return absl::StrCat(List(*o.weights), o.count, o.replacement); },
          [](const CallOp& o) {
            return absl::StrCat(Sized(o.code->identity()), Strings(o.inputs), Strings(o.outputs));
          },
          [](const MixOp& o) {
            return absl::StrCat(o.cut, Text(o.alpha), Text(o.prob), Sized(o.image), Sized(o.label));
          },
      },
      op);
  return absl::StrCat(Name(op), "(", fields, ")");
}

}  // namespace

std::string IdentityOf(const Dataset& dataset) {
  std::string text = absl::StrCat(dataset.source().kind(), FieldsText(dataset.source().fields()));
  for (const auto& part : dataset.source().parts()) absl::StrAppend(&text, "[", IdentityOf(*part), "]");
  for (const Op& op : dataset.ops()) absl::StrAppend(&text, ":", OpText(op));
  return text;
}

}  // namespace mslua::data
