// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/view.hpp"

namespace kvatlas::kernels {

// The elementwise steps of a transformer layer, each in one pass over memory, float32 on the CPU.
// Rows are spread over all threads; results do not depend on their number. The last axis must have
// stride 1.

/// out[i, :] = rows[i, :] / sqrt(mean(rows[i, :]^2) + eps) * (offset + weight). `out` may be
/// `rows`.
struct RmsNorm {
  View<const float, 2> rows;  // in  [n, width]
  const float* weight;        // in  [width]
  float eps = 1e-6f;
  float offset = 0.0f;
  View<float, 2> out;  // out [n, width]
};
void rms_norm(const RmsNorm& io);

/// Rotates dimension pairs (i, i + half) of the first 2 * half dimensions of each head, in place,
/// by the angle whose cosine and sine are given for the row.
struct Rotate {
  View<float, 3> heads;         // in, out [n, n_heads, head_dim]
  View<const float, 2> cosine;  // in  [n, half]
  View<const float, 2> sine;    // in  [n, half]
};
void rotate(const Rotate& io);

/// out = activation(gate) * up, where gate is the left half of each row and up the right one.
struct GatedActivation {
  View<const float, 2> gate_up;  // in  [n, 2 width]
  bool gelu = false;             // tanh-approximated GELU instead of SiLU
  View<float, 2> out;            // out [n, width]
};
void gated_activation(const GatedActivation& io);

}  // namespace kvatlas::kernels
