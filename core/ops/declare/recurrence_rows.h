// The steps of a recurrent cell over some rows of a batch, for any arithmetic: the order of things that the reference
// and the fast kernel share.
#pragma once

#include <algorithm>

#include "core/op/op_def.h"
#include "core/ops/declare/recurrence_cell.h"

namespace mslua {

struct RecurrentSizes {
  int64_t t = 0, n = 0, h = 0, gates = 0, saved = 0;
  bool memory = false, own_products = false, carries = false, reverse = false;

  // `y`: the shape of the states of all steps.
  static RecurrentSizes Of(const RecurrentCell& cell, const Attrs& attrs, const Shape& y) {
    return {
        y[0], y[1], y[2], cell.gates, cell.saved, cell.memory, cell.own_products, cell.carries, attrs.Bool("reverse")};
  }
  int64_t g() const { return gates * h; }
  // The number of values that the formulas read: of the forward pass, and of the gradient.
  int64_t forward_inputs() const { return 3 * gates + 1 + memory; }
  int64_t forward_outputs() const { return saved + 1; }
  int64_t backward_inputs(bool through_saved) const {
    return saved * (through_saved ? 2 : 1) + 5 + 2 * static_cast<int64_t>(memory);
  }
  int64_t backward_outputs() const { return gates * (own_products ? 2 : 1) + carries + memory; }
};

inline constexpr int kMostRecurrentValues = 32;  // inputs or outputs of the formulas

template <class C>
struct ForwardMemory {
  const C *x, *w, *b, *h0, *c0;
  C *y, *hn, *cn, *saved;
};
template <class C>
struct BackwardMemory {
  const C *w, *saved, *y, *h0, *c0, *dy, *dhn, *dcn, *dsaved;  // dsaved: null where there is none
  C *dx, *dq, *before, *dh0, *dc0;                             // dq: null where it is dx
};

// The state before step `time` of a row: `state` is that after its step 0, `step` the numbers from step to step,
// `first` the state before the first one.
template <class C>
const C* StateBefore(const RecurrentSizes& s, int64_t time, int64_t length, const C* state, int64_t step,
                     const C* first) {
  const int64_t from = s.reverse ? time + 1 : time - 1;
  return from >= 0 && from < length ? state + from * step : first;
}

// Rows [first, last). `h` [rows, h] and `q` [rows, g] are scratch memory. product(h, q): q = h w^T. point(in, out): the
// forward formulas on h units.
template <class C, class Product, class Point>
void ForwardRows(const RecurrentSizes& s, const ForwardMemory<C>& m, const int64_t* lengths, int64_t first,
                 int64_t last, C* h, C* q, Product product, Point point) {
  const int64_t g = s.g(), y_step = s.n * s.h, saved_step = s.n * s.saved * s.h;
  std::copy(m.h0 + first * s.h, m.h0 + last * s.h, h);
  const auto memory_of = [&](int64_t r) { return m.saved + (r * s.saved + s.saved - 1) * s.h; };
  for (int64_t k = 0; k < s.t; ++k) {
    const int64_t time = s.reverse ? s.t - 1 - k : k;
    product(h, q);
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = time * s.n + r;
      C* const y = m.y + at * s.h;
      C* const saved = m.saved + at * s.saved * s.h;
      if (time >= lengths[r]) {
        std::fill_n(y, s.h, C{0});
        if (s.saved > 0) std::fill_n(saved, s.saved * s.h, C{0});
        continue;
      }
      const C* in[kMostRecurrentValues];
      C* out[kMostRecurrentValues];
      int i = 0;
      for (int64_t j = 0; j < s.gates; ++j) in[i++] = m.x + at * g + j * s.h;
      for (int64_t j = 0; j < s.gates; ++j) in[i++] = q + (r - first) * g + j * s.h;
      for (int64_t j = 0; j < s.gates; ++j) in[i++] = m.b + j * s.h;
      in[i++] = h + (r - first) * s.h;
      if (s.memory) in[i++] = StateBefore(s, time, lengths[r], memory_of(r), saved_step, m.c0 + r * s.h);
      for (int64_t j = 0; j < s.saved; ++j) out[j] = saved + j * s.h;
      out[s.saved] = y;
      point(in, out);
      std::copy_n(y, s.h, h + (r - first) * s.h);
    }
  }
  for (int64_t r = first; r < last; ++r) {
    // The state before the step that would follow the last one.
    const int64_t end = s.reverse ? -1 : lengths[r];
    std::copy_n(StateBefore(s, end, lengths[r], m.y + r * s.h, y_step, m.h0 + r * s.h), s.h, m.hn + r * s.h);
    if (s.memory)
      std::copy_n(StateBefore(s, end, lengths[r], memory_of(r), saved_step, m.c0 + r * s.h), s.h, m.cn + r * s.h);
  }
}

