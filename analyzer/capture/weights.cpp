// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/weights_impl.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::capture {
namespace {

std::int64_t rows_per_stage(std::int64_t columns) {
  return std::max<std::int64_t>(1, kStagingBytes / (4 * columns));
}

using model::LayerWeights;

/// Each weight of a layer, as it is stored and as it is held.
struct Member {
  model::Weight LayerWeights::*stored;
  at::Tensor LayerTensors::*held;
  WeightStore::Form form = WeightStore::Form::plain;
};
constexpr auto kAsFloat = WeightStore::Form::as_float;
constexpr auto kMultiplied = WeightStore::Form::multiplied;
constexpr Member kMembers[] = {
    {&LayerWeights::attention_norm, &LayerTensors::attention_norm},
    {&LayerWeights::attention_norm_bias, &LayerTensors::attention_norm_bias},
    {&LayerWeights::qkv, &LayerTensors::qkv, kMultiplied},
    {&LayerWeights::qkv_bias, &LayerTensors::qkv_bias},
    {&LayerWeights::q_norm, &LayerTensors::q_norm},
    {&LayerWeights::k_norm, &LayerTensors::k_norm},
    {&LayerWeights::output, &LayerTensors::output, kMultiplied},
    {&LayerWeights::output_bias, &LayerTensors::output_bias},
    {&LayerWeights::sinks, &LayerTensors::sinks, kAsFloat},
    {&LayerWeights::post_attention_norm, &LayerTensors::post_attention_norm},
    {&LayerWeights::mlp_norm, &LayerTensors::mlp_norm},
    {&LayerWeights::mlp_norm_bias, &LayerTensors::mlp_norm_bias},
    {&LayerWeights::gate_up, &LayerTensors::gate_up, kMultiplied},
    {&LayerWeights::gate_up_bias, &LayerTensors::gate_up_bias},
    {&LayerWeights::activation, &LayerTensors::activation},
    {&LayerWeights::down, &LayerTensors::down, kMultiplied},
    {&LayerWeights::down_bias, &LayerTensors::down_bias},
    {&LayerWeights::post_mlp_norm, &LayerTensors::post_mlp_norm},
    {&LayerWeights::router, &LayerTensors::router, kMultiplied},
    {&LayerWeights::router_bias, &LayerTensors::router_bias},
    {&LayerWeights::router_correction, &LayerTensors::router_correction, kAsFloat},
    {&LayerWeights::expert_gate_up, &LayerTensors::expert_gate_up},
    {&LayerWeights::expert_gate_up_bias, &LayerTensors::expert_gate_up_bias},
    {&LayerWeights::expert_down, &LayerTensors::expert_down},
    {&LayerWeights::expert_down_bias, &LayerTensors::expert_down_bias},
    {&LayerWeights::shared_gate_up, &LayerTensors::shared_gate_up, kMultiplied},
    {&LayerWeights::shared_down, &LayerTensors::shared_down, kMultiplied},
    {&LayerWeights::shared_gate, &LayerTensors::shared_gate},
    {&LayerWeights::state_in, &LayerTensors::state_in, kMultiplied},
    {&LayerWeights::state_in_bias, &LayerTensors::state_in_bias},
    {&LayerWeights::conv, &LayerTensors::conv, kAsFloat},
    {&LayerWeights::conv_bias, &LayerTensors::conv_bias, kAsFloat},
    {&LayerWeights::decay, &LayerTensors::decay, kAsFloat},
    {&LayerWeights::step_bias, &LayerTensors::step_bias, kAsFloat},
    {&LayerWeights::state_norm, &LayerTensors::state_norm, kAsFloat},
    {&LayerWeights::query_down, &LayerTensors::query_down, kMultiplied},
    {&LayerWeights::query_norm, &LayerTensors::query_norm},
    {&LayerWeights::query_up, &LayerTensors::query_up, kMultiplied},
    {&LayerWeights::latent_down, &LayerTensors::latent_down, kMultiplied},
    {&LayerWeights::latent_norm, &LayerTensors::latent_norm},
    {&LayerWeights::latent_up, &LayerTensors::latent_up, kMultiplied},
    {&LayerWeights::input_gate, &LayerTensors::input_gate, kMultiplied},
    {&LayerWeights::input_up, &LayerTensors::input_up, kMultiplied},
    {&LayerWeights::input_norm, &LayerTensors::input_norm},
    {&LayerWeights::layer_scale, &LayerTensors::layer_scale},
    {&LayerWeights::stream_router, &LayerTensors::stream_router, kMultiplied},
    {&LayerWeights::stream_router_norm, &LayerTensors::stream_router_norm},
    {&LayerWeights::stream_prediction, &LayerTensors::stream_prediction, kMultiplied},
    {&LayerWeights::stream_correction, &LayerTensors::stream_correction, kMultiplied},
    {&LayerWeights::stream_scale, &LayerTensors::stream_scale},
    {&LayerWeights::shortcut_down, &LayerTensors::shortcut_down, kMultiplied},
    {&LayerWeights::shortcut_up, &LayerTensors::shortcut_up, kMultiplied},
    {&LayerWeights::shortcut_norm, &LayerTensors::shortcut_norm},
    {&LayerWeights::router_norm, &LayerTensors::router_norm},
    {&LayerWeights::router_scale, &LayerTensors::router_scale, kAsFloat},
    {&LayerWeights::dense_norm, &LayerTensors::dense_norm},
    {&LayerWeights::expert_norm, &LayerTensors::expert_norm},
    {&LayerWeights::post_expert_norm, &LayerTensors::post_expert_norm},
    {&LayerWeights::state_skip, &LayerTensors::state_skip, kAsFloat},
};

}  // namespace

