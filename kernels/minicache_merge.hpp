// SPDX-License-Identifier: Apache-2.0
// Two layers' caches merged into one direction a token, each layer keeping its norms (MiniCache;
// docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// For every head and token, with unit vectors a = lower / |lower|, b = upper / |upper| and O the
/// angle between them: e = (sin((1 - t) O) a + sin(t O) b) / sin O, merged_lower = |lower| e,
/// merged_upper = |upper| e. Where sin O < 1e-3: (1 - t) a + t b for equal directions; for opposite
/// ones, which leave no plane to turn in, b if t >= 0.5 and else a. A zero vector stays zero, and e
/// is then the other's direction. A token with NaN or an infinity in either layer is NaN in both.
/// |error| <= 1e-6 * the layer's norm. Outputs may be the inputs themselves. One pass over the
/// data, sums in float64. Thread safe as long as outputs differ.
struct MinicacheMerge {
  AnyView<3> lower;             // in  [n_heads, n_tokens, head_dim]
  AnyView<3> upper;             // in  likewise
  double t = 0.6;               // 0 keeps the lower direction, 1 the upper
  View<float, 3> merged_lower;  // out likewise
  View<float, 3> merged_upper;  // out likewise
};

/// Throws Error `usage` for shapes that do not fit together and t outside 0..1.
void minicache_merge(const MinicacheMerge& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
