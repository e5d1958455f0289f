#include "repl/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/text/unicode.h"

namespace mslua::repl {
namespace {

constexpr char kMarks[] = "*o+x#@%&";

// The range of one coordinate of a panel's points, and where a value lies in it.
struct Axis {
  bool log = false;
  double low = HUGE_VAL, high = -HUGE_VAL;

  bool Shows(double v) const { return std::isfinite(v) && (!log || v > 0); }
  void Add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  double At(double v) const {  // 0 to 1
    const double a = log ? std::log(low) : low, b = log ? std::log(high) : high, x = log ? std::log(v) : v;
    return b > a ? (x - a) / (b - a) : 0.5;
  }
};

struct Axes {
  Axis x, y;
};

Axes AxesOf(const Panel& panel, const PlotOptions& options) {
  Axes axes;
  axes.x.log = options.log_x;
  axes.y.log = options.log_y;
  for (const Curve& c : panel.curves) {
    for (const auto& [x, y] : c.points) {
      if (!axes.x.Shows(x) || !axes.y.Shows(y)) continue;
      axes.x.Add(x);
      axes.y.Add(y);
    }
  }
  return axes;
}

std::string TickText(double v) { return absl::StrFormat("%.4g", v); }

int ColumnOf(const Axis& axis, double v, int width) { return static_cast<int>(std::lround(axis.At(v) * (width - 1))); }

// Puts each column's mean of a curve into the rows.
void DrawCurve(const Curve& curve, const Axes& axes, char mark, std::vector<std::string>* rows) {
  const int height = static_cast<int>(rows->size()), width = static_cast<int>((*rows)[0].size());
  std::vector<double> sums(static_cast<size_t>(width), 0);
  std::vector<int64_t> counts(static_cast<size_t>(width), 0);
  for (const auto& [x, y] : curve.points) {
    if (!axes.x.Shows(x) || !axes.y.Shows(y)) continue;
    const auto column = static_cast<size_t>(ColumnOf(axes.x, x, width));
    sums[column] += axes.y.At(y);
    ++counts[column];
  }
  for (size_t c = 0; c < sums.size(); ++c) {
    if (counts[c] == 0) continue;
    const double level = 1 - sums[c] / static_cast<double>(counts[c]);
    (*rows)[static_cast<size_t>(std::lround(level * (height - 1)))][c] = mark;
  }
}

std::string WithoutTrailingBlanks(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// The labels below the x axis, each under its tick where there is space.
std::string XLabels(const Axis& axis, const PlotOptions& options, int width) {
  width = std::max(0, width);  // beside a long label
  std::string line(static_cast<size_t>(width), ' ');
  int free_from = 0;
  for (const double tick : Ticks(axis.low, axis.high, axis.log, std::max(2, width / 14))) {
    const std::string label = TickText(tick);
    const int size = static_cast<int>(label.size());
    const int at = std::clamp(ColumnOf(axis, tick, width) - size / 2, 0, std::max(0, width - size));
    if (at < free_from || at + size > width) continue;
    line.replace(static_cast<size_t>(at), label.size(), label);
    free_from = at + size + 1;
  }
  return absl::StrCat(WithoutTrailingBlanks(line), "  ", options.x_label);
}

std::string Summary(const Curve& curve, const PlotOptions& options, char mark, bool legend) {
  const auto least = std::min_element(curve.points.begin(), curve.points.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto most = std::max_element(curve.points.begin(), curve.points.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (curve.points.empty()) return "";
  const std::string name = legend ? absl::StrFormat("%c %s  ", mark, curve.name) : "";
  return absl::StrFormat("  %slast %.6g  least %.6g at %s %.6g  most %.6g at %s %.6g\n", name,
                         curve.points.back().second, least->second, options.x_label, least->first, most->second,
                         options.x_label, most->first);
}

// Text of an XML document, which is UTF-8 without control characters.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text::ReplaceInvalidUtf8(Printable(text)))
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

constexpr double kPanelWidth = 760, kPanelHeight = 300, kLeft = 76, kRight = 20, kTop = 34, kBottom = 46;
constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                    "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};

const char* ColourOf(size_t i) { return kColours[i % std::size(kColours)]; }

// Grid, ticks, labels and the frame of a panel whose upper edge is at `top`.
void SvgAxes(const Axes& axes, const PlotOptions& options, double top, std::string* out) {
  const double x0 = kLeft, x1 = kPanelWidth - kRight, y0 = top + kTop, y1 = top + kPanelHeight - kBottom;
  for (const double tick : Ticks(axes.x.low, axes.x.high, axes.x.log, 8)) {
    const double x = x0 + axes.x.At(tick) * (x1 - x0);
    absl::StrAppendFormat(out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#ddd\"/>\n", x, y0, y1);
    absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, y1 + 16,
                          TickText(tick));
  }
  for (const double tick : Ticks(axes.y.low, axes.y.high, axes.y.log, 6)) {
    const double y = y1 - axes.y.At(tick) * (y1 - y0);
    absl::StrAppendFormat(out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>\n", x0, y, x1);
    absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", x0 - 6, y + 4,
                          TickText(tick));
  }
  absl::StrAppendFormat(out, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"black\"/>\n", x0, y0, y1, x1);
  absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", (x0 + x1) / 2, y1 + 34,
                        Escaped(options.x_label));
}

void SvgPanel(const Panel& panel, const PlotOptions& options, double top, std::string* out) {
  const Axes axes = AxesOf(panel, options);
  absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s</text>\n", kLeft, top + 20,
                        Escaped(panel.title));
  if (axes.x.empty()) return;
  SvgAxes(axes, options, top, out);
  const double width = kPanelWidth - kLeft - kRight, height = kPanelHeight - kTop - kBottom;
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    absl::StrAppendFormat(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", ColourOf(i));
    for (const auto& [x, y] : panel.curves[i].points) {
      if (!axes.x.Shows(x) || !axes.y.Shows(y)) continue;
      absl::StrAppendFormat(out, "%.1f,%.1f ", kLeft + axes.x.At(x) * width, top + kTop + (1 - axes.y.At(y)) * height);
    }
    absl::StrAppend(out, "\"/>\n");
  }
  // The legend: a box in the upper right corner.
  size_t longest = 0;
  for (const Curve& c : panel.curves) longest = std::max(longest, c.name.size());
  const double box = 40 + 7 * static_cast<double>(longest), left = kPanelWidth - kRight - box - 6;
  absl::StrAppendFormat(out,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"white\" "
                        "fill-opacity=\"0.8\" stroke=\"#999\"/>\n",
                        left, top + kTop + 4, box, 8 + 16 * panel.curves.size());
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    const double y = top + kTop + 18 + 16 * static_cast<double>(i);
    absl::StrAppendFormat(out, "<path d=\"M%.1f %.1fh20\" stroke=\"%s\" stroke-width=\"2\"/>\n", left + 6, y - 4,
                          ColourOf(i));
    absl::StrAppendFormat(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", left + 32, y, Escaped(panel.curves[i].name));
  }
}

}  // namespace

std::vector<double> Ticks(double low, double high, bool log, int most) {
  std::vector<double> ticks;
  if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high) || most < 1) return ticks;
  if (low == high) return {low};
  if (log && low > 0 && high / low >= 100) {
    const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
    const int stride = std::max(1, (last - first + most) / most);
    for (int e = first; e <= last; e += stride) ticks.push_back(std::pow(10.0, e));
    return ticks;
  }
  const double raw = (high - low) / most, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= raw) break;
  }
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && ticks.size() < 100; ++i)
    ticks.push_back(i == 0 ? 0 : i * step);
  return ticks;
}

