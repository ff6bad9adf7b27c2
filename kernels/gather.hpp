// SPDX-License-Identifier: Apache-2.0
// The kept positions of every KV head into one compact cache.
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// Copies row positions[i] of head g of `from` to row starts[g] + i - offsets[g] of `to`, for
/// offsets[g] <= i < offsets[g + 1]: heads may keep different numbers, and room may be left behind
/// each for tokens to come. Bits are copied as they are; rows that no head owns are not touched.
/// One pass over the kept bytes. The rows of two heads in `to` must not overlap. All arrays lie in
/// the memory of `from`. On the host, offsets that fall, positions outside 0..n_tokens - 1 and rows
/// outside `to` throw Error `usage` before anything is written; on the device, where they cannot be
/// looked at, they are skipped.
struct Gather {
  AnyView<3> from;                        // in  [n_kv_heads, n_tokens, head_dim]
  View<const std::int64_t, 1> positions;  // in  [kept], those of head 0, then of head 1, ...
  View<const std::int64_t, 1> offsets;    // in  [n_kv_heads + 1], into positions
  View<const std::int64_t, 1> starts;     // in  [n_kv_heads], rows of `to`
  void* to = nullptr;                     // out [to_rows, head_dim], dense, of the type of `from`
  std::int64_t to_rows = 0;
};

/// Thread safe as long as outputs differ.
void gather(const Gather& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
