// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/half.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

// The elementwise steps of a transformer layer on the CPU, each in one pass over memory. T is float
// or Bf16; arithmetic is float32, and results are rounded once. Rows are spread over all threads;
// results do not depend on their number. The last axis must have stride 1.

/// out[i, :] = rows[i, :] / sqrt(mean(rows[i, :]^2) + eps) * (offset + weight). `out` may be
/// `rows`.
template <class T>
struct RmsNorm {
  View<const T, 2> rows;  // in  [n, width]
  const T* weight;        // in  [width]
  float eps = 1e-6f;
  float offset = 0.0f;
  View<T, 2> out;  // out [n, width]
};
template <class T>
void rms_norm(const RmsNorm<T>& io);

/// Rotates dimension pairs (i, i + half) of the first 2 * half dimensions of each head, in place,
/// by the angle whose cosine and sine are given for the row.
template <class T>
struct Rotate {
  View<T, 3> heads;             // in, out [n, n_heads, head_dim]
  View<const float, 2> cosine;  // in  [n, half]
  View<const float, 2> sine;    // in  [n, half]
};
template <class T>
void rotate(const Rotate<T>& io);

/// out = activation(gate) * up, where gate is the left half of each row and up the right one.
template <class T>
struct GatedActivation {
  View<const T, 2> gate_up;  // in  [n, 2 width]
  bool gelu = false;         // tanh-approximated GELU instead of SiLU
  View<T, 2> out;            // out [n, width]
};
template <class T>
void gated_activation(const GatedActivation<T>& io);

}  // namespace kvatlas::kernels
