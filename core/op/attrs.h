// Attributes of a node: what an operator knows at compile time besides its inputs' types.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/base/status.h"

namespace mslua {

// Axes and subscripts are 0-based here; Lua's binder converts (docs: lua_api).
using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType>;

// "true", "3", "0.5" (a double always shows a point, an exponent or inf/nan), "\"same\"", "[1,2]", "f32".
std::string AttrText(const AttrValue& value);
// The inverse, bit for bit.
StatusOr<AttrValue> ParseAttrValue(absl::string_view text);

// A small map that keeps the order of definition. Values are few: look-up is linear.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items) : items_(items) {}

  // Replaces or appends.
  Attrs& Set(absl::string_view name, AttrValue value);
  void Erase(absl::string_view name);
  const AttrValue* Find(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }

  // The value of an attribute that is known to exist with this type (the builder has checked it
  // against the definition); aborts otherwise.
  bool Bool(absl::string_view name) const;
  int64_t Int(absl::string_view name) const;
  double Float(absl::string_view name) const;
  const std::string& Str(absl::string_view name) const;
  const std::vector<int64_t>& Ints(absl::string_view name) const;
  DType Type(absl::string_view name) const;

  const std::vector<std::pair<std::string, AttrValue>>& items() const { return items_; }
  bool empty() const { return items_.empty(); }
  friend bool operator==(const Attrs& a, const Attrs& b) { return a.items_ == b.items_; }

 private:
  std::vector<std::pair<std::string, AttrValue>> items_;
};

}  // namespace mslua
