// Named values of the running graph: found by name, and brought out as side outputs of a plan that computes the same.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "attach/server/training_view.h"
#include "core/graph/graph.h"

namespace mslua::endpoint {

// Whether all ranks that train together say so. Called by all of them at one boundary.
StatusOr<bool> AllAgree(const TrainingView& view, bool mine);

// What a name stands for.
struct Named {
  std::string name;                      // in full
  TensorType type;                       // of what is gathered: the whole one's
  bool kept = false;                     // it is a parameter or state, whichever ranks have it
  const Store::Entry* stored = nullptr;  // of a parameter or state that this rank has
  Value value;                           // of an activation or gradient: in the graph that training began with
  int32_t inside = -1;  // an instruction of the fused node `value.node` that makes it; -1: an output makes it
  // Of a value that the ranks have parts of: this rank's part, which is of that shape at `begin`. A rank without one
  // (of another pipeline stage), or whose part another rank gives, contributes nothing.
  bool gathered = false, contributes = false;
  TensorType part = {};
  Shape begin = {};
  std::vector<int> owners = {};  // the ranks that have it, where not all do: those of a pipeline stage

  // Whether this rank can show it.
  bool here() const { return gathered || stored != nullptr || value.valid(); }
};

// Belongs to the training thread, at boundaries.
class Watched {
 public:
  explicit Watched(const TrainingView& view);

  // A parameter or state of the store; an activation by the path of its cell ("Net/fc": its last value), of an operator
  // there ("Net/fc/matmul", "Net/matmul#2") or as the compiled graph calls it ("%12:1"); grad(P), the gradient that the
  // update of P reads, whole, whichever ranks have it. A part of a name is enough where it fits one.
  // Ranks that train together ask at one boundary and find the same name, also those that do not have the value.
  // NotFound: nothing fits on any rank; InvalidArgument: more than one does, or it is no value of the compiled graph,
  // being fused away.
  StatusOr<Named> Find(absl::string_view name) const;
  // The same; but a parameter or state that the ranks have parts of is the whole one, which they gather.
  StatusOr<Named> FindWhole(absl::string_view name) const;

  // Plans again so that these values are outputs from the next step on; training computes the same bits. Without
  // values the first plan is used again. Ranks that train together all do it at one boundary, or none does.
  Status Show(const std::vector<Named>& wanted);
  // Whether ValueOf gives the value in the step just made; the same on all ranks.
  bool Shows(const Named& named) const;
  // That value, valid until the next call or step. What the ranks have parts of they gather: all of them ask.
  StatusOr<TensorView> ValueOf(const Named& named);

  // The one of the names of parameters and states that fits one asked for, and how well: 0: it is that one, 1: it ends
  // with it, 2: it contains it. NotFound where there is none, InvalidArgument where several fit as well.
  struct Fit {
    std::string name;
    int grade = 0;
  };
  static StatusOr<Fit> FitOf(absl::string_view name, const std::vector<std::string>& names);

 private:
  // Names that fit one asked for, all as well: a smaller grade is a better fit.
  struct Fits {
    int grade = 0;
    std::vector<std::string> names;
  };
  static Fits FitsOf(absl::string_view name, const std::vector<std::string>& candidates);
  StatusOr<Fits> FitsHere(absl::string_view name) const;
  StatusOr<Named> FindOnRanks(absl::string_view name) const;
  // What this rank has under a name that FitsHere gave, on any rank, with that grade.
  Named NamedHere(const std::string& full, int grade) const;
  StatusOr<Named> FindStored(absl::string_view name) const;
  std::vector<std::string> StoredNames() const;
  StatusOr<Value> NumberedValue(absl::string_view name) const;
  // By the names "Net", "Net/matmul", "Net/matmul#2": the last value of a cell, and each operator's.
  std::map<std::string, Value> Activations() const;
  void Locate(const std::string& stored, Named* named) const;
  StatusOr<Named> Together(absl::string_view asked, const StatusOr<Named>& mine,
                           const std::vector<std::string>& all) const;
  StatusOr<Named> FindGradient(absl::string_view parameter) const;
  StatusOr<Named> FindGradientHere(absl::string_view parameter) const;
  // This rank's value, which is shown.
  StatusOr<TensorView> Here(const Named& named) const;

  const TrainingView& view_;
  Executable* const first_;
  std::unique_ptr<Executable> second_;
  std::vector<std::string> shown_;                    // names
  std::vector<std::pair<std::string, int>> outputs_;  // of second_: by the names of values that this rank has
  Block whole_;                                       // what was gathered last
};

// "[1:2,3:4]": the first and the last element of each dimension, from 1.
std::string RangesOf(const Part& part);
// The part that this rank has of a parameter or state which is not gathered; nothing where it has the whole.
absl::optional<Part> PartOf(const TrainingView& view, const Named& named);
// Behind the name and type of this rank's value: ", rank 0's part [1:2,3:4] of f32[2,4]", or ", rank 0's value" where
// other ranks may have another one; empty where it is the whole.
std::string WhoseText(const TrainingView& view, const Named& named);

}  // namespace mslua::endpoint
