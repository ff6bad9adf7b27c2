// SPDX-License-Identifier: Apache-2.0
// What a budget that holds while decoding means (docs/decoding.md), in double.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include <ATen/core/Tensor.h>

#include "analyzer/config/rope.hpp"
#include "calibrate/simulate/held_heads_impl.hpp"
#include "tests/property/naive_decode.hpp"

namespace kvatlas::calibrate {
namespace {

using By = Decoding::By;
using Positions = std::vector<std::int64_t>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

std::vector<double> softmax(std::vector<double> values) {
  const double most = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - most);
  for (double& value : values) value /= sum;
  return values;
}

}  // namespace

std::vector<std::vector<double>> NaiveDecode::attention(std::int64_t layer, std::int64_t h,
                                                        std::int64_t rows,
                                                        const Positions& positions) const {
  const Shown& shown = shown_[index(layer)];
  const auto& keys = heads_[index(layer * config_.n_heads + h)].key;
  std::vector<Row> out;
  for (std::int64_t back = rows - 1; back >= 0; --back) {
    const Row& query = shown.queries[shown.queries.size() - index(back) - 1][index(h)];
    Row row;
    double sum = shown.sinks.empty() ? 0 : std::exp(shown.sinks[index(h)]);
    for (const auto j : positions) {
      double score = dot(query, keys[index(j)]) * shown.scale;
      if (shown.softcap > 0) score = shown.softcap * std::tanh(score / shown.softcap);
      row.push_back(j < position_ - back ? std::exp(score) : 0);
      sum += row.back();
    }
    for (double& weight : row) weight = sum > 0 ? weight / sum : 0;  // it may see none of them
    out.push_back(std::move(row));
  }
  return out;
}

/// The largest score of the query heads, a softmax over the positions before the window, the mean
/// over the rows, and the largest of the neighbours.
std::vector<double> NaiveDecode::importance(std::int64_t layer, std::int64_t g,
                                            const Positions& positions) const {
  const Decoding& part = *plan_.decoding;
  const Shown& shown = shown_[index(layer)];
  const std::size_t before = positions.size() - index(part.window);
  Row mean(before, 0.0), pooled;
  for (std::int64_t back = 0; back < part.window; ++back) {
    Row scores;
    for (std::size_t i = 0; i < before; ++i) {
      double most = -1e300;
      for (std::int64_t h = g * group_; h < (g + 1) * group_; ++h) {
        const Row& query = shown.queries[shown.queries.size() - index(back) - 1][index(h)];
        double score =
            dot(query, heads_[index(layer * config_.n_heads + h)].key[index(positions[i])]) *
            shown.scale;
        if (shown.softcap > 0) score = shown.softcap * std::tanh(score / shown.softcap);
        most = std::max(most, score);
      }
      scores.push_back(most);
    }
    const Row row = softmax(scores);
    for (std::size_t i = 0; i < before; ++i) mean[i] += row[i] / static_cast<double>(part.window);
  }
  for (std::int64_t i = 0; i < std::ssize(mean); ++i) {
    const auto from = std::max<std::int64_t>(0, i - part.kernel / 2),
               to = std::min<std::int64_t>(std::ssize(mean), i + part.kernel / 2 + 1);
    pooled.push_back(*std::max_element(mean.begin() + from, mean.begin() + to));
  }
  return pooled;
}

std::vector<double> NaiveDecode::redundancy(std::int64_t layer, std::int64_t g,
                                            const Positions& positions) const {
  const auto& keys = heads_[index(layer * config_.n_heads + g * group_)].key;
  Row mean(positions.size(), 0.0);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    Row like;
    std::size_t last = positions.size();
    for (std::size_t j = 0; j < positions.size(); ++j) {
      like.push_back(i == j ? 0 : cosine(keys[index(positions[i])], keys[index(positions[j])]));
      if (like.back() > 0.5) last = j;
    }
    if (last < like.size()) like[last] = 0;
    for (std::size_t j = 0; j < like.size(); ++j)
      mean[j] += like[j] / static_cast<double>(positions.size());
  }
  return softmax(mean);
}

