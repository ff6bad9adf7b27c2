// SPDX-License-Identifier: Apache-2.0
// Attention of a prompt on the processor (docs/kernels.md).
#pragma once

#include "base/key_window.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// With s(h, i, j) = scale * queries[h, i] . keys[h / group, j], and soft_cap * tanh(s / soft_cap)
/// where soft_cap > 0: the mean of the values under the softmax of the scores of the keys j that
/// query i sees, and the natural logarithm of the sum of their exponentials. Query i is token
/// n_all - n + i, and sees the keys up to its own that the window lets it see. |error| of a value
/// <= 1e-5 of the largest |value| that is seen, of a logarithm 2e-6, plus what the error of float32
/// scores makes of it. No n x n memory. A NaN or +inf score, or scores that are all -inf, make
/// their row NaN. Results do not depend on the number of threads.
template <class T>
struct CausalAttention {
  View<const T, 3> queries;  // in  [n_heads, n, head_dim], after RoPE; last axis dense, as of all
  View<const T, 3> keys;     // in  [n_kv_heads, n_all, head_dim], after RoPE
  View<const T, 3> values;   // in  [n_kv_heads, n_all, value_dim]
  float scale = 1;
  float soft_cap = 0;  // 0: none
  KeyWindow window = {};
  View<T, 3> out;      // out [n, n_heads, value_dim]
  View<float, 2> lse;  // out [n_heads, n]
};

/// Throws Error(usage) for shapes that do not fit together.
void causal_attention(const CausalAttention<float>& io);

}  // namespace kvatlas::kernels
