#include "core/op/factor_rule.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"

namespace mslua {
namespace {

// "*b", "i", "!h", "1", "(i j)": split at spaces outside parentheses.
StatusOr<std::vector<std::string>> Tokens(absl::string_view text) {
  std::vector<std::string> out;
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ' ') {
      ++i;
    } else if (text[i] == '(') {
      const size_t close = text.find(')', i);
      if (close == text.npos) return absl::InvalidArgumentError("missing ')'");
      out.emplace_back(text.substr(i, close - i + 1));
      i = close + 1;
    } else {
      const size_t end = std::min(text.find(' ', i), text.size());
      out.emplace_back(text.substr(i, end - i));
      i = end;
    }
  }
  return out;
}

class RuleParser {
 public:
  explicit RuleParser(FactorRule& rule) : rule_(rule) {}

  // Adds one tensor. `rank` < 0: an output, whose groups must be known already.
  Status Tensor(absl::string_view text, int64_t rank, bool output) {
    ASSIGN_OR_RETURN(const std::vector<std::string> tokens, Tokens(text));
    int64_t stars = 0;
    for (const std::string& t : tokens) {
      if (t == "!" || t == "*" || t == "!*")
        return absl::InvalidArgumentError(absl::StrCat("'", t, "' without a name"));
      stars += Bare(t)[0] == '*';
    }
    if (stars > 1) return absl::InvalidArgumentError("more than one '*' in a tensor");
    FactorRule::Tensor tensor;
    for (const std::string& token : tokens) {
      const bool whole = token[0] == '!';
      const std::string t(Bare(token));
      if (t[0] == '*') {
        int64_t count = rank < 0 ? -1 : rank - (static_cast<int64_t>(tokens.size()) - 1);
        const std::string name = t.substr(1);
        int64_t& known = GroupSize(name);
        if (count < 0 && rank >= 0) return RankError(rank, tokens.size() - 1, true);
        if (count < 0) count = known;
        if (count < 0) return absl::InvalidArgumentError(absl::StrCat("no input has '*", name, "'"));
        if (known < 0) known = count;
        if (known != count) {
          return absl::InvalidArgumentError(
              absl::StrCat("has ", count, " leading dimensions where another input has ", known));
        }
        for (int64_t i = 0; i < count; ++i) tensor.push_back({Use(absl::StrCat(name, i), whole, output)});
      } else if (t[0] == '(') {
        FactorRule::Dim dim;
        for (absl::string_view f : absl::StrSplit(t.substr(1, t.size() - 2), ' ', absl::SkipEmpty())) {
          const bool inner_whole = f[0] == '!';
          if (inner_whole) f.remove_prefix(1);
          if (f.empty()) return absl::InvalidArgumentError("'!' without a name");
          dim.push_back(Use(std::string(f), whole || inner_whole, output));
        }
        tensor.push_back(dim);
      } else if (t == "1") {
        tensor.emplace_back();
      } else {
        tensor.push_back({Use(t, whole, output)});
      }
    }
    if (rank >= 0 && static_cast<int64_t>(tensor.size()) != rank) return RankError(rank, tensor.size(), false);
    (output ? rule_.outputs : rule_.inputs).push_back(std::move(tensor));
    return absl::OkStatus();
  }

 private:
  static absl::string_view Bare(absl::string_view t) {
    absl::ConsumePrefix(&t, "!");
    return t;
  }
  static Status RankError(int64_t rank, size_t want, bool at_least) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", Counted(rank, "dimension"), ", expected ", at_least ? "at least " : "", want));
  }
  int64_t& GroupSize(const std::string& name) {
    for (auto& g : groups_) {
      if (g.first == name) return g.second;
    }
    groups_.emplace_back(name, -1);
    return groups_.back().second;
  }
  int Use(const std::string& name, bool whole, bool output) {
    int f = rule_.Find(name);
    if (f < 0) {
      f = static_cast<int>(rule_.factors.size());
      rule_.factors.emplace_back();
      rule_.factors[f].name = name;
    }
    FactorRule::Factor& factor = rule_.factors[f];
    factor.whole |= whole;
    (output ? factor.in_output : factor.in_input) = true;
    return f;
  }

  FactorRule& rule_;
  std::vector<std::pair<std::string, int64_t>> groups_;
};

}  // namespace