void MatrixValues::add(const MatrixValues& more) {
  experts += more.experts;
  others += more.others;
  largest = std::max(largest, more.largest);
}

MatrixValues matrix_values(const LayerWeights& layer) {
  MatrixValues out;
  out.experts = value_count(layer.expert_gate_up) + value_count(layer.expert_down);
  out.others =
      value_count(layer.qkv) + value_count(layer.output) + value_count(layer.gate_up) +
      value_count(layer.down) + value_count(layer.router) + value_count(layer.shared_gate_up) +
      value_count(layer.shared_down) + value_count(layer.state_in) + value_count(layer.conv) +
      value_count(layer.query_down) + value_count(layer.query_up) + value_count(layer.latent_down) +
      value_count(layer.latent_up) + value_count(layer.input_gate) + value_count(layer.input_up) +
      value_count(layer.shortcut_down) + value_count(layer.shortcut_up);
  out.largest =
      std::max({value_count(layer.qkv), value_count(layer.gate_up), value_count(layer.state_in)});
  for (const auto* others : {&layer.before, &layer.after})
    for (const auto& other : *others) out.add(matrix_values(other));
  return out;
}

WeightStore::WeightStore(std::shared_ptr<const model::ModelFile> model, at::TensorOptions options,
                         bool streaming)
    : model_(std::move(model)), options_(options), streaming_(streaming) {
  const std::size_t slots = streaming ? 2 : model_->layers().size();
  kept_.resize(slots);
  held_.assign(slots, -1);
}

WeightStore::~WeightStore() {
  if (prefetch_.valid()) prefetch_.wait();
}

void WeightStore::release(const model::Weight& weight) const {
  const model::StoredTensor* released = nullptr;
  for (const auto& part : weight.parts)
    if (part.tensor != released) model_->release(*(released = part.tensor));
}

