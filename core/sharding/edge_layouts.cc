#include "core/sharding/edge_layouts.h"

#include <algorithm>

namespace mslua {

void EdgeLayouts::Distinct::Add(const Layout& layout) {
  const auto known = std::find(layouts.begin(), layouts.end(), layout);
  of.push_back(static_cast<int>(known - layouts.begin()));
  if (known == layouts.end()) layouts.push_back(layout);
}

EdgeLayouts LayoutsOf(const CostModel& model, const ForwardGraph::Edge& edge,
                      const std::vector<const Sharding*>& makers, const std::vector<const Sharding*>& readers) {
  EdgeLayouts out;
  for (const Sharding* s : makers) {
    out.made.Add(model.ForwardMove(edge, *s, *readers[0]).from);
    out.reduced.Add(out.made.layouts[out.made.of.back()].WithoutPartial());
    if (edge.gradient) out.gradient_wanted.Add(model.BackwardMove(edge, *s, *readers[0]).to);
  }
  for (const Sharding* s : readers) {
    out.wanted.Add(model.ForwardMove(edge, *makers[0], *s).to);
    if (edge.gradient) out.gradient_made.Add(model.BackwardMove(edge, *makers[0], *s).from);
  }
  return out;
}

}  // namespace mslua