// Rows [first, last) of the gradient. `back` [rows, h] is scratch memory. product(dq, back): back = dq w of these rows,
// dq at stride g. point(in, out): the backward formulas, whose dh is the sum of dy, what was carried and `back`.
template <class C, class Product, class Point>
void BackwardRows(const RecurrentSizes& s, const BackwardMemory<C>& m, const int64_t* lengths, int64_t first,
                  int64_t last, C* back, Product product, Point point) {
  const int64_t g = s.g(), y_step = s.n * s.h, saved_step = s.n * s.saved * s.h;
  C* const products = s.own_products ? m.dq : m.dx;
  std::copy(m.dhn + first * s.h, m.dhn + last * s.h, m.dh0 + first * s.h);
  if (s.memory) std::copy(m.dcn + first * s.h, m.dcn + last * s.h, m.dc0 + first * s.h);
  std::fill_n(back, (last - first) * s.h, C{0});
  for (int64_t k = 0; k < s.t; ++k) {
    const int64_t time = s.reverse ? k : s.t - 1 - k;
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = time * s.n + r;
      C* const carried = m.dh0 + r * s.h;
      C* const through = back + (r - first) * s.h;
      if (time >= lengths[r]) {
        for (int64_t j = 0; j < s.h; ++j) carried[j] += through[j];
        std::fill_n(m.dx + at * g, g, C{0});
        if (s.own_products) std::fill_n(m.dq + at * g, g, C{0});
        std::fill_n(m.before + at * s.h, s.h, C{0});
        continue;
      }
      const C* in[kMostRecurrentValues];
      C* out[kMostRecurrentValues];
      int i = 0, o = 0;
      const C* const before = StateBefore(s, time, lengths[r], m.y + r * s.h, y_step, m.h0 + r * s.h);
      for (int64_t j = 0; j < s.saved; ++j) in[i++] = m.saved + (at * s.saved + j) * s.h;
      in[i++] = m.y + at * s.h;
      in[i++] = before;
      if (s.memory) {
        in[i++] =
            StateBefore(s, time, lengths[r], m.saved + (r * s.saved + s.saved - 1) * s.h, saved_step, m.c0 + r * s.h);
      }
      in[i++] = m.dy + at * s.h;
      in[i++] = carried;
      in[i++] = through;
      if (s.memory) in[i++] = m.dc0 + r * s.h;
      for (int64_t j = 0; m.dsaved != nullptr && j < s.saved; ++j) in[i++] = m.dsaved + (at * s.saved + j) * s.h;
      for (int64_t j = 0; j < s.gates; ++j) out[o++] = m.dx + at * g + j * s.h;
      for (int64_t j = 0; s.own_products && j < s.gates; ++j) out[o++] = m.dq + at * g + j * s.h;
      if (s.carries) out[o++] = carried;
      if (s.memory) out[o++] = m.dc0 + r * s.h;
      point(in, out);
      if (!s.carries) std::fill_n(carried, s.h, C{0});
      std::copy_n(before, s.h, m.before + at * s.h);
    }
    product(products + (time * s.n + first) * g, back);
  }
  for (int64_t j = 0; j < (last - first) * s.h; ++j) m.dh0[first * s.h + j] += back[j];
}

// recurrence_kernel.cc: f32, in vectors. recurrence_device.cc: a block of threads for each row.
FastKernel RecurrentKernel(const RecurrentCellFn& cell, bool gradient);
DeviceFn RecurrentDevice(const RecurrentCellFn& cell, bool gradient);

}  // namespace mslua
