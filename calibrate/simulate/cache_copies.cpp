// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/cache_copies_impl.hpp"

namespace kvatlas::calibrate {

CacheCopies::CacheCopies(const model::Config& config, const at::TensorOptions& options)
    : config_(config), options_(options), layers_(static_cast<std::size_t>(config.n_layers)) {
  for (auto& layer : layers_) layer.key = layer.value = at::empty({0, config.head_dim}, options);
}

const at::Tensor& CacheCopies::keys(std::int64_t layer) const { return layers_[layer].key; }
const at::Tensor& CacheCopies::values(std::int64_t layer) const { return layers_[layer].value; }

void CacheCopies::reserve(std::int64_t number, std::int64_t rows) {
  Layer& layer = layers_[number];
  const std::int64_t have = layer.key.size(0);
  if (layer.used + rows <= have) return;
  const std::int64_t want = std::max(layer.used + rows, have + have / 2);
  const auto grow = [&](at::Tensor& tensor) {
    at::Tensor larger = at::empty({want, config_.head_dim}, options_);
    larger.narrow(0, 0, layer.used).copy_(tensor.narrow(0, 0, layer.used));
    tensor = larger;
  };
  grow(layer.key);
  grow(layer.value);
}

std::vector<CopiedRows> CacheCopies::add(std::int64_t layer, const capture::Sequence::Cache& from,
                                         const std::vector<std::vector<std::int64_t>>& tokens) {
  std::vector<CopiedRows> out(tokens.size());
  std::int64_t rows = 0;
  for (const auto& of_head : tokens) rows += std::ssize(of_head);
  if (rows == 0) return out;
  Layer& to = layers_[layer];
  reserve(layer, rows);
  const at::Tensor key = capture::tensor_of(from.key), value = capture::tensor_of(from.value);
  for (std::size_t g = 0; g < tokens.size(); ++g) {
    if (tokens[g].empty()) continue;
    out[g] = {to.used, std::make_shared<const std::vector<std::int64_t>>(tokens[g])};
    const at::Tensor which = at::tensor(tokens[g], at::kLong).to(options_.device());
    const auto copy = [&](const at::Tensor& all, const at::Tensor& target) {
      at::Tensor place = target.narrow(0, to.used, which.size(0));
      at::index_select_out(place, all.select(0, static_cast<std::int64_t>(g)), 0, which);
    };
    copy(key, to.key);
    copy(value, to.value);
    to.used += which.size(0);
  }
  return out;
}

std::int64_t CacheCopies::take(std::int64_t layer, std::int64_t rows) {
  reserve(layer, rows);
  const std::int64_t start = layers_[layer].used;
  layers_[layer].used += rows;
  return start;
}

void CacheCopies::write(std::int64_t layer, std::int64_t start, const at::Tensor& keys,
                        const at::Tensor& values) {
  const Layer& to = layers_[layer];
  to.key.narrow(0, start, keys.size(0)).copy_(keys);
  to.value.narrow(0, start, values.size(0)).copy_(values);
}

CopiedRows CacheCopies::duplicate(std::int64_t layer, const CopiedRows& rows) {
  if (rows.length() == 0) return rows;
  const CopiedRows out{take(layer, rows.length()), rows.tokens};
  const Layer& of = layers_[layer];
  write(layer, out.start, of.key.narrow(0, rows.start, rows.length()),
        of.value.narrow(0, rows.start, rows.length()));
  return out;
}

}  // namespace kvatlas::calibrate
