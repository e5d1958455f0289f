#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// "ij,jk->ik": the letters of each operand and of the result. Without an arrow the result has the letters that stand
// once, in the order of the alphabet, as in NumPy. The dimensions that "..." stands for are digits here, 0 the last
// one.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

constexpr int64_t kMostUnnamed = 10;  // digits

// "210" for 3 dimensions.
std::string Unnamed(int64_t count) {
  std::string digits;
  while (count > 0) digits += static_cast<char>('0' + --count);
  return digits;
}

// Puts digits in the place of "..."; whether it stood there.
StatusOr<bool> ReplaceDots(std::string& letters, int64_t count) {
  const size_t dots = letters.find("...");
  if (dots != letters.npos) letters.replace(dots, 3, Unnamed(count));
  if (letters.find('.') != letters.npos) return absl::InvalidArgumentError("expected one '...' in each operand");
  return dots != letters.npos;
}

StatusOr<Equation> Parse(absl::string_view text, absl::Span<const TensorType> in) {
  std::string plain(text);
  plain.erase(std::remove_if(plain.begin(), plain.end(), absl::ascii_isspace), plain.end());
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("equation '", text, "': ", why));
  };
  const std::vector<std::string> sides = absl::StrSplit(plain, "->");
  if (sides.size() > 2) return bad("expected one ->");
  Equation e;
  e.operands = absl::StrSplit(sides[0], ',');
  if (e.operands.size() != in.size())
    return bad(absl::StrCat("it has ", e.operands.size(), " operands, the call has ", in.size()));
  if (std::any_of(plain.begin(), plain.end(), absl::ascii_isdigit)) return bad("expected letters, ',' and '->'");
  std::map<char, int> uses;
  int64_t unnamed = 0;
  bool any_dots = false;
  for (size_t k = 0; k < in.size(); ++k) {
    std::string& letters = e.operands[k];
    const auto named = static_cast<int64_t>(letters.size()) - 3;
    const int64_t own = std::max<int64_t>(0, in[k].rank() - named);
    const auto dots = ReplaceDots(letters, std::min(own, kMostUnnamed));
    if (!dots.ok()) return bad(dots.status().message());
    if (*dots && own > kMostUnnamed)
      return bad(absl::StrCat("'...' stands for ", own, " dimensions, expected ", kMostUnnamed, " at most"));
    any_dots = any_dots || *dots;
    if (*dots) unnamed = std::max(unnamed, own);
    for (size_t i = 0; i < letters.size(); ++i) {
      const auto letter = static_cast<unsigned char>(letters[i]);
      if (!absl::ascii_isalpha(letter) && !absl::ascii_isdigit(letter)) return bad("expected letters, ',' and '->'");
      if (letters.find(letters[i], i + 1) != std::string::npos)
        return bad(absl::StrCat("'", letters, "' has a letter twice: diagonals are not supported"));
      ++uses[letters[i]];
    }
  }
  if (sides.size() == 1) {
    e.result = Unnamed(unnamed);
    for (const auto& [letter, count] : uses) {
      if (count == 1 && absl::ascii_isalpha(static_cast<unsigned char>(letter))) e.result += letter;
    }
    return e;
  }
  e.result = sides[1];
  const auto dots = ReplaceDots(e.result, unnamed);
  if (!dots.ok()) return bad(dots.status().message());
  if (*dots && !any_dots) return bad("the result's '...' is in no operand");
  if (!*dots && unnamed > 0) return bad("'...' stands for dimensions that the result lacks: write '...' after -> too");
  for (size_t i = 0; i < e.result.size(); ++i) {
    if (uses.find(e.result[i]) == uses.end())
      return bad(absl::StrCat("the result's '", e.result.substr(i, 1), "' is in no operand"));
    if (e.result.find(e.result[i], i + 1) != std::string::npos) return bad("the result has a letter twice");
  }
  return e;
}

StatusOr<std::map<char, int64_t>> Sizes(const Equation& e, absl::Span<const TensorType> in) {
  std::map<char, int64_t> sizes;
  for (size_t k = 0; k < in.size(); ++k) {
    const std::string& letters = e.operands[k];
    if (static_cast<int64_t>(letters.size()) != in[k].rank()) {
      return absl::InvalidArgumentError(absl::StrCat("operand ", k + 1, " has ", in[k].rank(), " dimensions, '",
                                                     letters, "' names ", letters.size()));
    }
    for (size_t d = 0; d < letters.size(); ++d) {
      const auto [known, is_new] = sizes.emplace(letters[d], in[k].shape[d]);
      if (known->second == in[k].shape[d]) continue;
      const bool unnamed = absl::ascii_isdigit(static_cast<unsigned char>(letters[d]));
      if (unnamed && in[k].shape[d] == 1) continue;
      if (unnamed && known->second == 1) {
        known->second = in[k].shape[d];
        continue;
      }
      const std::string what = unnamed ? absl::StrCat("dimension ", letters[d] - '0' + 1, " from the end of '...'")
                                       : absl::StrCat("'", letters.substr(d, 1), "'");
      return absl::InvalidArgumentError(
          absl::StrCat("size of ", what, " differs: ", known->second, " and ", in[k].shape[d]));
    }
  }
  return sizes;
}

// A value and the letters of its dimensions.
struct Term {
  Value value;
  std::string letters;
};

