// Vector code on each instruction set that this processor has.
#pragma once

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace mslua::testing {

// Calls `check` once for each: what runs on older processors too.
template <class F>
void OnEveryInstructionSet(F check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace mslua::testing
