// Scalar programs as CUDA C++ text: statements on one element.
#pragma once

#include <string>
#include <vector>

namespace mslua {

struct ScalarProgram;  // core/op/formula.h

// A number as CUDA text, exactly: "0.5", "INFINITY", ...
std::string NumberText(double value);

// The scalar functions of one operand that are CUDA's own: a line MSLUA_FUNCTION(Exp, expf, exp) for each.
std::string DeviceFunctions();

// Declares `const C v0 = ..;`, v1, ..: every value of the program, in a kernel that has the type C of arithmetic.
// inputs[i] is the text of input i, a number. Result r is the value program.results[r].
std::string DeviceScalars(const ScalarProgram& program, const std::vector<std::string>& inputs);

}  // namespace mslua