void WeightStore::load(const model::Weight& weight, at::Tensor& into, Form form) const {
  if (!weight) {
    into.reset();
    return;
  }
  const bool vector = weight.parts.front().is_vector;
  const std::int64_t rows = weight.rows(), columns = weight.columns();
  // A slot of streamed weights may hold those of a layer of another kind. What was packed before
  // loading a layer failed cannot be written.
  if (!into.defined() || into.is_mkldnn() || into.numel() != rows * columns)
    into = at::empty(vector ? std::vector<std::int64_t>{rows * columns}
                            : std::vector<std::int64_t>{rows, columns},
                     form == Form::as_float ? options_.dtype(at::kFloat) : options_);
  const at::Tensor matrix = into.view({rows, columns});
  if (matrix.is_cpu() && matrix.scalar_type() == at::kFloat) {
    model::read_rows(weight, 0, rows, matrix.mutable_data_ptr<float>());
  } else {
    const std::int64_t stage = std::min(rows, rows_per_stage(columns));
    at::Tensor staging = at::empty({stage, columns}, at::kFloat);
    for (std::int64_t start = 0; start < rows; start += stage) {
      const std::int64_t count = std::min(stage, rows - start);
      model::read_rows(weight, start, count, staging.mutable_data_ptr<float>());
      matrix.narrow(0, start, count).copy_(staging.narrow(0, 0, count));
    }
  }
  release(weight);
  // Streamed weights keep their place in memory, which a layout of their own would not.
  if (form == Form::multiplied && !streaming_) into = packed(into);
}

void WeightStore::load_all(const LayerWeights& from, LayerTensors& into) const {
  for (const auto& [stored, held, form] : kMembers) load(from.*stored, into.*held, form);
  const auto load_others = [&](const std::vector<LayerWeights>& others,
                               std::vector<LayerTensors>& held) {
    held.resize(others.size());
    for (std::size_t i = 0; i < others.size(); ++i) load_all(others[i], held[i]);
  };
  load_others(from.before, into.before);
  load_others(from.after, into.after);
}

void WeightStore::load_layer(std::int64_t index, LayerTensors& into) const {
  const c10::InferenceMode no_gradients;
  load_all(model_->layers()[index], into);
  if (const auto& numbers = model_->config().activation_numbers; !numbers.empty())
    into.activation = at::tensor(at::ArrayRef<float>(numbers[index].data(), 4), at::kFloat)
                          .to(options_.device(), c10::typeMetaToScalarType(options_.dtype()));
  model_->require_intact();
}

const LayerTensors& WeightStore::layer(std::int64_t index) {
  const auto n_layers = static_cast<std::int64_t>(model_->layers().size());
  const auto slot = static_cast<std::size_t>(streaming_ ? index % 2 : index);
  if (prefetch_.valid()) prefetch_.get();
  if (held_[slot] != index) {
    held_[slot] = -1;
    load_layer(index, kept_[slot]);
    held_[slot] = index;
  }
  if (streaming_ && n_layers > 1) {
    const std::int64_t next = (index + 1) % n_layers;
    const auto other = static_cast<std::size_t>(next % 2);
    if (other != slot && held_[other] != next) {
      held_[other] = next;
      prefetch_ = std::async(std::launch::async, [this, next, other] {
        const SerialSection leave_the_cores_to_the_forward_pass;
        try {
          load_layer(next, kept_[other]);
        } catch (...) {
          held_[other] = -1;
          throw;
        }
      });
    }
  }
  return kept_[slot];
}

const at::Tensor& WeightStore::kept(const model::Weight& weight, at::Tensor& into) const {
  if (!into.defined()) load(weight, into);
  return into;
}

const at::Tensor& WeightStore::final_norm() { return kept(model_->final_norm(), final_norm_); }

const at::Tensor& WeightStore::final_norm_bias() {
  return kept(model_->final_norm_bias(), final_norm_bias_);
}

const at::Tensor& WeightStore::stream_starts() {
  return kept(model_->stream_starts(), stream_starts_);
}

const at::Tensor& WeightStore::stream_ends() { return kept(model_->stream_ends(), stream_ends_); }

