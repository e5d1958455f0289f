// The groups of one rank, which wait with an eye on one another.
#pragma once

#include <vector>

#include "core/base/status.h"

namespace mslua {

class Communicator;

// While a call of one group waits, what the others have begun is moved as well: the rank that is waited for may itself
// wait for that, as where messages between stages and collectives within a stage are of different groups. Used by the
// rank's own thread.
class Siblings {
 public:
  void Add(Communicator* group) { groups_.push_back(group); }
  void Remove(const Communicator* group);
  // Whether a group beside `waiting` has calls that have begun and not ended.
  bool Busy(const Communicator* waiting) const;
  // Does for the busy ones what can be done now. An error ends their group.
  Status Progress(const Communicator* waiting);

 private:
  std::vector<Communicator*> groups_;
};

}  // namespace mslua
