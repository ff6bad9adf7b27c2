// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/feed_forward_impl.hpp"
#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/state_layers_impl.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::capture {
namespace {

/// Causal convolution of each channel by itself: rows [n, channels], float32.
at::Tensor convolve(const LayerTensors& w, const at::Tensor& rows, LayerState& state) {
  const std::int64_t n = rows.size(0), kernel = w.conv.size(1);
  if (!state.conv.defined()) state.conv = at::zeros({kernel - 1, rows.size(1)}, rows.options());
  const at::Tensor all = at::cat({state.conv, rows});
  at::Tensor out = all.narrow(0, 0, n) * w.conv.select(1, 0);
  for (std::int64_t j = 1; j < kernel; ++j) out.add_(all.narrow(0, j, n) * w.conv.select(1, j));
  if (w.conv_bias.defined()) out.add_(w.conv_bias);
  state.conv = all.narrow(0, n, kernel - 1).clone();
  return out;
}

/// Scales a vector to length 1, and by `factor`.
void normalise(const float* from, std::int64_t size, float factor, float* to) {
  float squares = 0;
  for (std::int64_t i = 0; i < size; ++i) squares += from[i] * from[i];
  const float scale = factor / std::sqrt(squares + 1e-6F);
  for (std::int64_t i = 0; i < size; ++i) to[i] = from[i] * scale;
}

/// The gated delta rule, token after token: each value head's memory decays, what the key finds in
/// it is replaced by the value, as far as the step goes, and the query reads it.
at::Tensor delta_rule(const model::StateLayers& s, const at::Tensor& mixed, const at::Tensor& decay,
                      const at::Tensor& step, LayerState& state) {
  const std::int64_t n = mixed.size(0), width = mixed.size(1);
  at::Tensor memory = state.memory.defined()
                          ? state.memory.clone()
                          : at::zeros({s.value_heads, s.key_dim, s.value_dim}, at::kFloat);
  at::Tensor out = at::empty({n, s.value_heads, s.value_dim}, at::kFloat);
  const float* inputs = mixed.const_data_ptr<float>();
  const float* decays = decay.const_data_ptr<float>();
  const float* steps = step.const_data_ptr<float>();
  float* all_memory = memory.mutable_data_ptr<float>();
  float* all_out = out.mutable_data_ptr<float>();
  const float query_scale = 1 / std::sqrt(static_cast<float>(s.key_dim));
  parallel_for(s.value_heads, [&](std::int64_t head, int) {
    const std::int64_t key_head =
        s.tiled ? head % s.key_heads : head / (s.value_heads / s.key_heads);
    std::vector<float> room(static_cast<std::size_t>(2 * s.key_dim + s.value_dim));
    float *query = room.data(), *key = query + s.key_dim, *change = key + s.key_dim;
    float* cells = all_memory + head * s.key_dim * s.value_dim;
    for (std::int64_t t = 0; t < n; ++t) {
      const float* row = inputs + t * width;
      normalise(row + key_head * s.key_dim, s.key_dim, query_scale, query);
      normalise(row + s.keys() + key_head * s.key_dim, s.key_dim, 1, key);
      const float* value = row + 2 * s.keys() + head * s.value_dim;
      const float keep = decays[t * s.value_heads + head], part = steps[t * s.value_heads + head];
      for (std::int64_t j = 0; j < s.value_dim; ++j) change[j] = 0;
      for (std::int64_t i = 0; i < s.key_dim; ++i)
        for (std::int64_t j = 0; j < s.value_dim; ++j) {
          float& cell = cells[i * s.value_dim + j];
          cell *= keep;
          change[j] += cell * key[i];
        }
      for (std::int64_t j = 0; j < s.value_dim; ++j) change[j] = (value[j] - change[j]) * part;
      float* to = all_out + (t * s.value_heads + head) * s.value_dim;
      for (std::int64_t j = 0; j < s.value_dim; ++j) to[j] = 0;
      for (std::int64_t i = 0; i < s.key_dim; ++i)
        for (std::int64_t j = 0; j < s.value_dim; ++j) {
          float& cell = cells[i * s.value_dim + j];
          cell += key[i] * change[j];
          to[j] += cell * query[i];
        }
    }
  });
  state.memory = memory;
  return out;
}

/// A selective state space, token after token: each head's state decays by its step, takes up the
/// token's values times its key, and the query reads it.
at::Tensor selective_scan(const model::StateLayers& s, const at::Tensor& mixed,
                          const at::Tensor& decay, const at::Tensor& step, LayerState& state) {
  const std::int64_t n = mixed.size(0), width = mixed.size(1);
  at::Tensor memory = state.memory.defined()
                          ? state.memory.clone()
                          : at::zeros({s.value_heads, s.value_dim, s.key_dim}, at::kFloat);
  at::Tensor out = at::empty({n, s.values()}, at::kFloat);
  const float* inputs = mixed.const_data_ptr<float>();
  const float* decays = decay.const_data_ptr<float>();
  const float* steps = step.const_data_ptr<float>();
  float* all_memory = memory.mutable_data_ptr<float>();
  float* all_out = out.mutable_data_ptr<float>();
  parallel_for(s.value_heads, [&](std::int64_t head, int) {
    const std::int64_t group = head / (s.value_heads / s.key_heads);
    float* cells = all_memory + head * s.value_dim * s.key_dim;
    for (std::int64_t t = 0; t < n; ++t) {
      const float* value = inputs + t * width + head * s.value_dim;
      const float* key = inputs + t * width + s.values() + group * s.key_dim;
      const float* query = key + s.keys();
      const float keep = decays[t * s.value_heads + head], part = steps[t * s.value_heads + head];
      float* to = all_out + t * s.values() + head * s.value_dim;
      for (std::int64_t i = 0; i < s.value_dim; ++i) {
        float* row = cells + i * s.key_dim;
        const float taken = part * value[i];
        float found = 0;
        for (std::int64_t j = 0; j < s.key_dim; ++j) {
          row[j] = row[j] * keep + taken * key[j];
          found += row[j] * query[j];
        }
        to[i] = found;
      }
    }
  });
  state.memory = memory;
  return out;
}

/// Calls run(first row, rows, state) for each sequence, and joins what it gives.
template <class Run>
at::Tensor by_sequence(std::int64_t n, std::span<LayerState* const> states, Run&& run) {
  if (states.size() == 1) return run(0, n, *states.front());
  std::vector<at::Tensor> parts;
  for (std::int64_t row = 0; row < n; ++row) parts.push_back(run(row, 1, *states[row]));
  return at::cat(parts);
}

at::Tensor decay_rates(const model::Config& c, const LayerTensors& w) {
  return c.state_layers.rates ? w.decay : -w.decay.exp();
}

at::Tensor delta_net(const model::Config& c, const LayerTensors& w, const at::Tensor& rows,
                     std::span<LayerState* const> states) {
  const model::StateLayers& s = c.state_layers;
  const std::int64_t n = rows.size(0), mixed = 2 * s.keys() + s.values();
  const at::Tensor all = capture::linear(rows, w.state_in).to(at::kFloat);
  const at::Tensor gates = all.narrow(1, mixed, s.values()).reshape({-1, s.value_dim});
  const at::Tensor step = at::sigmoid(all.narrow(1, mixed + s.values(), s.value_heads));
  const at::Tensor rate =
      at::softplus(all.narrow(1, mixed + s.values() + s.value_heads, s.value_heads) + w.step_bias);
  const at::Tensor decay = (decay_rates(c, w) * rate).exp();
  const at::Tensor found =
      by_sequence(n, states, [&](std::int64_t first, std::int64_t count, LayerState& state) {
        const at::Tensor inputs =
            at::silu(convolve(w, all.narrow(0, first, count).narrow(1, 0, mixed), state));
        // The recurrence runs on the CPU, wherever the rest runs.
        return delta_rule(s, inputs.cpu().contiguous(),
                          decay.narrow(0, first, count).cpu().contiguous(),
                          step.narrow(0, first, count).cpu().contiguous(), state);
      });
  const at::Tensor heads = found.to(rows.device()).view({-1, s.value_dim});
  const at::Tensor normed = rms_norm(heads, w.state_norm, c.norm_eps, 0.0);
  return capture::linear((normed * at::silu(gates)).view({n, s.values()}).to(rows.scalar_type()),
                         w.output);
}

at::Tensor mamba2(const model::Config& c, const LayerTensors& w, const at::Tensor& rows,
                  std::span<LayerState* const> states) {
  const model::StateLayers& s = c.state_layers;
  const std::int64_t n = rows.size(0), mixed = s.values() + 2 * s.keys();
  const at::Tensor all = capture::linear(rows, w.state_in, w.state_in_bias).to(at::kFloat);
  const at::Tensor step =
      at::softplus(all.narrow(1, s.values() + mixed, s.value_heads) + w.step_bias);
  const at::Tensor decay = (decay_rates(c, w) * step).exp();
  const at::Tensor found =
      by_sequence(n, states, [&](std::int64_t first, std::int64_t count, LayerState& state) {
        const at::Tensor inputs =
            at::silu(convolve(w, all.narrow(0, first, count).narrow(1, s.values(), mixed), state));
        const at::Tensor scanned = selective_scan(
            s, inputs.cpu().contiguous(), decay.narrow(0, first, count).cpu().contiguous(),
            step.narrow(0, first, count).cpu().contiguous(), state);
        const at::Tensor past = inputs.narrow(1, 0, s.values()).reshape({count, -1, s.value_dim}) *
                                w.state_skip.unsqueeze(-1);
        return scanned.to(rows.device()) + past.reshape({count, -1});
      });
  const at::Tensor gated = found * at::silu(all.narrow(1, 0, s.values()));
  const at::Tensor of_groups = gated.view({n * s.key_heads, -1});
  const at::Tensor even =
      rms_norm(of_groups, at::ones({of_groups.size(1)}, of_groups.options()), c.norm_eps, 0.0);
  return capture::linear((even.view({n, s.values()}) * w.state_norm).to(rows.scalar_type()),
                         w.output, w.output_bias);
}

at::Tensor short_conv(const model::Config& c, const LayerTensors& w, const at::Tensor& rows,
                      std::span<LayerState* const> states) {
  const std::int64_t D = c.hidden_size;
  const at::Tensor all = capture::linear(rows, w.state_in, w.state_in_bias).to(at::kFloat);
  const at::Tensor before = all.narrow(1, 0, D) * all.narrow(1, 2 * D, D);
  const at::Tensor mixed = by_sequence(
      rows.size(0), states, [&](std::int64_t first, std::int64_t count, LayerState& state) {
        return convolve(w, before.narrow(0, first, count), state);
      });
  return capture::linear((all.narrow(1, D, D) * mixed).to(rows.scalar_type()), w.output,
                         w.output_bias);
}

at::Tensor run_kind(const model::Config& c, const LayerTensors& w, const at::Tensor& rows,
                    std::span<LayerState* const> states) {
  switch (c.state_layers.kind) {
    case model::StateLayers::Kind::none:
      break;
    case model::StateLayers::Kind::delta_net:
      return delta_net(c, w, rows, states);
    case model::StateLayers::Kind::short_conv:
      return short_conv(c, w, rows, states);
    case model::StateLayers::Kind::mamba2:
      return mamba2(c, w, rows, states);
  }
  fail(ErrorCode::internal, "a layer without attention is of no kind");
}

}  // namespace

void run_state_layer(const model::Config& c, const LayerTensors& w, const at::Tensor& hidden,
                     std::span<LayerState* const> states) {
  const at::Tensor normed = norm(hidden, w.attention_norm, w.attention_norm_bias, c);
  hidden.add_(run_kind(c, w, normed, states), c.residual_scale);
  feed_forward(c, w, hidden);
}

}  // namespace kvatlas::capture