int64_t HiddenByLog(const std::vector<Panel>& panels, const PlotOptions& options) {
  int64_t hidden = 0;
  for (const Panel& p : panels) {
    for (const Curve& c : p.curves) {
      hidden += std::count_if(c.points.begin(), c.points.end(), [&](const auto& point) {
        return (options.log_x && point.first <= 0) || (options.log_y && point.second <= 0);
      });
    }
  }
  return hidden;
}

std::string TextPlot(const Panel& panel, const PlotOptions& options) {
  constexpr int kLabel = 10, kLeastWidth = 20, kLeastHeight = 4;
  const Axes axes = AxesOf(panel, options);
  const bool legend = panel.curves.size() > 1;
  std::string text = panel.title;
  if (!legend && !panel.curves.empty()) absl::StrAppend(&text, "  ", panel.curves[0].name);
  text += "\n";
  if (axes.x.empty()) return absl::StrCat(text, "  no value can be shown\n");
  const int width = std::max(options.columns - kLabel - 3, kLeastWidth), height = std::max(options.rows, kLeastHeight);
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  for (size_t i = 0; i < panel.curves.size(); ++i)
    DrawCurve(panel.curves[i], axes, kMarks[i % (sizeof kMarks - 1)], &rows);
  std::vector<std::string> labels(static_cast<size_t>(height));
  for (const double tick : Ticks(axes.y.low, axes.y.high, axes.y.log, std::max(2, height / 3)))
    labels[static_cast<size_t>(std::lround((1 - axes.y.At(tick)) * (height - 1)))] = TickText(tick);
  for (int r = 0; r < height; ++r) {
    const auto at = static_cast<size_t>(r);
    absl::StrAppend(&text, absl::StrFormat("%*s %c", kLabel, labels[at], labels[at].empty() ? '|' : '+'),
                    WithoutTrailingBlanks(rows[at]), "\n");
  }
  absl::StrAppend(&text, std::string(kLabel + 2, ' '),
                  XLabels(axes.x, options, width - static_cast<int>(options.x_label.size()) - 2), "\n");
  for (size_t i = 0; i < panel.curves.size(); ++i)
    text += Summary(panel.curves[i], options, kMarks[i % (sizeof kMarks - 1)], legend);
  return text;
}

std::string SvgPlot(const std::vector<Panel>& panels, const PlotOptions& options) {
  std::string text = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kPanelWidth, kPanelHeight * static_cast<double>(panels.size()));
  for (size_t i = 0; i < panels.size(); ++i) SvgPanel(panels[i], options, kPanelHeight * static_cast<double>(i), &text);
  return text + "</svg>\n";
}

}  // namespace mslua::repl
