// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/streams_impl.hpp"

namespace kvatlas::capture {
namespace {

at::Tensor size_of(const at::Tensor& rows) { return rows.square().mean(-1, true); }

/// Rows that are as large as `like`.
at::Tensor as_large_as(const at::Tensor& like, const at::Tensor& rows) {
  return rows * size_of(like).sqrt() / size_of(rows).clamp_min(1e-5).sqrt();
}

/// What the coefficients are made of: [n, A].
at::Tensor routed(const LayerTensors& w, const model::Config& c, const at::Tensor& rows) {
  const at::Tensor normed =
      rms_norm(rows, w.stream_router_norm, c.norm_eps, c.norm_offset) / c.hidden_size;
  return at::tanh(capture::linear(normed, w.stream_router));
}

/// What a layer makes of its own inputs [n, P], weighed by `rows`: [n, D].
at::Tensor of_layer_inputs(const LayerTensors& w, const model::Config& c, const at::Tensor& inputs,
                           const at::Tensor& rows) {
  const at::Tensor gate = activated(capture::linear(rows, w.input_gate), c.activation);
  return norm(capture::linear(gate * inputs, w.input_up), w.input_norm, {}, c);
}

void correct_streams(const LayerTensors& w, const model::Config& c, const at::Tensor& hidden,
                     const at::Tensor& streams) {
  const at::Tensor factors = capture::linear(routed(w, c, hidden), w.stream_correction) + 1;
  const at::Tensor news = hidden - streams.select(0, c.streams.active);
  streams.add_(news.unsqueeze(0) * factors.t().unsqueeze(-1));
}

}  // namespace

Carried carried_into(WeightStore& weights, const model::Config& c,
                     const std::vector<std::int64_t>& tokens) {
  Carried carried{weights.embed(tokens), {}, {}};
  carried.layer_inputs = weights.layer_inputs(tokens, carried.hidden);
  if (c.streams.count == 0) return carried;
  const std::int64_t n = carried.hidden.size(0);
  std::vector<at::Tensor> streams = {carried.hidden};
  if (c.streams.count > 1)
    for (const at::Tensor& made : capture::linear(carried.hidden, weights.stream_starts())
                                      .view({n, c.streams.count - 1, c.hidden_size})
                                      .unbind(1))
      streams.push_back(as_large_as(carried.hidden, made));
  carried.streams = at::cat(streams).view({c.streams.count, n, c.hidden_size});
  return carried;
}

void Carried::choose(const at::Tensor& index) {
  hidden = hidden.index_select(0, index);
  if (layer_inputs.defined()) layer_inputs = layer_inputs.index_select(0, index);
  if (streams.defined()) streams = streams.index_select(1, index);
}

void predict_streams(const LayerTensors& w, const model::Config& c, Carried& carried) {
  if (!carried.streams.defined()) return;
  const std::int64_t count = c.streams.count, n = carried.hidden.size(0);
  const at::Tensor active = carried.streams.select(0, c.streams.active);
  // [n, A, A]: of each stream that is made, its share of each that there is.
  const at::Tensor shares =
      capture::linear(routed(w, c, active), w.stream_prediction).view({n, count, count});
  carried.streams.add_(at::matmul(shares, carried.streams.transpose(0, 1)).transpose(0, 1));
  carried.hidden.copy_(active);
}

void add_attention(const LayerTensors& w, const model::Config& c, const at::Tensor& out,
                   const at::Tensor& hidden) {
  at::Tensor shortcut;
  if (w.shortcut_up.defined()) {
    const at::Tensor normed = norm(hidden, w.attention_norm, {}, c);
    const at::Tensor step =
        capture::linear(capture::linear(normed, w.shortcut_down), w.shortcut_up);
    shortcut = normed + norm(step, w.shortcut_norm, {}, c);
  }
  hidden.add_(norm(out, w.post_attention_norm, {}, c), c.residual_scale);
  if (shortcut.defined()) hidden.add_(shortcut).div_(std::sqrt(2.0));
}

void end_layer(const LayerTensors& w, const model::Config& c, std::int64_t layer,
               Carried& carried) {
  const at::Tensor inputs =
      carried.layer_inputs.defined() ? carried.layer_inputs.select(1, layer) : at::Tensor();
  if (carried.streams.defined()) {
    correct_streams(w, c, carried.hidden, carried.streams);
    const at::Tensor active = carried.streams.select(0, c.streams.active);
    carried.streams.narrow(0, 1, c.streams.count - 1)
        .add_(of_layer_inputs(w, c, inputs,
                              w.stream_scale.defined() ? active * w.stream_scale : active));
  } else if (inputs.defined()) {
    carried.hidden.add_(of_layer_inputs(w, c, inputs, carried.hidden));
  }
  if (w.layer_scale.defined()) carried.hidden.mul_(w.layer_scale);
}

void join_streams(WeightStore& weights, const model::Config& c, Carried& carried) {
  if (!carried.streams.defined()) return;
  const at::Tensor first = carried.streams[0];
  at::Tensor sum = first.clone();
  for (std::int64_t i = 1; i < c.streams.count; ++i)
    sum.add_(as_large_as(first, capture::linear(carried.streams[i],
                                                weights.stream_ends().narrow(
                                                    0, (i - 1) * c.hidden_size, c.hidden_size))));
  carried.hidden = sum / c.streams.count;
}

}  // namespace kvatlas::capture
