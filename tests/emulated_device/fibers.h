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

// Runs body() once for every t of `order`, each a fiber that finds its t in *thread; YieldFiber in one of them resumes
// the next. False when some had ended while others were still at a barrier.
bool RunFibers(const std::vector<int>& order, const std::function<void()>& body, unsigned* thread);
void YieldFiber();

}  // namespace mslua::cuda