std::vector<double> NaiveDecode::choice_scores(std::int64_t layer, std::int64_t g,
                                               const Positions& positions) {
  const Decoding& part = *plan_.decoding;
  const auto& keys = heads_[index(layer * config_.n_heads + g * group_)].key;
  Row scores(positions.size(), 0.0);
  const auto add_attention = [&](std::int64_t first, std::int64_t end, std::int64_t rows) {
    for (std::int64_t h = first; h < end; ++h)
      for (const Row& row : attention(layer, h, rows, positions))
        for (std::size_t i = 0; i < row.size(); ++i)
          scores[i] += row[i] / static_cast<double>(end - first);
  };
  switch (part.by) {
    case By::snapkv: {
      add_attention(g * group_, (g + 1) * group_, part.window);
      scores.resize(scores.size() - index(part.window));
      Row pooled(scores.size(), 0.0);
      for (std::int64_t i = 0; i < std::ssize(scores); ++i)
        for (std::int64_t k = -part.kernel / 2; k <= part.kernel / 2; ++k)
          if (i + k >= 0 && i + k < std::ssize(scores)) pooled[index(i)] += scores[index(i + k)];
      return pooled;
    }
    case By::tova:
      for (std::int64_t of = 0; of < config_.n_kv_heads; ++of)
        if (plan_.cut_heads[index(layer)][index(of)] != 0)
          add_attention(of * group_, (of + 1) * group_, 1);
      break;
    case By::h2o: {
      auto& mass = mass_[index(layer * config_.n_kv_heads + g)];
      for (std::size_t i = 0; i < positions.size(); ++i) scores[i] = mass[positions[i]];
      add_attention(g * group_, (g + 1) * group_, part.every);
      for (std::size_t i = 0; i < positions.size(); ++i) mass[positions[i]] = scores[i];
      break;
    }
    case By::keydiff: {
      Row mean(keys.front().size(), 0.0);
      for (const auto j : positions)
        for (std::size_t c = 0; c < mean.size(); ++c)
          mean[c] += keys[index(j)][c] / std::sqrt(dot(keys[index(j)], keys[index(j)]));
      for (std::size_t i = 0; i < positions.size(); ++i)
        scores[i] = -cosine(keys[index(positions[i])], mean);
      break;
    }
    case By::l2:
      for (std::size_t i = 0; i < positions.size(); ++i)
        // Equal tokens have keys of equal length in the first layer, but for their rounding.
        scores[i] = -static_cast<float>(
            std::sqrt(dot(keys[index(positions[i])], keys[index(positions[i])])));
      break;
    case By::rkv: {
      scores = importance(layer, g, positions);
      const Row like = redundancy(layer, g, positions);
      for (std::size_t i = 0; i < scores.size(); ++i)
        scores[i] = part.lambda * scores[i] - (1 - part.lambda) * like[i];
      break;
    }
    case By::triattention: {
      std::fill(scores.begin(), scores.end(), -1e300);
      for (std::int64_t h = g * group_; h < (g + 1) * group_; ++h) {
        const Row of_head = expected_attention(layer, h, positions);
        const auto count = static_cast<double>(of_head.size());
        const double mean = std::accumulate(of_head.begin(), of_head.end(), 0.0) / count;
        double squares = 0;
        for (const double score : of_head) squares += (score - mean) * (score - mean) / count;
        for (std::size_t i = 0; i < scores.size(); ++i)
          scores[i] = std::max(scores[i], (of_head[i] - mean) / std::sqrt(squares));
      }
      break;
    }
    case By::streaming:
      for (std::size_t i = 0; i < positions.size(); ++i) scores[i] = -static_cast<double>(i);
      break;
  }
  return scores;
}

/// TriAttention's trigonometric series, by the angle between the mean query and each key before
/// RoPE.
std::vector<double> NaiveDecode::expected_attention(std::int64_t layer, std::int64_t h,
                                                    const Positions& positions) const {
  const auto& keys = heads_[index(layer * config_.n_heads + h)].key;
  const MeanQueries& mean = (*plan_.mean_queries)[index(layer)];
  const auto number = [](const at::Tensor& of, std::int64_t row, std::size_t column) {
    return of[row][static_cast<std::int64_t>(column)].item<double>();
  };
  const bool local = config_.window[index(layer)] > 0 && config_.local_rope;
  model::RopeFrequencies rope;
  if (config_.has_rope(layer))
    rope = model::rope_frequencies(local ? *config_.local_rope : config_.rope,
                                   local ? config_.local_rotary_dim : config_.rotary_dim,
                                   config_.context_length, position_);
  const std::size_t pairs = rope.inverse_frequency.size();
  Row scores;
  for (const auto j : positions) {
    const Row& key = keys[index(j)];
    double score = 0;
    for (std::size_t c = 2 * pairs; c < key.size(); ++c) score += number(mean.query, h, c) * key[c];
    for (std::size_t f = 0; f < pairs; ++f) {
      const double frequency = static_cast<double>(rope.inverse_frequency[f]);
      const std::complex<double> query(number(mean.query, h, f), number(mean.query, h, f + pairs)),
          turned(key[f], key[f + pairs]),
          before = turned * std::polar(1.0, -static_cast<double>(j) * frequency);
      const double angle = std::arg(query * std::conj(before));
      const double scale = static_cast<double>(rope.scale);
      for (std::int64_t power = 0; power <= 16; ++power) {
        const double distance = static_cast<double>(position_ - j + (std::int64_t{1} << power));
        score += scale * std::abs(query) * std::abs(before) *
                 std::cos(distance * frequency + angle) / 17;
      }
      score += scale * (number(mean.magnitude, h, f) - std::abs(query)) * std::abs(before);
    }
    scores.push_back(score);
  }
  return scores;
}

void NaiveDecode::choose(std::int64_t layer) {
  const Decoding& part = *plan_.decoding;
  const std::int64_t first = shown_[index(layer)].window.first_key(position_ - 1);
  for (std::int64_t g = 0; g < config_.n_kv_heads; ++g) {
    if (plan_.cut_heads[index(layer)][index(g)] == 0) continue;
    Positions seen = head(layer, g * group_).held;
    std::erase_if(seen, [&](std::int64_t j) { return j < first; });
    const bool counts = part.by == By::h2o;
    if (std::ssize(seen) > part.budget || counts) {
      const Row scores = choice_scores(layer, g, seen);
      const std::int64_t last = part.kept_last(), best = part.budget - last;
      if (std::ssize(seen) > part.budget) {
        std::vector<std::size_t> order(seen.size() - index(last));
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return scores[a] > scores[b]; });
        Positions kept(seen.end() - last, seen.end());
        for (std::int64_t i = 0; i < best; ++i) kept.push_back(seen[order[index(i)]]);
        std::sort(kept.begin(), kept.end());
        seen = kept;
      }
    }
    for (std::int64_t h = g * group_; h < (g + 1) * group_; ++h) head(layer, h).held = seen;
  }
  shown_[index(layer)].queries.clear();
}

}  // namespace kvatlas::calibrate
