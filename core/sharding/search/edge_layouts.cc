#include "core/sharding/search/edge_layouts.h"

namespace mslua {

void EdgeLayouts::Distinct::Add(const Layout& layout) {
  const auto [known, fresh] = numbers.emplace(layout, static_cast<int>(layouts.size()));
  of.push_back(known->second);
  if (fresh) layouts.push_back(layout);
}

EdgeLayouts LayoutsOf(const ForwardGraph& forward, const ForwardGraph::Edge& edge,
                      const std::vector<const Sharding*>& makers, const std::vector<const Sharding*>& readers) {
  EdgeLayouts out;
  const NodeRule &maker = forward.rules[edge.value.node], &reader = forward.rules[edge.reader];
  for (const Sharding* s : makers) {
    const Layout made = OutputLayout(maker, *s, static_cast<size_t>(edge.value.output));
    out.made.Add(made);
    out.reduced.Add(made.WithoutPartial());
  }
  for (const Sharding* s : readers) {
    out.wanted.Add(InputLayout(reader, *s, edge.input));
    if (edge.gradient) out.gradient_made.Add(GradientLayout(reader, *s, edge.input));
  }
  return out;
}

}  // namespace mslua
