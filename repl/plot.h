// Curves of runs, in the terminal or as SVG: a panel for each key, the runs over each other in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mslua::repl {

struct Curve {
  std::string name;                               // of the run, for the legend
  std::vector<std::pair<double, double>> points;  // finite, by ascending x unless x is a metric
};

struct Panel {
  std::string title;  // "loss"
  std::vector<Curve> curves;
};

struct PlotOptions {
  std::string x_label = "step";
  bool log_x = false, log_y = false;
  int columns = 80, rows = 16;  // of a panel in the terminal
};

// Where an axis has its ticks: numbers of the form 1, 2 or 5 times a power of ten within [low, high], about `most` of
// them; powers of ten on a logarithmic axis that spans some. Empty where low > high.
std::vector<double> Ticks(double low, double high, bool log, int most);
// Points that a logarithmic axis cannot show.
int64_t HiddenByLog(const std::vector<Panel>& panels, const PlotOptions& options);

// One panel as lines of text for a terminal, with a summary line for each curve.
std::string TextPlot(const Panel& panel, const PlotOptions& options);
// All panels, one below the other, as the text of an SVG file.
std::string SvgPlot(const std::vector<Panel>& panels, const PlotOptions& options);

}  // namespace mslua::repl
