// The threads of a block as fibers on one thread of the CPU.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace mslua::cuda {

extern const char kShim[];  // the text of shim.h

// 0 to n - 1, "forward", "backward" or "random".
std::vector<int> ThreadOrder(int n, const std::string& order, std::mt19937& random);

// Runs body(t) for every t of `order`, each a fiber; YieldFiber in one of them resumes the next, after before(t). False
// when some had ended while others were still at a barrier.
bool RunFibers(const std::vector<int>& order, const std::function<void(int)>& body,
               const std::function<void(int)>& before);
void YieldFiber();

}  // namespace mslua::cuda
