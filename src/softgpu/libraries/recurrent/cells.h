// Cells of recurrent networks: one step of one sequence, and its gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include "libraries/operations/rnn.h"

namespace softgpu::libraries {

using gpupool::operations::Cell;

/// `p`: what the input gives to the gates, `q`: what the state gives, biases included. `slots`: what the
/// gradient needs, or null.
template <class N>
struct CellStep {
  const N *p, *q, *h, *c;
  N *next_h, *next_c, *slots;
};

template <class N>
N sigmoid(N x) {
  return N(1) / (N(1) + std::exp(-x));
}

template <class N>
void cell_step(Cell cell, std::int64_t hidden, const CellStep<N>& at) {
  const N *const p = at.p, *const q = at.q;
  const auto keep = [&](std::int64_t j, std::initializer_list<N> values) {
    if (at.slots == nullptr) return;
    std::int64_t slot = j;
    for (const N value : values) {
      at.slots[slot] = value;
      slot += hidden;
    }
  };
  for (std::int64_t j = 0; j < hidden; ++j) {
    const std::int64_t j1 = j + hidden, j2 = j1 + hidden, j3 = j2 + hidden;
    switch (cell) {
      case Cell::relu: {
        const N x = p[j] + q[j];
        at.next_h[j] = x < N(0) ? N(0) : x;  // what is no number stays so
        break;
      }
      case Cell::tanh:
        at.next_h[j] = std::tanh(p[j] + q[j]);
        break;
      case Cell::lstm: {
        const N in = sigmoid(p[j] + q[j]), forget = sigmoid(p[j1] + q[j1]), fresh = std::tanh(p[j2] + q[j2]),
                out = sigmoid(p[j3] + q[j3]);
        at.next_c[j] = forget * at.c[j] + in * fresh;
        at.next_h[j] = out * std::tanh(at.next_c[j]);
        keep(j, {in, forget, fresh, out});
        break;
      }
      case Cell::gru: {
        const N reset = sigmoid(p[j] + q[j]), update = sigmoid(p[j1] + q[j1]),
                fresh = std::tanh(p[j2] + reset * q[j2]);
        at.next_h[j] = (N(1) - update) * fresh + update * at.h[j];
        keep(j, {reset, update, fresh, q[j2]});
        break;
      }
    }
  }
}

/// `dh`, `dc`: gradients of the step's results; they become those of what it began with, without what comes
/// by the gates. `slots` become gradients: of `p`, and for GRUs a fourth one, of the third gate's `q`.
template <class N>
struct CellGradient {
  const N *h, *c, *next_h, *next_c;
  N *dh, *dc, *slots;
};

template <class N>
void cell_gradient(Cell cell, std::int64_t hidden, const CellGradient<N>& at) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    N &first = at.slots[j], &dh = at.dh[j];
    switch (cell) {
      case Cell::relu:
        first = at.next_h[j] > N(0) ? dh : N(0);
        dh = N(0);
        break;
      case Cell::tanh:
        first = dh * (N(1) - at.next_h[j] * at.next_h[j]);
        dh = N(0);
        break;
      case Cell::lstm: {
        N &second = at.slots[j + hidden], &third = at.slots[j + 2 * hidden],
          &fourth = at.slots[j + 3 * hidden];
        const N in = first, forget = second, fresh = third, out = fourth, cell_out = std::tanh(at.next_c[j]);
        const N dc = at.dc[j] + dh * out * (N(1) - cell_out * cell_out);
        first = dc * fresh * in * (N(1) - in);
        second = dc * at.c[j] * forget * (N(1) - forget);
        third = dc * in * (N(1) - fresh * fresh);
        fourth = dh * cell_out * out * (N(1) - out);
        at.dc[j] = dc * forget;
        dh = N(0);
        break;
      }
      case Cell::gru: {
        N &second = at.slots[j + hidden], &third = at.slots[j + 2 * hidden],
          &fourth = at.slots[j + 3 * hidden];
        const N reset = first, update = second, fresh = third, by_state = fourth;
        third = dh * (N(1) - update) * (N(1) - fresh * fresh);
        first = third * by_state * reset * (N(1) - reset);
        second = dh * (at.h[j] - fresh) * update * (N(1) - update);
        fourth = third * reset;
        dh *= update;
        break;
      }
    }
  }
}

}  // namespace softgpu::libraries
