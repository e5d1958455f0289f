#include "core/op/attrs.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace mslua {
namespace {

std::string DoubleText(double d) {
  if (std::isnan(d)) return "nan.";
  if (std::isinf(d)) return d > 0 ? "inf." : "-inf.";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class T>
const T& Checked(const Attrs& attrs, absl::string_view name) {
  const AttrValue* v = attrs.Find(name);
  if (v == nullptr || !std::holds_alternative<T>(*v)) {
    std::fprintf(stderr, "attribute '%.*s' is missing or of another type\n", static_cast<int>(name.size()),
                 name.data());
    std::abort();
  }
  return std::get<T>(*v);
}

}  // namespace

std::string AttrText(const AttrValue& value) {
  struct Printer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(double v) const { return DoubleText(v); }
    std::string operator()(const std::string& v) const { return absl::StrCat("\"", absl::CEscape(v), "\""); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return absl::StrCat("[", absl::StrJoin(v, ","), "]");
    }
    std::string operator()(DType v) const { return Name(v); }
  };
  return std::visit(Printer{}, value);
}

StatusOr<AttrValue> ParseAttrValue(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("not an attribute value: ", absl::CEscape(text)));
  };
  if (text.empty()) return bad();
  if (text == "true") return AttrValue(true);
  if (text == "false") return AttrValue(false);
  if (auto t = ParseDType(text)) return AttrValue(*t);
  if (text == "nan.") return AttrValue(std::nan(""));
  if (text == "inf.") return AttrValue(HUGE_VAL);
  if (text == "-inf.") return AttrValue(-HUGE_VAL);
  if (text.front() == '"') {
    std::string out;
    if (text.size() < 2 || text.back() != '"' || !absl::CUnescape(text.substr(1, text.size() - 2), &out)) return bad();
    return AttrValue(std::move(out));
  }
  if (text.front() == '[') {
    if (text.back() != ']') return bad();
    std::vector<int64_t> out;
    const absl::string_view inner = text.substr(1, text.size() - 2);
    if (inner.empty()) return AttrValue(std::move(out));
    for (absl::string_view part : absl::StrSplit(inner, ',')) {
      int64_t v;
      if (!absl::SimpleAtoi(part, &v)) return bad();
      out.push_back(v);
    }
    return AttrValue(std::move(out));
  }
  int64_t i;
  if (absl::SimpleAtoi(text, &i)) return AttrValue(i);
  if (text.find_first_of(".e") == text.npos) return bad();  // an integer that does not fit, or none
  double d;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), d);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return bad();
  return AttrValue(d);
}

Attrs& Attrs::Set(absl::string_view name, AttrValue value) {
  for (auto& item : items_) {
    if (item.first == name) {
      item.second = std::move(value);
      return *this;
    }
  }
  items_.emplace_back(std::string(name), std::move(value));
  return *this;
}

void Attrs::Erase(absl::string_view name) {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].first == name) {
      items_.erase(items_.begin() + i);
      return;
    }
  }
}

const AttrValue* Attrs::Find(absl::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) return &item.second;
  }
  return nullptr;
}

bool Attrs::Bool(absl::string_view name) const { return Checked<bool>(*this, name); }
int64_t Attrs::Int(absl::string_view name) const { return Checked<int64_t>(*this, name); }
double Attrs::Float(absl::string_view name) const { return Checked<double>(*this, name); }
const std::string& Attrs::Str(absl::string_view name) const { return Checked<std::string>(*this, name); }
const std::vector<int64_t>& Attrs::Ints(absl::string_view name) const {
  return Checked<std::vector<int64_t>>(*this, name);
}
DType Attrs::Type(absl::string_view name) const { return Checked<DType>(*this, name); }

}  // namespace mslua
