// How TensorText writes tensors: one setting of the process, which any thread may read and set.
#pragma once

#include <cstdint>
#include <optional>

namespace mslua {

// The names and the defaults are NumPy's (numpy.set_printoptions); sci_mode is PyTorch's.
struct PrintOptions {
  int precision = 8;             // digits after the point, at most
  int64_t threshold = 1000;      // a tensor of more elements is written by its edges, with "..." between them
  int edgeitems = 3;             // elements of each dimension at either edge
  int linewidth = 0;             // columns of a line; 0: the terminal's, or 75 where there is none
  std::optional<bool> sci_mode;  // 1.5e+00 always (true) or never (false); nothing: where the elements ask for it
};

PrintOptions GetPrintOptions();
void SetPrintOptions(const PrintOptions& options);

}  // namespace mslua
