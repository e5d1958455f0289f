#include "core/step/prints.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/tensor.h"

namespace mslua {
namespace {

constexpr char kPrefix[] = "print.";

}  // namespace

std::string PrintName(size_t n, absl::string_view what) {
  std::string name = absl::StrCat(kPrefix, n, ".", what);
  // What the graph's text can hold.
  for (char& c : name) {
    const bool word = absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_./", c);
    if (!word) c = '_';
  }
  return name;
}

std::vector<Print> FindPrints(const Graph& graph) {
  std::vector<Print> prints;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const std::string& name = graph.outputs[o].name;
    if (!absl::StartsWith(name, kPrefix) || !graph.outputs[o].updates.empty()) continue;
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(absl::string_view(name).substr(sizeof(kPrefix) - 1), absl::MaxSplits('.', 1));
    prints.push_back({static_cast<int>(o), parts.second});
  }
  return prints;
}

void WritePrints(const std::vector<Print>& prints, const Executable& executable, const std::string& prefix) {
  std::string text;
  for (const Print& p : prints) {
    const TensorView value = executable.Output(p.output);
    absl::StrAppend(&text, prefix, p.what, " ", ToString(value.type), value.type.rank() == 0 ? ": " : ":\n",
                    TensorText(value), "\n");
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

Status PrintHook::AtStep(const TrainState& s) {
  if (s.step == seen_ || s.step == 0) return absl::OkStatus();
  seen_ = s.step;
  progress_->console->Flush();
  const Executable& executable = *progress_->trainer->executable();
  WritePrints(FindPrints(executable.graph()), executable, prefix_);
  return absl::OkStatus();
}

}  // namespace mslua
