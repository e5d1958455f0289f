#include "cli/flags.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace mslua::cli {
namespace {

std::vector<std::string> WordsIn(FlagKind kind, const std::string& value) {
  if (kind != FlagKind::kEnum && kind != FlagKind::kIntOrEnum) return {};
  std::vector<std::string> words = absl::StrSplit(value, '|');
  if (kind == FlagKind::kIntOrEnum) words.erase(words.begin());
  return words;
}

// What a flag allows. gflags gives a validator only the name and the value, so that the rest is found by name.
struct Domain {
  FlagKind kind = FlagKind::kBool;
  double minimum = 0;
  std::vector<std::string> words;
};

std::map<std::string, Domain>& Domains() {
  static auto* domains = new std::map<std::string, Domain>();
  return *domains;
}

bool Allows(const char* name, gflags::int64 value) { return static_cast<double>(value) >= Domains().at(name).minimum; }

bool Allows(const char* name, double value) { return std::isfinite(value) && value >= Domains().at(name).minimum; }

bool Allows(const char* name, const std::string& value) {
  const Domain& domain = Domains().at(name);
  if (domain.kind == FlagKind::kString) return !value.empty();
  if (std::find(domain.words.begin(), domain.words.end(), value) != domain.words.end()) return true;
  int64_t number;
  return domain.kind == FlagKind::kIntOrEnum && absl::SimpleAtoi(value, &number) && Allows(name, number);
}

bool Allows(const char*, bool) { return true; }

// gflags' record of the flag whose variable is at `storage`.
const gflags::CommandLineFlagInfo& InfoOf(const void* storage) {
  static const auto* infos = [] {
    std::vector<gflags::CommandLineFlagInfo> all;
    gflags::GetAllFlags(&all);
    auto* by_storage = new std::map<const void*, gflags::CommandLineFlagInfo>();
    for (auto& info : all) by_storage->emplace(info.flag_ptr, std::move(info));
    return by_storage;
  }();
  return infos->at(storage);
}

// The value in `storage`.
FlagValue Stored(FlagKind kind, const void* storage) {
  switch (kind) {
    case FlagKind::kBool:
      return *static_cast<const bool*>(storage);
    case FlagKind::kInt:
      return int64_t{*static_cast<const gflags::int64*>(storage)};
    case FlagKind::kFloat:
      return *static_cast<const double*>(storage);
    case FlagKind::kString:
    case FlagKind::kEnum:
      return *static_cast<const std::string*>(storage);
    case FlagKind::kIntOrEnum: {
      const std::string& text = *static_cast<const std::string*>(storage);
      int64_t number;
      return absl::SimpleAtoi(text, &number) ? FlagValue(number) : FlagValue(text);
    }
  }
  return false;
}

template <class T>
FlagDef Describe(const T& variable, FlagKind kind, std::string value, double minimum) {
  const gflags::CommandLineFlagInfo& info = InfoOf(&variable);
  FlagDef flag;
  flag.gflag = info.name;
  flag.name = absl::StrReplaceAll(info.name, {{"_", "-"}});
  flag.kind = kind;
  flag.value = std::move(value);
  flag.help = info.description;
  flag.minimum = minimum;
  flag.storage = &variable;
  Domains()[info.name] = {kind, minimum, flag.Words()};
  bool (*allows)(const char*, std::conditional_t<std::is_same_v<T, std::string>, const std::string&, T>) = &Allows;
  gflags::RegisterFlagValidator(&variable, allows);
  if (Allows(info.name.c_str(), variable)) {
    flag.initial = Stored(kind, &variable);
    if (kind != FlagKind::kBool) flag.default_value = info.default_value;
  }
  return flag;
}

}  // namespace

FlagDef FlagDef::As(std::string spelling) && {
  name = std::move(spelling);
  return std::move(*this);
}
FlagDef FlagDef::Help(std::string text) && {
  help = std::move(text);
  return std::move(*this);
}
FlagDef FlagDef::Bare(std::string text) && {
  bare = std::move(text);
  return std::move(*this);
}
FlagDef FlagDef::Repeated() && {
  repeated = true;
  return std::move(*this);
}
FlagDef FlagDef::Of(std::vector<std::string> names) && {
  actions = std::move(names);
  return std::move(*this);
}

std::string FlagDef::Typed() const { return absl::StrCat(name.size() == 1 ? "-" : "--", name); }

std::string FlagDef::Spelling() const {
  return kind == FlagKind::kBool && initial == FlagValue(true) ? absl::StrCat("--no-", name) : Typed();
}

std::vector<std::string> FlagDef::Words() const { return WordsIn(kind, value); }

std::string FlagDef::Expected() const {
  switch (kind) {
    case FlagKind::kBool:
      return "true or false";
    case FlagKind::kInt:
      return absl::StrCat("an integer from ", minimum);
    case FlagKind::kFloat:
      return absl::StrCat("a number from ", minimum);
    case FlagKind::kString:
      return "a text";
    case FlagKind::kEnum:
      return absl::StrJoin(Words(), " or ");
    case FlagKind::kIntOrEnum:
      return absl::StrCat("an integer from ", minimum, " or ", absl::StrJoin(Words(), " or "));
  }
  return "";
}

FlagDef Switch(const bool& flag) { return Describe(flag, FlagKind::kBool, "", 0); }
FlagDef Integer(const gflags::int64& flag, std::string value, int64_t minimum) {
  return Describe(flag, FlagKind::kInt, std::move(value), static_cast<double>(minimum));
}
FlagDef Number(const double& flag, std::string value, double minimum) {
  return Describe(flag, FlagKind::kFloat, std::move(value), minimum);
}
FlagDef Text(const std::string& flag, std::string value) {
  return Describe(flag, FlagKind::kString, std::move(value), 0);
}
FlagDef OneOf(const std::string& flag, std::string words) {
  return Describe(flag, FlagKind::kEnum, std::move(words), 0);
}
FlagDef IntegerOrWord(const std::string& flag, std::string value) {
  return Describe(flag, FlagKind::kIntOrEnum, std::move(value), 1);
}

std::optional<FlagValue> SetFlag(const FlagDef& flag, const std::string& text) {
  // gflags takes C strings.
  if (text.find('\0') != std::string::npos) return std::nullopt;
  if (gflags::SetCommandLineOption(flag.gflag.c_str(), text.c_str()).empty()) return std::nullopt;
  return Stored(flag.kind, flag.storage);
}

}  // namespace mslua::cli
