// The IR's text form: printer and parser, the inverse of each other.
#include <cctype>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/graph/graph.h"
#include "core/op/marks.h"
#include "core/op/registry.h"

namespace mslua {
namespace {

bool IsName(absl::string_view s) {
  if (s.empty() || isdigit(static_cast<unsigned char>(s[0]))) return false;
  for (char c : s) {
    if (!isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return true;
}

// "%12", "%12:1", or "%w" for an input that has a plain name.
std::vector<std::string> NodeNames(const Graph& graph) {
  std::vector<std::string> names;
  absl::flat_hash_set<std::string> taken;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    std::string name = absl::StrCat("%", i);
    if (n.op->name == "input" && IsName(n.attrs.Str("name")) && taken.insert(n.attrs.Str("name")).second) {
      name = absl::StrCat("%", n.attrs.Str("name"));
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::string Reference(const std::vector<std::string>& names, Value v) {
  return v.output == 0 ? names[v.node] : absl::StrCat(names[v.node], ":", v.output);
}

// A cursor over the text of one line.
class Cursor {
 public:
  explicit Cursor(absl::string_view text) : text_(text) {}
  bool Eat(absl::string_view token) {
    Skip();
    return absl::ConsumePrefix(&text_, token);
  }
  bool AtEnd() {
    Skip();
    return text_.empty();
  }
  // Everything up to one of `stops`, outside quotes and brackets.
  absl::string_view Until(absl::string_view stops) {
    Skip();
    size_t i = 0;
    int depth = 0;
    bool quoted = false;
    for (; i < text_.size(); ++i) {
      const char c = text_[i];
      if (quoted) {
        if (c == '\\')
          ++i;
        else if (c == '"')
          quoted = false;
        continue;
      }
      if (depth == 0 && stops.find(c) != stops.npos) break;
      if (c == '"') quoted = true;
      if (c == '[') ++depth;
      if (c == ']') --depth;
    }
    i = std::min(i, text_.size());
    const absl::string_view out = absl::StripAsciiWhitespace(text_.substr(0, i));
    text_.remove_prefix(i);
    return out;
  }
  absl::string_view rest() const { return text_; }

 private:
  void Skip() { text_ = absl::StripLeadingAsciiWhitespace(text_); }
  absl::string_view text_;
};

StatusOr<TensorType> ParseType(absl::string_view text) {
  const size_t open = text.find('[');
  TensorType t;
  if (open == text.npos || text.back() != ']') return absl::InvalidArgumentError(absl::StrCat("not a type: ", text));
  const auto dtype = ParseDType(text.substr(0, open));
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("not a type: ", text));
  t.dtype = *dtype;
  const absl::string_view dims = text.substr(open + 1, text.size() - open - 2);
  if (dims.empty()) return t;
  for (absl::string_view d : absl::StrSplit(dims, ',')) {
    int64_t v;
    if (!absl::SimpleAtoi(d, &v) || v < 0 || t.shape.size() >= kMaxRank)
      return absl::InvalidArgumentError(absl::StrCat("not a type: ", text));
    t.shape.push_back(v);
  }
  return t;
}

Location ParseLocation(absl::string_view text) {
  Location l;
  const size_t at = text.rfind("@ ");
  const size_t colon = text.rfind(':');
  if (at != text.npos && colon != text.npos && colon > at && absl::SimpleAtoi(text.substr(colon + 1), &l.line)) {
    l.file = std::string(text.substr(at + 2, colon - at - 2));
    text = absl::StripAsciiWhitespace(text.substr(0, at));
  }
  constexpr absl::string_view kInstance = "{instance name: ";
  const size_t named = text.rfind(kInstance);
  if (named != text.npos && absl::EndsWith(text, "}")) {
    l.instance = std::string(text.substr(named + kInstance.size(), text.size() - named - kInstance.size() - 1));
    text = absl::StripAsciiWhitespace(text.substr(0, named));
  }
  l.scope = std::string(text);
  return l;
}

class GraphParser {
 public:
  StatusOr<Graph> Run(absl::string_view text) {
    const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      const Status s = Line(absl::StripAsciiWhitespace(lines[i]));
      if (!s.ok()) return absl::InvalidArgumentError(absl::StrCat("IR line ", i + 1, ": ", s.message()));
    }
    if (!closed_) return absl::InvalidArgumentError("IR: expected '}' at the end");
    RETURN_IF_ERROR(Verify(graph_));
    return std::move(graph_);
  }

 private:
  Status Line(absl::string_view line) {
    if (line.empty() || line[0] == '#') return absl::OkStatus();
    if (closed_) return absl::InvalidArgumentError("text after the end of the graph");
    if (!open_) {
      if (!absl::ConsumePrefix(&line, "graph ") || !absl::ConsumeSuffix(&line, " {"))
        return absl::InvalidArgumentError("expected 'graph NAME {'");
      graph_.name = std::string(line);
      open_ = true;
      return absl::OkStatus();
    }
    if (line == "}") {
      closed_ = true;
      return absl::OkStatus();
    }
    Cursor c(line);
    if (c.Eat("return")) return Return(c);
    return NodeLine(c);
  }

  StatusOr<Value> Reference(absl::string_view text) {
    Value v;
    absl::string_view name = text;
    const size_t colon = text.rfind(':');
    if (colon != text.npos) {
      if (!absl::SimpleAtoi(text.substr(colon + 1), &v.output))
        return absl::InvalidArgumentError(absl::StrCat("not a value: ", text));
      name = text.substr(0, colon);
    }
    const auto it = names_.find(std::string(name));
    if (it == names_.end()) return absl::InvalidArgumentError(absl::StrCat("undefined value ", text));
    v.node = it->second;
    if (v.output < 0 || v.output >= static_cast<int32_t>(graph_.nodes[v.node].outputs.size()))
      return absl::InvalidArgumentError(absl::StrCat("undefined value ", text));
    return v;
  }

  Status NodeLine(Cursor& c) {
    Node n;
    const std::string name(c.Until(":"));
    if (name.size() < 2 || name[0] != '%') return absl::InvalidArgumentError("expected '%NAME: TYPE = OP(...)'");
    if (!c.Eat(":")) return absl::InvalidArgumentError("expected ':'");
    do {
      ASSIGN_OR_RETURN(TensorType t, ParseType(c.Until(",=")));
      n.outputs.push_back(std::move(t));
    } while (c.Eat(","));
    if (!c.Eat("=")) return absl::InvalidArgumentError("expected '='");
    const absl::string_view op = c.Until("(");
    n.op = Operators().Find(op);
    if (n.op == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown operator '", op, "'"));
    if (!c.Eat("(")) return absl::InvalidArgumentError("expected '('");
    while (!c.Eat(")")) {
      ASSIGN_OR_RETURN(const Value v, Reference(c.Until(",)")));
      n.inputs.push_back(v);
      c.Eat(",");
      if (c.AtEnd()) return absl::InvalidArgumentError("expected ')'");
    }
    if (c.Eat("{")) {
      while (!c.Eat("}")) {
        const std::string key(c.Until("="));
        if (!c.Eat("=")) return absl::InvalidArgumentError("expected '=' in attributes");
        const absl::string_view text = c.Until(",}");
        if (key == mark::kRegion.name) {
          if (!absl::SimpleAtoi(text, &n.region)) return absl::InvalidArgumentError("bad _region");
        } else {
          ASSIGN_OR_RETURN(AttrValue v, ParseAttrValue(text));
          n.attrs.Set(key, std::move(v));
        }
        c.Eat(",");
        if (c.AtEnd()) return absl::InvalidArgumentError("expected '}'");
      }
    }
    if (c.Eat("#"))
      n.location = std::make_shared<Location>(ParseLocation(absl::StripAsciiWhitespace(c.rest())));
    else if (!c.AtEnd())
      return absl::InvalidArgumentError(absl::StrCat("unexpected '", c.rest(), "'"));
    if (!names_.emplace(name, static_cast<int32_t>(graph_.nodes.size())).second)
      return absl::InvalidArgumentError(absl::StrCat(name, " is defined twice"));
    graph_.nodes.push_back(std::move(n));
    return absl::OkStatus();
  }

  Status Return(Cursor& c) {
    while (!c.AtEnd()) {
      GraphOutput o;
      o.name = std::string(c.Until("="));
      if (!c.Eat("=")) return absl::InvalidArgumentError("expected 'NAME=VALUE'");
      absl::string_view text = c.Until(",");
      if (const size_t arrow = text.find(" -> "); arrow != text.npos) {
        o.updates = std::string(text.substr(arrow + 4));
        text = text.substr(0, arrow);
      }
      ASSIGN_OR_RETURN(o.value, Reference(text));
      graph_.outputs.push_back(std::move(o));
      c.Eat(",");
    }
    return absl::OkStatus();
  }

  Graph graph_;
  absl::flat_hash_map<std::string, int32_t> names_;
  bool open_ = false, closed_ = false;
};

}  // namespace

std::string ToString(const Graph& graph) {
  const std::vector<std::string> names = NodeNames(graph);
  std::string out = absl::StrCat("graph ", graph.name, " {\n");
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    absl::StrAppend(&out, "  ", names[i], ": ",
                    absl::StrJoin(n.outputs, ", ", [](std::string* o, const TensorType& t) { o->append(ToString(t)); }),
                    " = ", n.op->name, "(",
                    absl::StrJoin(n.inputs, ", ", [&](std::string* o, Value v) { o->append(Reference(names, v)); }),
                    ")");
    std::vector<std::string> attrs;
    for (const auto& a : n.attrs.items()) attrs.push_back(absl::StrCat(a.first, "=", AttrText(a.second)));
    if (n.region != 0) attrs.push_back(absl::StrCat(mark::kRegion.name, "=", n.region));
    if (!attrs.empty()) absl::StrAppend(&out, " {", absl::StrJoin(attrs, ", "), "}");
    if (n.location) absl::StrAppend(&out, "  # ", ToString(*n.location));
    out += '\n';
  }
  absl::StrAppend(&out, "  return ",
                  absl::StrJoin(graph.outputs, ", ",
                                [&](std::string* o, const GraphOutput& g) {
                                  absl::StrAppend(o, g.name, "=", Reference(names, g.value));
                                  if (!g.updates.empty()) absl::StrAppend(o, " -> ", g.updates);
                                }),
                  "\n}\n");
  return out;
}

StatusOr<Graph> ParseGraph(absl::string_view text) { return GraphParser().Run(text); }

}  // namespace mslua
