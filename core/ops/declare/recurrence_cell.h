// A recurrent cell as formulas on one unit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/op/attrs.h"

namespace mslua {

struct ScalarProgram;  // core/op/formula.h

struct RecurrentCell {
  std::string name;
  int64_t gates = 1;          // blocks of h columns in x, w and b
  int64_t saved = 0;          // values of a unit that the gradient needs
  bool memory = false;        // a second state c, the last of the saved values
  bool own_products = false;  // the gradients of the products differ from those of x
  bool carries = false;       // the state before a step reaches the one after it other than by the product, too
  // Of one unit: the saved values, then its state after the step. Names: x0, x1, .. (a block of x each), q0, .. (the
  // product of w and the state), b0, .. (of b), h (the unit's state before the step) and c.
  std::vector<std::string> forward;
  // The gradients of x0, ..; then, where they differ, of q0, ..; then what the state before gets other than by the
  // product, where it carries; then of c before the step. Names: s0, .. (saved), y, h, c, dh (the gradient of the state
  // after the step), dc (of c after it).
  std::vector<std::string> backward;
};

// The cell of these attributes. `through_saved`: the backward formulas also have d0, d1, .., gradients of the saved
// values.
using RecurrentCellFn = std::function<RecurrentCell(const Attrs& attrs, bool through_saved)>;

// The formulas as programs: over x0, .., q0, .., b0, .., h, c; and over s0, .., y, h, c, dy, carried, through, dc, d0,
// .., where dh is the sum of dy, carried and through.
ScalarProgram ForwardProgram(const RecurrentCell& cell);
ScalarProgram BackwardProgram(const RecurrentCell& cell, bool through_saved);

}  // namespace mslua
