// Recurrent cells over whole sequences: what lstm, gru and rnn share. A cell is formulas on one unit; the product of
// the state with the weights, the order of the steps, lengths and the gradient are here.
//
//   forward    x [t, n, g], w [g, h], b [g], h0 [n, h] [, c0 [n, h]], lengths i32 or i64 [n]
//              -> y [t, n, h], hn [n, h] [, cn [n, h]] [, saved [t, n, s h]]
//   gradient   w [, saved], y, h0 [, c0], lengths, dy, dhn [, dcn] [, dsaved]
//              -> dx [t, n, g] [, dq [t, n, g]], before [t, n, h], dh0 [, dc0]
//
// g is the number of gates times h: x is the inputs' share of all gates, computed for all steps at once by a matmul.
// Row i takes lengths[i] steps: y is 0 at the others, and hn is its state after the last of its own. `reverse`: from
// its last step to the first. `before` is the state that each step began with: the gradient of w is dq^T before.
#pragma once

#include <functional>
#include <vector>

#include "core/op/op_def.h"
#include "core/ops/declare/recurrence_cell.h"

namespace mslua {

// The operator and its gradient, called `name`_grad; documentation, the class and attributes of its own are the
// caller's. `declare` adds these attributes to both.
std::vector<OpDef> RecurrentOps(const RecurrentCellFn& cell, const std::function<void(OpDef&)>& declare);

}  // namespace mslua
