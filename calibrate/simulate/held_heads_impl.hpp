// SPDX-License-Identifier: Apache-2.0
// What KV heads hold, and which of it stays when a budget is held while decoding.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// How a layer scores keys by queries.
struct Scoring {
  double scale = 1, softcap = 0;
  KeyWindow window = {};
  at::Tensor sinks;  // [n_heads], or undefined

  /// Of what the model hands over of a layer: AttentionInputs or ContinuationRows.
  template <class Inputs>
  static Scoring of(const Inputs& in) {
    return {in.scale, in.softcap, in.window,
            in.sinks.data ? capture::tensor_of(in.sinks).clone() : at::Tensor()};
  }
};

/// A layer's queries of a prompt before RoPE, in the mean.
struct MeanQueries {
  at::Tensor query;      // [n_heads, head_dim] float32
  at::Tensor magnitude;  // [n_heads, pairs] float32: of the pairs of channels that RoPE turns
};

/// The same as they would be behind the last token, in the mean over places there.
struct ExpectedQueries {
  at::Tensor query;  // [n_heads, head_dim] float32
  /// [n_heads, pairs] float32: by how much the pairs of queries are longer than those of their
  /// mean.
  at::Tensor longer;
};

/// What one KV head holds, all of which its last token sees.
struct HeldHead {
  std::int64_t number = 0;  // of the KV head
  at::Tensor keys;          // [tokens, head_dim]
  at::Tensor queries;       // [query heads of the KV head, rows, head_dim], of the last tokens
  std::vector<float> mass;  // [token], or empty: the attention that it took before those rows
};

/// The queries of how many of the last tokens the part scores by, when it chooses while decoding.
std::int64_t query_rows(const Decoding& part);

/// [head]: which tokens of these heads of one layer stay, ascending; all of them where there are no
/// more than the budget. Adds what the rows attend to to the masses, where there are some.
std::vector<std::vector<std::int64_t>> tokens_that_stay(const Decoding& part,
                                                        const Scoring& scoring,
                                                        const ExpectedQueries& expected,
                                                        std::vector<HeldHead>& heads);

/// Whether one of a layer's heads is marked.
bool any_of(const std::vector<std::uint8_t>& heads);

}  // namespace kvatlas::calibrate
