// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>

#include "analyzer/capture/projection_impl.hpp"

namespace kvatlas::capture {
namespace {

Projected ordinary(const model::Config& c, const model::LayerShape& shape, bool own_keys,
                   const LayerTensors& w, const at::Tensor& normed) {
  const std::int64_t n = normed.size(0), d = shape.head_dim;
  const std::int64_t keys = own_keys ? shape.kv_heads : 0;
  const std::int64_t values = shape.one_projection ? 0 : keys;
  const std::int64_t gates = c.gated_attention ? c.n_heads : 0;
  const at::Tensor all =
      capture::linear(normed, w.qkv, w.qkv_bias).view({n, c.n_heads + keys + values + gates, d});
  Projected made;
  made.query = all.narrow(1, 0, c.n_heads);
  if (own_keys) {
    made.key = all.narrow(1, c.n_heads, keys);
    made.value = shape.one_projection ? made.key : all.narrow(1, c.n_heads + keys, values);
  }
  if (gates > 0)
    made.gate =
        at::sigmoid(all.narrow(1, c.n_heads + keys + values, gates)).reshape({n, gates * d});
  return made;
}

/// The norms of the vectors of low rank have an epsilon of their own.
constexpr double kLatentEps = 1e-6;

Projected latent(const model::Config& c, const model::LayerShape& shape, const LayerTensors& w,
                 const at::Tensor& normed) {
  const model::Latent& sizes = c.latent;
  const std::int64_t n = normed.size(0);
  const auto rank_norm = [](const at::Tensor& rows, const at::Tensor& weight) {
    return rms_norm(rows.contiguous(), weight, kLatentEps, 0.0);
  };
  const at::Tensor below = w.query_down.defined()
                               ? rank_norm(capture::linear(normed, w.query_down), w.query_norm)
                               : normed;
  const at::Tensor down = capture::linear(normed, w.latent_down);
  const at::Tensor rotated = down.narrow(1, sizes.rank, sizes.rotated_dim).unsqueeze(1);
  const at::Tensor up =
      capture::linear(rank_norm(down.narrow(1, 0, sizes.rank), w.latent_norm), w.latent_up)
          .view({n, c.n_heads, sizes.plain_dim + shape.value_dim});
  Projected made;
  made.query = capture::linear(below, w.query_up).view({n, c.n_heads, shape.head_dim});
  made.key = at::cat(
      {rotated.expand({n, c.n_heads, sizes.rotated_dim}), up.narrow(2, 0, sizes.plain_dim)}, -1);
  made.value = up.narrow(2, sizes.plain_dim, shape.value_dim);
  return made;
}

/// The norm of each head, or of all heads together. Without a weight there is none.
at::Tensor norm_heads(const model::Config& c, const at::Tensor& heads, const at::Tensor& weight) {
  if (!weight.defined()) return heads;
  return rms_norm(heads.reshape({-1, weight.size(0)}), weight, c.norm_eps, c.norm_offset)
      .view(heads.sizes());
}

/// Changes queries, and keys where the layer has its own, each with its norm's weight.
template <class Change>
void on_queries_and_keys(const LayerTensors& w, Projected& made, const Change& change) {
  change(made.query, w.q_norm);
  if (made.key.defined()) change(made.key, w.k_norm);
}

void norm_both(const model::Config& c, const LayerTensors& w, Projected& made) {
  on_queries_and_keys(w, made, [&](at::Tensor& heads, const at::Tensor& weight) {
    heads = norm_heads(c, heads, weight);
  });
}

at::Tensor repeated(const at::Tensor& heads, std::int64_t count) {
  return heads.size(1) == count ? heads : heads.repeat_interleave(count / heads.size(1), 1);
}

}  // namespace

at::Tensor filled_up(const at::Tensor& heads, std::int64_t size) {
  return heads.size(2) == size ? heads : at::constant_pad_nd(heads, {0, size - heads.size(2)});
}

Rotations rotations(const model::Config& c, std::int64_t first, std::int64_t n,
                    const at::Device& device) {
  const auto table = [&](const model::Rope& rope, std::int64_t dim) {
    return rope_table(model::rope_frequencies(rope, dim, c.context_length, first + n), first, n,
                      device);
  };
  at::Tensor temperature;
  if (c.temperature.scale > 0) {
    const auto options = at::TensorOptions(at::kFloat).device(device);
    const at::Tensor passed = at::arange(first + 1, first + n + 1, options) / c.temperature.tokens;
    temperature = (passed.floor().log1p() * c.temperature.scale + 1).view({n, 1, 1});
  }
  return {table(c.rope, c.rotary_dim),
          c.local_rope ? table(*c.local_rope, c.local_rotary_dim) : RopeTable(), temperature};
}

void turn(const model::Config& c, std::int64_t layer, const LayerTensors& w,
          const Rotations& rotations, Projected& made) {
  if (c.has_rope(layer)) {
    const bool local = c.window[layer] > 0 && c.local_rope;
    const RopeTable& table = local ? rotations.local : rotations.global;
    on_queries_and_keys(w, made,
                        [&](const at::Tensor& heads, const at::Tensor&) { rotate(heads, table); });
    if (c.rotated_norms)
      on_queries_and_keys(w, made, [&](at::Tensor& heads, const at::Tensor&) {
        heads = norm_heads(c, heads, at::ones({heads.size(2)}, heads.options()));
      });
  } else if (rotations.temperature.defined()) {
    made.query = made.query * rotations.temperature.to(made.query.scalar_type());
  }
  if (c.norms_after_rope) norm_both(c, w, made);
}

Projected project(const model::Config& c, std::int64_t layer, const LayerTensors& w,
                  const at::Tensor& hidden, const Rotations& rotations,
                  const BeforeRope& before_rope) {
  const model::LayerShape shape = c.shape(layer);
  const bool own_keys = shape.keys_of == layer;
  const at::Tensor normed = norm(hidden, w.attention_norm, w.attention_norm_bias, c);
  Projected made =
      c.latent.rank > 0 ? latent(c, shape, w, normed) : ordinary(c, shape, own_keys, w, normed);
  if (!c.norms_after_rope) norm_both(c, w, made);
  if (own_keys && c.value_norms)
    made.value = norm_heads(c, made.value, at::ones({shape.value_dim}, made.value.options()));
  if (before_rope) before_rope(made);
  turn(c, layer, w, rotations, made);
  made.query = filled_up(made.query, c.head_dim);
  if (!own_keys) return made;
  made.key = repeated(filled_up(made.key, c.head_dim), c.n_kv_heads);
  made.value = repeated(filled_up(made.value, c.head_dim), c.n_kv_heads);
  return made;
}

at::Tensor project_back(const model::Config& c, std::int64_t layer, const LayerTensors& w,
                        const at::Tensor& attended, const at::Tensor& gate) {
  const std::int64_t n = attended.size(0), size = c.shape(layer).value_dim;
  at::Tensor rows = gate.defined() ? attended * gate : attended;
  if (size != c.head_dim)
    rows = rows.view({n, c.n_heads, c.head_dim}).narrow(2, 0, size).reshape({n, -1});
  return capture::linear(rows, w.output, w.output_bias);
}

}  // namespace kvatlas::capture
