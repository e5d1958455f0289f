// The order of checkpoints without a clock. Each save of a training has a generation, a number above that of every
// checkpoint that the training found in its directory: of two checkpoints the one with the higher generation was saved
// later. A training that resumes from an older checkpoint than the newest of its line makes a fork: the newer ones then
// belong to a lineage that is abandoned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mslua::checkpoint {

// Where a lineage left another one: it resumed from that run's checkpoint of this generation and step.
struct Fork {
  std::string run;
  int64_t generation = 0;
  int64_t step = 0;
};

struct Lineage {
  std::string run;          // 32 hexadecimal digits, drawn where a lineage begins; empty: the manifest records none
  int64_t generation = 0;   // from 1; 0: the manifest records none
  std::string parent;       // name of the checkpoint's folder that was saved, or resumed from, before; empty: none
  std::vector<Fork> forks;  // the lineages that this one came from, oldest first, at most kMaxForks
};
inline constexpr size_t kMaxForks = 1000;

// Whether a checkpoint of `lineage` at `step` is on the line that leads to `to`, or is `to`.
bool LeadsTo(const Lineage& lineage, int64_t step, const Lineage& to);

}  // namespace mslua::checkpoint
