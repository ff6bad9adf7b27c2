// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

Similarity mean_similarity(std::span<const std::vector<float>> samples, std::int64_t heads,
                           std::int64_t layers) {
  const auto count = static_cast<std::size_t>(heads * layers * layers);
  if (samples.empty()) fail(ErrorCode::internal, "a similarity needs a sample");
  Similarity out{heads, layers, std::vector<double>(count, 0)};
  Eigen::Map<Eigen::ArrayXd> values(out.values.data(), heads * layers * layers);
  for (const auto& of_sample : samples) {
    if (of_sample.size() != count)
      fail(ErrorCode::internal, "a sample of ", of_sample.size(), " numbers, expected ", count);
    values += Eigen::Map<const Eigen::ArrayXf>(of_sample.data(), values.size()).cast<double>();
  }
  values /= static_cast<double>(samples.size());
  return out;
}

Similarity layer_similarity(std::span<const std::vector<float>> divergences, std::int64_t heads,
                            std::int64_t layers) {
  Similarity out = mean_similarity(divergences, heads, layers);
  for (double& value : out.values) value = 1 - value;
  return out;
}

Similarity of_kv_heads(const Similarity& similarity, std::int64_t kv_heads) {
  const std::int64_t pairs = similarity.layers * similarity.layers;
  const std::int64_t group = similarity.heads / kv_heads;
  Similarity out{kv_heads, similarity.layers,
                 std::vector<double>(static_cast<std::size_t>(kv_heads * pairs))};
  // A column a head, for the pairs of a head lie beside each other.
  const Eigen::Map<const Eigen::ArrayXXd> of_heads(similarity.values.data(), pairs,
                                                   similarity.heads);
  Eigen::Map<Eigen::ArrayXXd> smallest(out.values.data(), pairs, kv_heads);
  for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head)
    smallest.col(kv_head) = of_heads.middleCols(kv_head * group, group).rowwise().minCoeff();
  return out;
}

Blocks layer_blocks(const Similarity& similarity, double delta) {
  Blocks blocks;
  for (std::int64_t head = 0; head < similarity.heads; ++head) {
    auto& lowest = blocks.emplace_back();
    std::int64_t first = 0;
    for (std::int64_t layer = 0; layer < similarity.layers; ++layer) {
      for (std::int64_t member = first; member < layer; ++member)
        if (!(similarity.at(head, layer, member) >= delta)) {
          first = layer;
          break;
        }
      lowest.push_back(first);
    }
  }
  return blocks;
}

Blocks for_query_heads(const Blocks& blocks, std::int64_t heads) {
  Blocks out;
  const std::size_t group = static_cast<std::size_t>(heads) / blocks.size();
  for (const auto& lowest : blocks) out.insert(out.end(), group, lowest);
  return out;
}

std::int64_t count_blocks(const Blocks& blocks) {
  std::int64_t count = 0;
  for (const auto& lowest : blocks)
    for (std::size_t layer = 0; layer < lowest.size(); ++layer)
      count += lowest[layer] == static_cast<std::int64_t>(layer);
  return count;
}

std::vector<double> keys_dropped(const Blocks& blocks, std::int64_t kv_heads) {
  std::vector<double> dropped(blocks.empty() ? 0 : blocks.front().size(), 0);
  const std::size_t group = blocks.size() / static_cast<std::size_t>(kv_heads);
  for (std::size_t first = 0; first < blocks.size(); first += group)
    for (std::size_t layer = 0; layer < dropped.size(); ++layer)
      // A lowest layer reads itself, so some head reads the layer iff it is the lowest of a block.
      dropped[layer] += std::none_of(
          blocks.begin() + static_cast<std::ptrdiff_t>(first),
          blocks.begin() + static_cast<std::ptrdiff_t>(first + group),
          [&](const auto& lowest) { return lowest[layer] == static_cast<std::int64_t>(layer); });
  for (double& share : dropped) share /= static_cast<double>(kv_heads);
  return dropped;
}

