// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/cache_copies_impl.hpp"
#include "kernels/gather.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::view_of;

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
  std::vector<std::int64_t> positions, offsets{0}, starts;
  for (const auto& of_head : tokens)
    positions.insert(positions.end(), of_head.begin(), of_head.end());
  if (positions.empty()) return out;
  Layer& to = layers_[layer];
  reserve(layer, static_cast<std::int64_t>(positions.size()));
  for (std::size_t g = 0; g < tokens.size(); ++g) {
    starts.push_back(to.used + offsets.back());
    offsets.push_back(offsets.back() + static_cast<std::int64_t>(tokens[g].size()));
    if (!tokens[g].empty())
      out[g] = {starts.back(), std::make_shared<const std::vector<std::int64_t>>(tokens[g])};
  }
  const auto on_device = [&](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::kLong).to(options_.device());
  };
  const at::Tensor where = on_device(positions), parts = on_device(offsets),
                   first = on_device(starts);
  const auto copy = [&](const AnyView<3>& rows, const at::Tensor& target) {
    kernels::gather({rows, view_of<const std::int64_t, 1>(where),
                     view_of<const std::int64_t, 1>(parts), view_of<const std::int64_t, 1>(first),
                     target.mutable_data_ptr(), target.size(0)});
  };
  copy(from.key, to.key);
  copy(from.value, to.value);
  to.used += offsets.back();
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
