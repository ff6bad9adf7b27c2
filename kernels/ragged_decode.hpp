// SPDX-License-Identifier: Apache-2.0
// One decode step of attention over caches of different lengths, for many candidate policies at
// once.
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// out[c, h] = softmax over the cached keys of candidate c and KV head g = h / group of scale *
/// queries[c, h] . key (with soft_cap > 0, soft_cap * tanh(that / soft_cap)), times their values;
/// group is n_heads / n_kv_heads. The cache of (c, g) is rows starts[c, g] .. starts[c, g] +
/// lengths[c, g] of keys and values; candidates may share rows. lse is the natural log-sum-exp of
/// the scores; with it, results over parts of a cache can be joined. |error of out| <= 1e-5 * max
/// |value| as long as the float32 scores are within 4e-6 of the true ones. A cache without rows, or
/// with scores of -inf alone, gives zeros and an lse of -inf. A score of NaN or +inf gives NaN; a
/// value that is not finite gives a channel that is not. Reads each cached row once for all query
/// heads of its group; chunks of 1024 rows are joined in their order, so results depend neither on
/// the number of threads nor on other candidates. Thread safe as long as outputs differ. All arrays
/// lie in the memory of the queries. On the host, rows outside the cache throw Error `usage` before
/// anything is written; on the device, where they cannot be looked at, they are skipped.
struct RaggedDecode {
  AnyView<3> queries;                   // in [n_candidates, n_heads, head_dim]
  AnyView<2> keys;                      // in [n_rows, head_dim]
  AnyView<2> values;                    // in [n_rows, value_dim]
  View<const std::int64_t, 2> starts;   // in [n_candidates, n_kv_heads]
  View<const std::int64_t, 2> lengths;  // in [n_candidates, n_kv_heads]
  float scale = 1;
  float soft_cap = 0;  // 0: none
  View<float, 3> out;  // out [n_candidates, n_heads, value_dim]
  View<float, 2> lse;  // out [n_candidates, n_heads]; may be left empty (null data)
};

void ragged_decode(const RaggedDecode& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
