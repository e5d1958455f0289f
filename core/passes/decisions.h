// The decisions of a plan: for each node that can be computed in several ways, which way is used. They come from a
// fixed table, are measured once ("tuned"), or are what a device's library chose. In any case they are recorded, so
// that another compile of the graph, in another rank or after a restart, makes the same decisions and computes the same
// bits. A rank without a record asks its own library, though, and takes none of another machine.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/graph/graph.h"

namespace mslua {

// How questions begin whose answer is a device's library's, and means nothing to another version or device.
inline constexpr char kLibraryQuestion[] = "library kernel of ";

class Decisions {
 public:
  // Seconds that one run of a graph takes, whose inputs are data.
  using Stopwatch = std::function<StatusOr<double>(const Graph&)>;
  // A way, by name, and the graph that goes it.
  struct Way {
    const char* name;
    std::function<StatusOr<Graph>()> graph;
  };

  Decisions() = default;
  // With a stopwatch, what is not recorded is measured.
  explicit Decisions(Stopwatch stopwatch) : stopwatch_(std::move(stopwatch)) {}

  // The position of the way that is recorded for `question` (one line, without " = "). When none is: that of the
  // fastest where there is a stopwatch (of equals, and where measuring fails: `usual`), else `usual`; and records it.
  int Choose(const std::string& question, absl::Span<const Way> ways, int usual);

  // The way that is recorded for `question`, empty where none is; and records one that others than Choose have chosen.
  std::string Find(const std::string& question) const;
  void Record(const std::string& question, const std::string& way) { answers_[question] = way; }

  // How many questions have an answer, and how many of them were measured by this object.
  int64_t size() const { return static_cast<int64_t>(answers_.size()); }
  int64_t measured() const { return measured_; }

  // "QUESTION = WAY" a line, sorted.
  std::string ToText() const;
  // Takes the answers of a text over; DATA_LOSS when it is not of that form.
  Status Take(absl::string_view text);

 private:
  Stopwatch stopwatch_;
  std::map<std::string, std::string> answers_;
  int64_t measured_ = 0;
};

}  // namespace mslua