const char* Name(Reduction r) {
  constexpr const char* kNames[] = {"sum", "max", "min", "prod"};
  return kNames[static_cast<int>(r)];
}

int FactorRule::Find(absl::string_view name) const {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

StatusOr<FactorRule> ParseFactorRule(absl::string_view text, absl::Span<const int64_t> input_ranks) {
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("rule '", text, "': ", what));
  };
  FactorRule rule;
  const size_t arrow = text.find("->");
  if (arrow == text.npos) return bad("no '->'");
  absl::string_view left = text.substr(0, arrow), right = text.substr(arrow + 2);
  if (const size_t brace = right.find('{'); brace != right.npos) {
    const absl::string_view kind = right.substr(brace);
    bool known = false;
    for (Reduction r : {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
      if (kind == absl::StrCat("{", Name(r), "}")) rule.reduction = r, known = true;
    }
    if (!known) return bad("unknown reduction");
    right = right.substr(0, brace);
  }
  std::vector<absl::string_view> inputs = absl::StrSplit(left, ',');
  // An operator without inputs has an empty left side; a scalar input is empty too, so count decides.
  if (input_ranks.empty()) inputs.clear();
  if (inputs.size() != input_ranks.size()) {
    return bad(absl::StrCat("describes ", inputs.size(), " inputs, there are ", input_ranks.size()));
  }
  RuleParser parser(rule);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Status s = parser.Tensor(inputs[i], input_ranks[i], false);
    if (!s.ok()) return absl::InvalidArgumentError(absl::StrCat("input ", i, " ", s.message()));
  }
  for (absl::string_view output : absl::StrSplit(right, ',')) {
    const Status s = parser.Tensor(output, -1, true);
    if (!s.ok()) return bad(s.message());
  }
  return rule;
}

StatusOr<Shape> FactorSizes(const FactorRule& rule, absl::Span<const Shape> inputs,
                            absl::Span<const std::string> input_names) {
  Shape sizes(rule.factors.size(), -1);
  std::vector<std::string> said(rule.factors.size());  // who said it, for the message
  const auto name_of = [&](size_t i) { return i < input_names.size() ? input_names[i] : absl::StrCat("input ", i); };
  // Dimensions count from 1, as users do.
  const auto place_of = [&](size_t i, size_t d) { return absl::StrCat("dimension ", d + 1, " of ", name_of(i)); };
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      const FactorRule::Dim& dim = rule.inputs[i][d];
      const int64_t size = inputs[i][d];
      const std::string place = place_of(i, d);
      if (dim.empty() && size != 1) {
        return absl::InvalidArgumentError(absl::StrCat(place, " is ", size, ", expected 1"));
      }
      if (dim.size() != 1) continue;
      const int f = dim[0];
      if (sizes[f] < 0) {
        sizes[f] = size;
        said[f] = place;
      } else if (sizes[f] != size) {
        return absl::InvalidArgumentError(absl::StrCat("size of '", rule.factors[f].name, "' differs: ", said[f],
                                                       " is ", sizes[f], ", ", place, " is ", size));
      }
    }
  }
  // A compound with one unknown factor says that factor's size; one without must be their product.
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      const FactorRule::Dim& dim = rule.inputs[i][d];
      if (dim.size() < 2) continue;
      int64_t known = 1;
      int unknown = -1, count = 0;
      for (int f : dim) {
        if (sizes[f] < 0)
          unknown = f, ++count;
        else
          known *= sizes[f];
      }
      const auto bad = [&](absl::string_view what) {
        return absl::InvalidArgumentError(absl::StrCat(place_of(i, d), " is ", inputs[i][d], ", ", what, known));
      };
      if (count == 0 && known != inputs[i][d]) return bad("but its factors multiply to ");
      if (count != 1 || known == 0) continue;
      if (inputs[i][d] % known != 0) return bad("not a multiple of ");
      sizes[unknown] = inputs[i][d] / known;
    }
  }
  return sizes;
}

}  // namespace mslua