bool Has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

Term Ordered(GraphBuilder& g, const Term& t, const std::string& letters) {
  if (t.letters == letters) return t;
  std::vector<int64_t> permutation;
  for (char c : letters) permutation.push_back(static_cast<int64_t>(t.letters.find(c)));
  return {Transpose(g, t.value, permutation), letters};
}

// An operand without those of its unnamed dimensions that have size 1 where another's are larger.
Term Operand(GraphBuilder& g, Value value, const std::string& letters, const std::map<char, int64_t>& sizes) {
  const Shape shape = g.TypeOf(value).shape;
  Shape left;
  Term t;
  for (size_t d = 0; d < letters.size(); ++d) {
    if (shape[d] == 1 && sizes.at(letters[d]) != 1) continue;
    left.push_back(shape[d]);
    t.letters += letters[d];
  }
  t.value = left.size() == shape.size() ? value : Reshape(g, value, left);
  return t;
}

// Sums over the letters that nobody needs any more.
Term SumOut(GraphBuilder& g, const Term& t, const std::string& needed) {
  std::vector<int64_t> axes;
  std::string left;
  for (size_t d = 0; d < t.letters.size(); ++d) {
    if (Has(needed, t.letters[d]))
      left += t.letters[d];
    else
      axes.push_back(static_cast<int64_t>(d));
  }
  if (axes.empty()) return t;
  return {ReduceSum(g, t.value, axes, false), left};
}

// The product of two terms, summed over the letters that `needed` lacks: one product of matrices for each element of
// what both have and keep.
Term Product(GraphBuilder& g, const Term& a, const Term& b, const std::string& needed,
             const std::map<char, int64_t>& sizes) {
  std::string batch, left, summed, right;
  for (char c : a.letters) (!Has(b.letters, c) ? left : Has(needed, c) ? batch : summed) += c;
  for (char c : b.letters) {
    if (!Has(a.letters, c)) right += c;
  }
  const auto count = [&](const std::string& letters) {
    int64_t n = 1;
    for (char c : letters) n *= sizes.at(c);
    return n;
  };
  const int64_t n = count(batch), i = count(left), k = count(summed), j = count(right);
  const Value x = Reshape(g, Ordered(g, a, batch + left + summed).value, {n, i, k});
  const Value w = Reshape(g, Ordered(g, b, batch + summed + right).value, {n, k, j});
  Shape shape;
  const std::string letters = batch + left + right;
  for (char c : letters) shape.push_back(sizes.at(c));
  return {Reshape(g, g.Op("matmul", {x, w}), shape), letters};
}

}  // namespace

// A composite of transposes, sums and products of matrices, from left to right.
MSLUA_OPERATOR(einsum) {
  OpDef op("einsum");
  op.Computes(Precision::kNarrow);
  op.Class("Einsum").Doc(
      "Products and sums by a formula over the letters of dimensions: \"ij,jk->ik\" is a product of matrices. Letters "
      "that the result lacks are summed over; without -> it has those that stand once. '...' stands for dimensions "
      "without letters, which are broadcast. As NumPy's einsum, but without a letter twice in one operand. The "
      "equation may come first: `ops.einsum(\"ij,jk->ik\", a, b)`.");
  op.Variadic("x").Required("equation", AttrKind::kString, "the operands' letters, ->, the result's letters");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    ASSIGN_OR_RETURN(const Equation e, Parse(a.Str("equation"), in));
    return Sizes(e, in).status();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    std::vector<TensorType> types;
    for (const Value v : in) types.push_back(g.TypeOf(v));
    const auto e = Parse(attrs.Str("equation"), types);
    const auto sizes = Sizes(*e, types);                    // both have succeeded in the check
    std::vector<std::string> needed(in.size(), e->result);  // after operand k, by the rest
    for (size_t k = in.size() - 1; k > 0; --k) needed[k - 1] = needed[k] + e->operands[k];
    const auto operand = [&](size_t k) { return Operand(g, in[k], e->operands[k], *sizes); };
    Term t = SumOut(g, operand(0), needed[0]);
    for (size_t k = 1; k < in.size(); ++k) {
      const Term next = SumOut(g, operand(k), t.letters + needed[k]);
      t = SumOut(g, Product(g, t, next, needed[k], *sizes), needed[k]);
    }
    return {Ordered(g, t, e->result).value};
  });
  using Types = std::vector<TensorType>;
  op.AddSample({Types{{DType::kF32, {3, 4}}, {DType::kF32, {4, 5}}}, {{"equation", std::string("ij,jk->ik")}}});
  op.AddSample(
      {Types{{DType::kF32, {2, 3, 4}}, {DType::kF32, {2, 5, 4}}}, {{"equation", std::string("bik,bjk->bij")}}});
  op.AddSample({Types{{DType::kF32, {3, 4, 2}}}, {{"equation", std::string("ijk->kj")}}});
  op.AddSample({Types{{DType::kF32, {2, 1, 3, 4}}, {DType::kF32, {5, 4, 3}}},
                {{"equation", std::string("...ij,...jk->...ik")}}});
  op.AddSample(
      {Types{{DType::kF32, {3}}, {DType::kF32, {4}}, {DType::kF32, {4, 3}}}, {{"equation", std::string("i,j,ji")}}});
  return {op};
}

}  // namespace mslua
