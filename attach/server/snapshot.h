// What a rank knows about itself at any time, from another thread than the one that trains, without waiting for it:
// what the commands that are answered at once read.
#pragma once

#include <string>
#include <vector>

#include "attach/server/boundary.h"
#include "attach/server/training_view.h"

namespace mslua::endpoint {

class Snapshots {
 public:
  struct Stored {
    std::string name, kind;
    TensorType type;
    TensorPlace place;
  };

  // On the training thread, before the first step: takes a copy of what the store and the plan say.
  Snapshots(const TrainingView& view, const Boundary& boundary);

  const TrainingView& view() const { return view_; }
  const Boundary& boundary() const { return boundary_; }
  const std::string& host() const { return host_; }
  const std::vector<Stored>& stored() const { return stored_; }
  int64_t store_bytes() const { return store_bytes_; }
  const PlanReport& report() const { return report_; }
  const std::string& graph() const { return graph_; }  // its text
  // Losses of the last steps (at most `most`), oldest first, and the number of the first, from 1.
  std::vector<float> Losses(int64_t most, int64_t* first) const;

 private:
  const TrainingView& view_;
  const Boundary& boundary_;
  const std::string host_;
  std::vector<Stored> stored_;
  int64_t store_bytes_ = 0;
  PlanReport report_;
  std::string graph_;
};

// Memory of this process in RAM; 0 where the system does not say.
int64_t ResidentBytes();

}  // namespace mslua::endpoint
