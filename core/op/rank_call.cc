#include "core/op/rank_call.h"

#include <map>
#include <mutex>

namespace mslua {
namespace {

// Operators are defined once, on first use, by any thread.
struct Declared {
  std::mutex mutex;
  std::map<std::string, RankCall> calls;  // by operator
};

Declared& All() {
  static auto* const all = new Declared;
  return *all;
}

}  // namespace

void SetRankCall(const std::string& op, RankCall call) {
  Declared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.calls[op] = call;
}

RankCall RankCallOf(const OpDef& op) {
  Declared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.calls.find(op.name);
  return found == all.calls.end() ? RankCall::kNone : found->second;
}

}  // namespace mslua