at::Tensor WeightStore::rows_of(const model::Weight& table,
                                const std::vector<std::int64_t>& tokens) const {
  const std::int64_t columns = table.columns();
  at::Tensor rows = at::empty({static_cast<std::int64_t>(tokens.size()), columns}, at::kFloat);
  float* out = rows.mutable_data_ptr<float>();
  parallel_for(static_cast<std::int64_t>(tokens.size()), [&](std::int64_t i, int) {
    model::read_rows(table, tokens[i], 1, out + i * columns);
  });
  release(table);
  model_->require_intact();
  return rows;
}

at::Tensor WeightStore::layer_inputs(const std::vector<std::int64_t>& tokens,
                                     const at::Tensor& embedded) {
  const model::Config& config = model_->config();
  if (config.layer_input_size == 0) return {};
  const std::int64_t n = embedded.size(0), size = config.layer_input_size;
  const at::Tensor projected =
      capture::linear(embedded, kept(model_->layer_projection(), layer_projection_))
          .mul_(1 / std::sqrt(static_cast<double>(config.hidden_size)));
  const at::Tensor normed = rms_norm(projected.view({-1, size}),
                                     kept(model_->layer_projection_norm(), layer_projection_norm_),
                                     config.norm_eps, config.norm_offset);
  std::vector<std::int64_t> in_table;
  for (const auto token : tokens) in_table.push_back(token < config.layer_input_vocab ? token : 0);
  const at::Tensor own = rows_of(model_->layer_embedding(), in_table)
                             .mul_(std::sqrt(static_cast<double>(size)))
                             .to(normed.device(), normed.scalar_type());
  return normed.view({n, -1}).add_(own).mul_(std::sqrt(0.5)).view({n, config.n_layers, size});
}

at::Tensor WeightStore::embed(const std::vector<std::int64_t>& tokens) const {
  const model::Config& config = model_->config();
  const at::Tensor rows = rows_of(model_->embedding(), tokens);
  const auto type = c10::typeMetaToScalarType(options_.dtype());
  if (config.embedding_scale != 1.0) {
    // The factor is rounded to the number format of the model, as its authors' software does.
    const at::Tensor factor = at::scalar_tensor(config.embedding_scale, options_.device(at::kCPU));
    rows.mul_(factor.to(at::kFloat));
  }
  return rows.to(options_.device(), type);
}

at::Tensor WeightStore::logits(const at::Tensor& rows) {
  const model::Weight& head = model_->head();
  const std::int64_t vocab = head.rows(), columns = head.columns();
  const std::int64_t stage = std::min(vocab, rows_per_stage(columns));
  at::Tensor out = at::empty({rows.size(0), vocab}, rows.options().dtype(at::kFloat));
  at::Tensor staging;
  const auto read = [&](std::int64_t start, std::int64_t count) {
    // Pieces that are kept need memory of their own.
    if (!streaming_ || !staging.defined()) staging = at::empty({stage, columns}, at::kFloat);
    model::read_rows(head, start, count, staging.mutable_data_ptr<float>());
    release(head);
    return staging.narrow(0, 0, count).to(rows.device(), rows.scalar_type());
  };
  // Resident weights are multiplied in the same pieces, so that both modes give the same sums.
  for (std::int64_t start = 0; start < vocab; start += stage) {
    const std::int64_t count = std::min(stage, vocab - start);
    const auto number = static_cast<std::size_t>(start / stage);
    if (!streaming_ && number == head_.size()) head_.push_back(packed(read(start, count)));
    const at::Tensor part = streaming_ ? read(start, count) : head_[number];
    out.narrow(1, start, count).copy_(capture::linear(rows, part));
  }
  model_->require_intact();
  if (const model::Weight& bias = model_->head_bias()) {
    if (!head_bias_.defined()) load(bias, head_bias_);
    out.add_(head_bias_);
  }
  if (const double scale = model_->config().logit_scale; scale != 1.0) out.mul_(scale);
  const double cap = model_->config().logit_softcap;
  if (cap > 0.0) out.div_(cap).tanh_().mul_(cap);
  return out;
}

}  // namespace kvatlas::capture