Blocks pod_blocks(const Similarity& similarity, std::int64_t kv_heads, bool per_query_head,
                  double delta) {
  if (per_query_head) return layer_blocks(similarity, delta);
  return for_query_heads(layer_blocks(of_kv_heads(similarity, kv_heads), delta), similarity.heads);
}

PodPoint pod_point(double delta, const Blocks& blocks, std::int64_t kv_heads) {
  auto dropped = keys_dropped(blocks, kv_heads);
  const double share = dropped.empty() ? 0 : mean_of(dropped);
  return {delta, share, count_blocks(blocks), std::move(dropped)};
}

PodPoint pod_point(const Similarity& similarity, std::int64_t kv_heads, bool per_query_head,
                   double delta) {
  return pod_point(delta, pod_blocks(similarity, kv_heads, per_query_head, delta), kv_heads);
}

std::vector<PodPoint> pod_hundredths(const Similarity& similarity, std::int64_t kv_heads,
                                     bool per_query_head) {
  const Similarity grouped = per_query_head ? similarity : of_kv_heads(similarity, kv_heads);
  std::vector<PodPoint> points;
  for (int hundredths = 0; hundredths <= 100; ++hundredths) {
    const double delta = hundredths / 100.0;
    const Blocks blocks = for_query_heads(layer_blocks(grouped, delta), similarity.heads);
    points.push_back(pod_point(delta, blocks, kv_heads));
  }
  return points;
}

std::optional<double> delta_for(std::span<const PodPoint> ascending, const CacheShape& shape,
                                std::int64_t n_tokens, kernels::Proximity proximal, double saved) {
  for (auto point = ascending.rbegin(); point != ascending.rend(); ++point)
    // A saving that was printed or typed may be the same but for its last bit.
    if (pod_saved(point->layers, shape, n_tokens, proximal) >= saved - 1e-12) return point->delta;
  return std::nullopt;
}

double log_sum_exp(std::span<const double> values) {
  const double most = values.empty() ? -std::numeric_limits<double>::infinity()
                                     : *std::max_element(values.begin(), values.end());
  if (std::isinf(most)) return most;
  double sum = 0;
  for (const double value : values) sum += std::exp(value - most);
  return most + std::log(sum);
}

double gate_of(double proximal, double distant) { return 1 / (1 + std::exp(distant - proximal)); }

void GateCurve::add(const GateRows& in) {
  const auto at = [&](std::int64_t layer, std::int64_t head, std::int64_t row) {
    return static_cast<std::size_t>((layer * in.heads + head) * in.rows + row);
  };
  for (std::int64_t layer = 0; layer < in.layers; ++layer)
    for (std::int64_t head = 0; head < in.heads; ++head) {
      const std::int64_t lowest = blocks_[head][layer];
      for (std::int64_t row = 0; row < in.rows; ++row) {
        const double proximal = in.proximal[at(layer, head, row)];
        const double distant = in.distant[at(lowest, head, row)];
        if (std::isnan(proximal) || std::isnan(distant) || std::isinf(distant)) continue;
        ++counted_;
        if (lowest == layer) continue;
        const double gate = gate_of(proximal, distant);
        ++upper_[static_cast<std::size_t>(gate * kBins)];
      }
    }
}

double GateCurve::skipped(double tau) const {
  if (counted_ == 0) return std::numeric_limits<double>::quiet_NaN();
  if (tau >= 1) return 0;
  const auto first = static_cast<std::ptrdiff_t>(std::ceil(tau * kBins - 1e-9));
  std::int64_t skipping = 0;
  for (auto bin = upper_.begin() + std::max<std::ptrdiff_t>(0, first); bin != upper_.end(); ++bin)
    skipping += *bin;
  return static_cast<double>(skipping) / static_cast<double>(counted_);
}

}  // namespace kvatlas::calibrate
