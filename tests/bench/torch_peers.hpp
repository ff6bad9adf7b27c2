// SPDX-License-Identifier: Apache-2.0
// The same results as compositions of LibTorch operations. Each makes its own inputs; without
// LibTorch all are empty.
#pragma once

#include <cstdint>

#include "tests/bench/measure.hpp"

namespace kvatlas::bench {

/// The products alone of the last q_rows queries with all keys.
Work torch_thin_matmul(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t q_rows,
                       std::int64_t n_tokens, std::int64_t head_dim);

/// The products alone of queries and keys over the tiles of the lower triangle, in the faster of
/// two ways: stripes of keys times all queries below them, or square tiles batched over the heads.
Work torch_triangle_matmul(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t n_tokens,
                           std::int64_t head_dim);

/// LibTorch's causal flash attention, KV heads as the batch.
Work torch_flash_attention(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t n_tokens,
                           std::int64_t head_dim);

/// All pairs' sums of m log m, one layer against all lower ones at a time, so that the temporaries
/// stay in tens of megabytes.
Work torch_js(std::int64_t n_layers, std::int64_t n_heads, std::int64_t q_rows,
              std::int64_t n_tokens);

Work torch_topk(std::int64_t count, std::int64_t k);

}  // namespace kvatlas::bench
