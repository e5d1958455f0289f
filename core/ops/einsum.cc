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
// once, in the order of the alphabet, as in NumPy.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

StatusOr<Equation> Parse(absl::string_view text, size_t operands) {
  std::string plain(text);
  plain.erase(std::remove_if(plain.begin(), plain.end(), absl::ascii_isspace), plain.end());
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("equation '", text, "': ", why));
  };
  const std::vector<std::string> sides = absl::StrSplit(plain, "->");
  if (sides.size() > 2) return bad("expected one ->");
  Equation e;
  e.operands = absl::StrSplit(sides[0], ',');
  std::map<char, int> uses;
  for (const std::string& letters : e.operands) {
    for (size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] == '.') return bad("'...' is not supported; name every dimension");
      if (!absl::ascii_isalpha(static_cast<unsigned char>(letters[i]))) return bad("expected letters, ',' and '->'");
      if (letters.find(letters[i], i + 1) != std::string::npos)
        return bad(absl::StrCat("'", letters, "' has a letter twice: diagonals are not supported"));
      ++uses[letters[i]];
    }
  }
  if (e.operands.size() != operands)
    return bad(absl::StrCat("it has ", e.operands.size(), " operands, the call has ", operands));
  if (sides.size() == 1) {
    for (const auto& [letter, count] : uses) {
      if (count == 1) e.result += letter;
    }
    return e;
  }
  e.result = sides[1];
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
      return absl::InvalidArgumentError(
          absl::StrCat("size of '", letters.substr(d, 1), "' differs: ", known->second, " and ", in[k].shape[d]));
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
  op.Class("Einsum").Doc(
      "Products and sums by a formula over the letters of dimensions: \"ij,jk->ik\" is a product of matrices. Letters "
      "that the result lacks are summed over; without -> it has those that stand once. As NumPy's einsum, but without "
      "'...' and without a letter twice in one operand. The equation may come first: "
      "`ops.einsum(\"ij,jk->ik\", a, b)`.");
  op.Variadic("x").Required("equation", AttrKind::kString, "the operands' letters, ->, the result's letters");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    ASSIGN_OR_RETURN(const Equation e, Parse(a.Str("equation"), in.size()));
    return Sizes(e, in).status();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const auto e = Parse(attrs.Str("equation"), in.size());
    std::vector<TensorType> types;
    for (const Value v : in) types.push_back(g.TypeOf(v));
    const auto sizes = Sizes(*e, types);                    // both have succeeded in the check
    std::vector<std::string> needed(in.size(), e->result);  // after operand k, by the rest
    for (size_t k = in.size() - 1; k > 0; --k) needed[k - 1] = needed[k] + e->operands[k];
    Term t = SumOut(g, {in[0], e->operands[0]}, needed[0]);
    for (size_t k = 1; k < in.size(); ++k) {
      const Term next = SumOut(g, {in[k], e->operands[k]}, t.letters + needed[k]);
      t = SumOut(g, Product(g, t, next, needed[k], *sizes), needed[k]);
    }
    return {Ordered(g, t, e->result).value};
  });
  using Types = std::vector<TensorType>;
  op.AddSample({Types{{DType::kF32, {3, 4}}, {DType::kF32, {4, 5}}}, {{"equation", std::string("ij,jk->ik")}}});
  op.AddSample(
      {Types{{DType::kF32, {2, 3, 4}}, {DType::kF32, {2, 5, 4}}}, {{"equation", std::string("bik,bjk->bij")}}});
  op.AddSample({Types{{DType::kF32, {3, 4, 2}}}, {{"equation", std::string("ijk->kj")}}});
  op.AddSample(
      {Types{{DType::kF32, {3}}, {DType::kF32, {4}}, {DType::kF32, {4, 3}}}, {{"equation", std::string("i,j,ji")}}});
  return {op};
}

}  // namespace mslua
