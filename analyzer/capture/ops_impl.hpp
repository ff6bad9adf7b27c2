// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "analyzer/config/config.hpp"
#include "analyzer/config/rope.hpp"
#include "base/key_window.hpp"
#include "kernels/last_rows.hpp"

// The steps of a layer on LibTorch tensors: float32 and bfloat16 on the CPU go to our fused
// kernels, anything else to LibTorch's operations.
namespace kvatlas::capture {

/// Whether oneDNN's products and our own attention take it: on the CPU float32, and bfloat16 where
/// the processor multiplies such numbers two by two.
bool has_product(const at::Tensor& tensor);

/// A matrix laid out for `linear`, which alone can read it then: up to a third faster for a few
/// rows. The matrix itself where there is no such layout.
at::Tensor packed(const at::Tensor& weight);

/// rows [n, k] times weight [m, k] transposed, plus bias [m] if it is defined: [n, m].
at::Tensor linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias = {});

/// [n, width] -> [n, width]: RMS norm over the last axis with weight [width].
at::Tensor rms_norm(const at::Tensor& rows, const at::Tensor& weight, double eps, double offset);

/// [n, D] -> [n, D]: the norm that the model's layers have. Without a weight there is none.
at::Tensor norm(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                const model::Config& config);

/// Cosines and sines of positions first .. first + n - 1: float32 [n, rotary_dim / 2] each.
struct RopeTable {
  at::Tensor cosine, sine;
};
RopeTable rope_table(const model::RopeFrequencies& frequencies, std::int64_t first, std::int64_t n,
                     const at::Device& device);

/// Rotates heads [n, n_heads, head_dim] in place.
void rotate(const at::Tensor& heads, const RopeTable& table);

/// Halves the width: gate and up projections become one array [n, width].
at::Tensor gated_activation(const at::Tensor& gate_up, const model::Config& config);
/// The same width. `parameters` are those of xIELU, as the checkpoint has them.
at::Tensor activated(const at::Tensor& rows, model::Activation activation,
                     const at::Tensor& parameters = {});

/// Causal attention of the last n of n_all tokens.
struct Attention {
  at::Tensor query;       // [n_heads, n, head_dim], last axis dense
  at::Tensor key, value;  // [n_kv_heads, n_all, head_dim], last axis dense
  double scale = 1.0;
  double softcap = 0.0;
  KeyWindow window = {};
  at::Tensor sinks = {};  // [n_heads] float32, of AttentionInputs; undefined: none
  std::optional<kernels::Proximity> proximal =
      {};  // if set, every row sees its proximal keys alone
  /// If set, the scores of keys that are not proximal come from these queries and keys.
  struct Shared {
    at::Tensor query;  // [n_heads, n, head_dim]
    at::Tensor key;    // [n_heads, n_all, head_dim]
    kernels::Proximity proximal;
  };
  std::optional<Shared> shared = {};
  /// If set, a row sees no other keys than these: as SeenKeys, [n_heads, n_all] bool each.
  struct Seen {
    at::Tensor columns, diagonals;
  };
  std::optional<Seen> seen = {};
};
/// Its memory grows with n_all, and not with n * n_all.
struct Attended {
  at::Tensor out;  // [n, n_heads * head_dim]
  /// [n_heads, n] of each row's scores and sink; undefined unless the kernel has it anyway.
  at::Tensor logsumexp;
};
Attended attend(const Attention& io);

}  // namespace kvatlas::capture
