// SPDX-License-Identifier: Apache-2.0
// How far one model's next-token distributions are from another's (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// With P and Q the softmax of a row of `full` and of `other`: KL(P || Q) in nats, the total
/// variation sum |P - Q| / 2, and whether both have their largest logit at the same token (the
/// lower one of equals). All but `full` and `other` may be left empty (null data). |error| <= 2e-6
/// + 1e-5 |value| for logits within +-1000; sums are in float64 blocks. A logit of -inf is a
/// probability of 0: where only Q has it, KL is +inf (if P is not 0 in float32 too), where P has it
/// the term is 0. A row with NaN or +inf, or with -inf alone, gives NaN and no agreement. Rows
/// without tokens likewise. Three passes over both rows; no memory but a few registers a thread.
/// Thread safe as long as outputs differ; results do not depend on the number of threads.
struct RowCompare {
  AnyView<2> full;                  // in [n_rows, n_vocab], logits
  AnyView<2> other;                 // in [n_rows, n_vocab], logits
  View<float, 1> kl;                // out [n_rows]
  View<float, 1> total_variation;   // out [n_rows]
  View<std::uint8_t, 1> same_top1;  // out [n_rows], 1 or 0
};

/// Throws Error `usage` for shapes that do not fit together.
void row_compare(const RowCompare& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
