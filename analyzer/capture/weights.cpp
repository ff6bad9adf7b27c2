// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
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

}  // namespace

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

void WeightStore::load(const model::Weight& weight, bool vector, at::Tensor& into) const {
  if (!weight) return;
  const std::int64_t rows = weight.rows(), columns = weight.columns();
  if (!into.defined())
    into = vector ? at::empty({rows * columns}, options_) : at::empty({rows, columns}, options_);
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
  // What was decoded is not needed in the page cache mapping any more.
  for (const auto& part : weight.parts) model_->release(*part.tensor);
}

void WeightStore::load_layer(std::int64_t index, LayerTensors& into) const {
  const c10::InferenceMode no_gradients;
  const auto& from = model_->layers()[index];
  load(from.attention_norm, true, into.attention_norm);
  load(from.qkv, false, into.qkv);
  load(from.qkv_bias, true, into.qkv_bias);
  load(from.q_norm, true, into.q_norm);
  load(from.k_norm, true, into.k_norm);
  load(from.output, false, into.output);
  load(from.output_bias, true, into.output_bias);
  load(from.post_attention_norm, true, into.post_attention_norm);
  load(from.mlp_norm, true, into.mlp_norm);
  load(from.gate_up, false, into.gate_up);
  load(from.gate_up_bias, true, into.gate_up_bias);
  load(from.down, false, into.down);
  load(from.down_bias, true, into.down_bias);
  load(from.post_mlp_norm, true, into.post_mlp_norm);
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

const at::Tensor& WeightStore::final_norm() {
  if (!final_norm_.defined()) load(model_->final_norm(), true, final_norm_);
  return final_norm_;
}

at::Tensor WeightStore::embed(const std::vector<std::int64_t>& tokens) const {
  const model::Config& config = model_->config();
  at::Tensor rows =
      at::empty({static_cast<std::int64_t>(tokens.size()), config.hidden_size}, at::kFloat);
  float* out = rows.mutable_data_ptr<float>();
  parallel_for(static_cast<std::int64_t>(tokens.size()), [&](std::int64_t i, int) {
    model::read_rows(model_->embedding(), tokens[i], 1, out + i * config.hidden_size);
  });
  model_->require_intact();
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
  if (!streaming_ && !head_.defined()) load(head, false, head_);
  at::Tensor staging = streaming_ ? at::empty({stage, columns}, at::kFloat) : at::Tensor();
  at::Tensor out = at::empty({rows.size(0), vocab}, rows.options().dtype(at::kFloat));
  // Resident weights are multiplied in the same pieces, so that both modes give the same bits.
  for (std::int64_t start = 0; start < vocab; start += stage) {
    const std::int64_t count = std::min(stage, vocab - start);
    at::Tensor part;
    if (streaming_) {
      model::read_rows(head, start, count, staging.mutable_data_ptr<float>());
      part = staging.narrow(0, 0, count).to(rows.device(), rows.scalar_type());
      for (const auto& stored : head.parts) model_->release(*stored.tensor);  // what was read of it
    } else {
      part = head_.narrow(0, start, count);
    }
    out.narrow(1, start, count).copy_(linear(rows, part));
  }
  model_->require_intact();
  const double cap = model_->config().logit_softcap;
  if (cap > 0.0) out.div_(cap).tanh_().mul_(cap);
  return out;
}

}  // namespace kvatlas::capture
