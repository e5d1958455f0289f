// All ranks of a job of this host, seen by one client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "repl/connection.h"

namespace mslua::repl {

class Hub {
 public:
  // Connects to rank 0, which must answer, and to the others; one that does not is told of in what it has no part in.
  static StatusOr<std::unique_ptr<Hub>> Attach(const endpoint::Job& job, absl::Duration limit);

  // Snapshots (.ranks .diag .stack .mem .comm), the writer lock and Lua at ranks (@...) go to every rank and come back
  // as one text, or as {"ranks":[...]}; everything else is rank 0's. As Connection::Call.
  StatusOr<std::string> Call(absl::string_view line, bool json);
  Connection& first() { return *ranks_[0]; }
  void OnEvent(const std::function<void(const std::string&)>& f);

 private:
  Hub() = default;
  StatusOr<std::string> CallAll(absl::string_view line, bool json);

  std::vector<std::unique_ptr<Connection>> ranks_;  // null: does not answer
};

// From the JSON of each rank's .diag ("" for one that does not answer): "ranks 0,1,3 compute or wait in a collective;
// rank 2 is in its data for 4.1 s, at recipe.lua:14: the others wait for it". Empty when nobody is waited for.
std::string WhoIsWaitedFor(const std::vector<std::string>& diagnoses);

}  // namespace mslua::repl
