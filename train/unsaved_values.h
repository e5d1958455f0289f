// The values that a training leaves out of its checkpoints (ParameterData::saved): who resumes has them from elsewhere,
// and they must be the same ones.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/graph/graph.h"
#include "core/step/parameter.h"
#include "core/step/rank_state.h"
#include "core/train/trainer.h"

namespace mslua {

class Groups;

// A digest of 52 bits of the names, types and values of those `parameters` that checkpoints leave out. It does not
// depend on how the ranks share the values. 0: there are none, or `together` is null and this rank has not all of them.
// names[i] is that of parameters[i]. `together`: the ranks that train together, which all call it; each takes what it
// keeps. Null: this rank by itself.
StatusOr<double> DigestOfUnsaved(RankState& state, const std::vector<std::shared_ptr<ParameterData>>& parameters,
                                 const std::vector<std::string>& names, Groups* together);

// Whether a training step, `graph` on this rank, changes a value that checkpoints leave out. Those that the ranks of
// another pipeline stage have are taken to change unless they are frozen.
bool UpdatesUnsaved(RankState& state, const Graph& graph,
                    const std::vector<std::shared_ptr<ParameterData>>& parameters);

// Of the counters in a checkpoint: that digest. Not there: not known. Where the training changes the values it is
// negative, and -1 where it is not known, as where ranks have parts of such values.
inline constexpr char kUnsavedCounter[] = "unsaved.hash";

// FailedPrecondition, with the names of the parameters, unless `here`, a digest, is that of `saved`, the counter of the
// checkpoint `path`. Where one of them is not known it is OK for values that training does not change.
Status CompareUnsaved(double saved, double here, const std::string& path,
                      const std::vector<std::shared_ptr<ParameterData>>& parameters,
                      const std::vector<std::string>& names);

// Gives checkpoints the digest of the values at the time.
class UnsavedHook : public TrainHook {
 public:
  using Digest = std::function<StatusOr<double>()>;
  explicit UnsavedHook(Digest digest) : digest_(std::move(digest)) {}
  void SaveCounters(Counters* counters) const override {
    if (const auto digest = digest_(); digest.ok()) (*counters)[kUnsavedCounter] = *digest;
  }

 private:
  const Digest digest_;
};

}  // namespace mslua
