// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/run_speed.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/weights_impl.hpp"

namespace kvatlas::capture {
namespace {

// Values of the matrix that a step is timed with: more than caches of processors hold.
constexpr std::int64_t kThinValues = 24 << 20;
constexpr std::int64_t kThinRows = 32;
// Values that are decoded to see how fast the file's weights come.
constexpr std::int64_t kDecodedValues = 16 << 20;
// What a layer of a step takes besides, and each of its rows, in seconds.
constexpr double kLayerOverhead = 4e-4, kRowOverhead = 1e-5;
// Attention to a cache, beside the rate of products of as many rows.
constexpr double kAttentionRate = 0.6;

/// The least seconds of so many turns.
template <class Fn>
double least_seconds(int turns, const Fn& fn) {
  double least = INFINITY;
  for (int turn = 0; turn < turns; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

/// Waits for the product, on a GPU too.
void run_product(const at::Tensor& rows, const at::Tensor& weight) {
  capture::linear(rows, weight).select(0, 0).sum().item<float>();
}

}  // namespace

RunSpeed::RunSpeed(const model::ModelFile& model, const Placement& placement, bool streaming)
    : streaming_(streaming) {
  const model::Config& c = model.config();
  MatrixValues values;
  for (const auto& layer : model.layers()) values.add(matrix_values(layer));
  experts_ = static_cast<double>(values.experts);
  others_ = static_cast<double>(values.others);
  head_ = static_cast<double>(value_count(model.head()));
  layers_ = static_cast<double>(c.n_layers);
  if (c.experts.count > 0)
    used_share_ = static_cast<double>(c.experts.active) / static_cast<double>(c.experts.count);
  group_ = static_cast<double>(c.n_heads) / static_cast<double>(c.n_kv_heads);
  score_products_ = layers_ * static_cast<double>(c.n_heads * c.head_dim);
  for (std::int64_t layer = 0; layer < c.n_layers; ++layer)
    cached_ += static_cast<double>(c.cached_values(layer));
  time_products(c, placement);
  time_decoding(model);
}

void RunSpeed::time_products(const model::Config& config, const Placement& placement) {
  const c10::InferenceMode no_gradients;
  constexpr std::int64_t kRows = 1024;
  const auto ones = [&](std::int64_t rows, std::int64_t columns) {
    return at::ones({rows, columns},
                    at::TensorOptions(at::Device(placement.device)).dtype(at::kFloat));
  };
  const std::int64_t in = config.hidden_size;
  const std::int64_t out = std::min<std::int64_t>(2 * config.intermediate_size, 4096);
  const at::Tensor rows = ones(kRows, in),
                   weight = packed(ones(std::max<std::int64_t>(out, 1), in));
  rate_ = static_cast<double>(kRows * weight.numel()) /
          least_seconds(5, [&] { run_product(rows, weight); });

  const auto wanted =
      std::min(kThinValues, static_cast<std::int64_t>(experts_ + others_ + head_)) / in;
  const at::Tensor large = packed(ones(std::max<std::int64_t>(1, wanted), in));
  const auto values = static_cast<double>(large.numel());
  const double one = least_seconds(5, [&] { run_product(rows.narrow(0, 0, 1), large); });
  const double many = least_seconds(5, [&] { run_product(rows.narrow(0, 0, kThinRows), large); });
  thin_ = one / values;
  thin_row_ = std::max(0.0, many - one) / (kThinRows - 1) / values;
}

void RunSpeed::time_decoding(const model::ModelFile& model) {
  const auto& layers = model.layers();
  if (layers.empty()) return;
  // A layer in the middle: what has been read of the file so far is its beginning.
  const model::LayerWeights& layer = layers[layers.size() / 2];
  const model::Weight* largest = &layer.qkv;
  for (const auto* weight : {&layer.gate_up, &layer.expert_gate_up, &layer.state_in})
    if (value_count(*weight) > value_count(*largest)) largest = weight;
  if (!*largest) return;
  const std::int64_t columns = largest->columns();
  const std::int64_t rows = std::clamp<std::int64_t>(kDecodedValues / columns, 1, largest->rows());
  // Memory that has been written to, as that of streamed layers has.
  const at::Tensor decoded = at::zeros({rows, columns}, at::kFloat);
  const double seconds = least_seconds(1, [&] {
    model::read_rows(*largest, 0, rows, decoded.mutable_data_ptr<float>());
    if (!streaming_) packed(decoded);
  });
  weight_seconds_ = seconds / static_cast<double>(decoded.numel()) * (experts_ + others_ + head_);
}

double RunSpeed::score_work(double tokens) const { return tokens * tokens * score_products_ / 2; }

double RunSpeed::prefill_work(double tokens) const {
  // All the small steps and statistics are a quarter of the products' time; attention, which is two
  // products, runs at about 0.8 of their rate.
  return 1.25 * tokens * (others_ + used_share_ * experts_) + 2 * score_work(tokens) / 0.8;
}

double RunSpeed::step(double rows, double caches, double tokens) const {
  // Rows choose experts by themselves, and each expert that is chosen is read.
  const double touched = experts_ * (1 - std::pow(1 - used_share_, rows));
  const double read = (others_ + head_ + touched) * thin_;
  const double multiplied =
      (others_ + head_ + used_share_ * experts_) * thin_row_ * std::max(0.0, rows - 1);
  const double attended =
      tokens * cached_ * (caches * thin_ + rows * group_ * thin_row_ / kAttentionRate);
  const double steps = layers_ * (kLayerOverhead + rows * kRowOverhead);
  const double seconds = read + multiplied + attended + steps;
  return streaming_ ? std::max(seconds, weight_seconds_) : seconds;
}

}  // namespace kvatlas::capture
