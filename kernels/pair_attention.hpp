// SPDX-License-Identifier: Apache-2.0
// Attention of a prompt on a processor that multiplies bfloat16 in pairs (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/half.hpp"
#include "kernels/causal_attention.hpp"

namespace kvatlas::kernels {

/// Some library's product of small blocks, for each thread that calls it.
struct PairProduct {
  /// c[m, n] (+)= a[m, k] times the matrix whose rows 2 i and 2 i + 1 lie in b as n pairs. Rows of
  /// a, of pairs and of c are lda, ldb pairs and ldc apart; k is even.
  void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda,
                   std::int64_t ldb, std::int64_t ldc, bool add, const Bf16* a, const Bf16* b,
                   float* c);
  /// Gives back what multiply() took of the processor for the calling thread.
  void (*release)();
};

/// What causal_attention() does, with queries, keys, values, weights and results in bfloat16;
/// scores, their softmax and all sums are float32. |error| of a value <= 2^-7 of the largest
/// |value| that is seen, of a logarithm 2e-6, plus what the error of float32 scores makes of it.
/// Throws Error(usage) for shapes that do not fit together.
void pair_attention(const CausalAttention<Bf16>& io, const PairProduct& product);

}  // namespace kvatlas::kernels
