// The plots of `mslua plot`: axes, ticks, panels, logarithms.
#include "repl/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_split.h"

namespace mslua::repl {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pointwise;

TEST(Ticks, RoundNumbersWithinTheRange) {
  EXPECT_THAT(Ticks(0, 10, false, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(12, 36, false, 4), ElementsAre(20, 30));
  EXPECT_THAT(Ticks(0.1, 0.1, false, 4), ElementsAre(0.1));
  EXPECT_THAT(Ticks(1e-4, 1, true, 8), Pointwise(DoubleNear(1e-12), {1e-4, 1e-3, 1e-2, 1e-1, 1.0}));
  EXPECT_THAT(Ticks(1, 0, false, 4), IsEmpty());
  EXPECT_THAT(Ticks(NAN, 1, false, 4), IsEmpty());
  EXPECT_LE(Ticks(1e-300, 1e300, true, 5).size(), 7u);
}

Panel Evaluations() { return {"eval_loss", {{"runs/a", {{12, 0.9}, {24, 0.5}, {36, 0.25}}}}}; }

TEST(TextPlot, XIsTheStep) {
  PlotOptions options;
  options.columns = 60;
  options.rows = 8;
  const std::string text = TextPlot(Evaluations(), options);
  EXPECT_THAT(text, HasSubstr("eval_loss  runs/a\n"));
  EXPECT_THAT(text, HasSubstr("least 0.25 at step 36"));
  EXPECT_THAT(text, HasSubstr("20"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 100u) << line;
}

TEST(TextPlot, FillsTheColumnsItIsGiven) {
  Panel panel{"loss", {{"a", {}}}};
  for (int i = 1; i <= 1000; ++i) panel.curves[0].points.emplace_back(i, 1.0 / i);
  for (const int columns : {40, 80, 160}) {
    PlotOptions options;
    options.columns = columns;
    options.rows = 10;
    size_t longest = 0;
    const std::string text = TextPlot(panel, options);
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (size_t i = 1; i <= 10; ++i) longest = std::max(longest, lines[i].size());
    EXPECT_LE(longest, static_cast<size_t>(columns));
    EXPECT_GE(longest, static_cast<size_t>(columns) - 4);
  }
}

TEST(TextPlot, ALabelMayBeLongerThanThePlot) {
  PlotOptions options;
  options.columns = 30;
  options.x_label = "eval_a_rather_long_metric_name";
  EXPECT_THAT(TextPlot(Evaluations(), options), HasSubstr(options.x_label));
}

TEST(TextPlot, LogarithmSpreadsSmallValues) {
  Panel panel{"loss", {{"a", {{1, 1}, {2, 0.1}, {3, 0.01}, {4, 0.001}, {5, 0}}}}};
  PlotOptions options;
  options.columns = 40;
  options.rows = 10;
  options.log_y = true;
  const std::vector<std::string> lines = absl::StrSplit(TextPlot(panel, options), '\n');
  for (const size_t row : {1, 4, 7, 10}) EXPECT_THAT(lines[row], HasSubstr("*")) << row;
  EXPECT_EQ(HiddenByLog({panel}, options), 1);
}

TEST(TextPlot, RunsAreOverEachOtherWithALegend) {
  const Panel panel{"loss", {{"runs/a", {{1, 1}, {2, 0.5}}}, {"runs/b", {{1, 0.8}, {2, 0.1}}}}};
  const std::string text = TextPlot(panel, PlotOptions());
  EXPECT_THAT(text, HasSubstr("* runs/a"));
  EXPECT_THAT(text, HasSubstr("o runs/b"));
}

TEST(TextPlot, NothingToShow) {
  PlotOptions options;
  options.log_y = true;
  EXPECT_THAT(TextPlot({"loss", {{"a", {{1, -1}}}}}, options), HasSubstr("no value can be shown"));
  EXPECT_THAT(TextPlot({"loss", {{"a", {{1, 3}}}}}, PlotOptions()), HasSubstr("last 3"));
}

TEST(SvgPlot, AKeyHasItsOwnAxisWithTicks) {
  const Panel rate{"lr", {{"runs/a<b", {{12, 0.05}, {36, 0.05}}}}};
  PlotOptions options;
  const std::string svg = SvgPlot({Evaluations(), rate}, options);
  EXPECT_THAT(svg, HasSubstr(">eval_loss</text>"));
  EXPECT_THAT(svg, HasSubstr(">lr</text>"));
  EXPECT_THAT(svg, HasSubstr(">0.05</text>"));
  EXPECT_THAT(svg, HasSubstr(">20</text>"));
  EXPECT_THAT(svg, HasSubstr("runs/a&lt;b"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(SvgPlot, NamesOfAnyBytesAreXml) {
  const std::vector<Curve> curves = {{"runs/\xc3", {{1, 2}, {2, 3}}}, {"b", {{1, 2}}}};
  const std::string svg = SvgPlot({{"lo\xff\x01ss", curves}}, PlotOptions());
  EXPECT_THAT(svg, HasSubstr(">lo\xef\xbf\xbd?ss</text>"));
  EXPECT_THAT(svg, HasSubstr(">runs/\xef\xbf\xbd</text>"));
}

}  // namespace
}  // namespace mslua::repl
