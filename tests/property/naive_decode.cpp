// SPDX-License-Identifier: Apache-2.0
#include "tests/property/naive_decode.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/half.hpp"
#include "kernels/kv_quant.hpp"
#include "tests/property/round_row.hpp"
#include "tests/support/slerp.hpp"

namespace kvatlas::calibrate {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A row of a float32 array.
std::vector<double> row_of(const AnyView<3>& from, std::int64_t a, std::int64_t b) {
  const View<const float, 3> view(static_cast<const float*>(from.data), from.sizes, from.strides);
  std::vector<double> row;
  for (std::int64_t i = 0; i < from.sizes[2]; ++i) row.push_back(view(a, b, i));
  return row;
}

std::vector<float> flat(const std::vector<std::vector<double>>& rows,
                        const std::vector<std::int64_t>& which) {
  std::vector<float> out;
  for (const auto j : which)
    for (const double value : rows[at(j)]) out.push_back(static_cast<float>(value));
  return out;
}

void put_back(std::vector<std::vector<double>>& rows, const std::vector<std::int64_t>& which,
              const std::vector<float>& values) {
  auto next = values.begin();
  for (const auto j : which)
    for (double& value : rows[at(j)]) value = *next++;
}

constexpr Exec kReference{.backend = kvatlas::Backend::reference};

}  // namespace

NaiveDecode::NaiveDecode(capture::Engine& engine, const capture::Sequence& prompt,
                         std::int64_t n_tokens, const Plan& plan)
    : engine_(engine),
      config_(engine.model().config()),
      plan_(plan),
      group_(config_.n_heads / config_.n_kv_heads),
      first_(n_tokens + plan.delay),
      position_(first_),
      coded_(std::max<std::int64_t>(0, first_ - plan.kv_residual)),
      heads_(at(config_.n_layers * config_.n_heads)),
      queries_(at(config_.n_layers)),
      shown_(at(config_.n_layers)),
      mass_(at(config_.n_layers * config_.n_kv_heads)) {
  if (engine.has_layer_states()) states_ = prompt.layer_states(first_);
  for (std::int64_t layer = 0; layer < config_.n_layers; ++layer) {
    const auto cache = prompt.cache(layer);
    for (std::int64_t h = 0; h < config_.n_heads; ++h) {
      Head& to = head(layer, h);
      const std::int64_t g = h / group_;
      const HeadCut& kept = plan.heads[at(layer)][at(g)];
      const auto& tokens =
          kept.by_query_head.empty() ? kept.tokens : kept.by_query_head[at(h % group_)];
      to.window = kept.window;
      to.rolling = kept.rolling;
      for (std::int64_t j = 0; j < first_; ++j) {
        to.key.push_back(row_of(cache.key, g, j));
        to.value.push_back(row_of(cache.value, g, j));
        bool holds = std::find(tokens.begin(), tokens.end(), j) != tokens.end();
        for (const auto& range : kept.ranges) holds |= range.begin <= j && j < range.end;
        if (holds) to.held.push_back(j);
      }
      for (std::size_t i = 0; i < kept.mass.size(); ++i)
        mass_[at(layer * config_.n_kv_heads + g)][to.held[i]] = kept.mass[i];
    }
  }
  if (plan.minicache)
    for (std::int64_t layer = config_.n_layers / 2; layer + 1 < config_.n_layers; layer += 2)
      for (std::int64_t h = 0; h < config_.n_heads; ++h) merge(head(layer, h), head(layer + 1, h));
  if (plan.shared_values)
    for (std::int64_t layer = config_.n_layers - 1; layer >= 0; --layer)  // the lowest is read last
      for (std::int64_t h = 0; h < config_.n_heads; ++h)
        share_values(layer, h, plan.shared_values->lowest[at(h / group_)][at(layer)]);
  quantise_all(0, coded_);
}

void NaiveDecode::share_values(std::int64_t layer, std::int64_t h, std::int64_t lowest) {
  if (lowest == layer) return;
  const auto length = [](const Row& row) {
    return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
  };
  for (std::int64_t j = 0; j < first_ - plan_.shared_values->recent; ++j) {
    Row& own = head(layer, h).value[at(j)];
    const Row& taken = head(lowest, h).value[at(j)];
    const double factor = length(own) / length(taken);
    for (std::size_t c = 0; c < own.size(); ++c) own[c] = factor * taken[c];
  }
}

void NaiveDecode::quantise_all(std::int64_t begin, std::int64_t end) {
  if (plan_.formats.empty()) return;
  for (std::size_t i = 0; i < heads_.size(); ++i) quantise(i, begin, end);
}

void NaiveDecode::quantise(std::size_t number, std::int64_t begin, std::int64_t end) {
  Head& head = heads_[number];
  const auto d = config_.head_dim;
  const auto run = [&](std::vector<Row>& rows, KvFormat format, kernels::QuantAxis axis) {
    // What is generated is rounded as it comes where a token is rounded by itself.
    if (format == KvFormat::f16 || (facts_of(format).by_token && begin >= first_)) return;
    std::vector<std::int64_t> held;
    for (const auto j : head.held)
      if (begin <= j && j < end) held.push_back(j);
    if (held.empty()) return;
    if (facts_of(format).by_token) {
      for (const auto j : held) round_row(rows[at(j)], format);
      return;
    }
    const auto n = static_cast<std::int64_t>(held.size());
    const int bits = format == KvFormat::int4 ? 4 : 2;
    std::vector<float> values = flat(rows, held);
    std::vector<std::uint8_t> codes(at(n * kernels::quant_code_bytes(d, bits)));
    const std::array<std::int64_t, 3> shape =
        axis == kernels::QuantAxis::per_channel
            ? std::array<std::int64_t, 3>{1, kernels::quant_groups(n), d}
            : std::array<std::int64_t, 3>{1, n, kernels::quant_groups(d)};
    std::vector<std::uint16_t> scales(at(shape[1] * shape[2])), minima(scales.size());
    const kernels::QuantisedCache cache{bits,
                                        axis,
                                        {codes.data(), {1, n, kernels::quant_code_bytes(d, bits)}},
                                        {scales.data(), shape},
                                        {minima.data(), shape}};
    kernels::kv_quantise({View<float, 3>(values.data(), {1, n, d}), cache}, kReference);
    kernels::kv_dequantise({cache, {values.data(), {1, n, d}}}, kReference);
    put_back(rows, held, values);
  };
  run(head.key, formats_of(number).keys, kernels::QuantAxis::per_channel);
  run(head.value, formats_of(number).values, kernels::QuantAxis::per_token);
}

void NaiveDecode::merge(Head& lower, Head& upper) const {
  const auto angle = [](const Row& a, const Row& b) {
    const auto dot = [](const Row& x, const Row& y) {
      return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
    };
    return std::acos(std::clamp(dot(a, b) / std::sqrt(dot(a, a) * dot(b, b)), -1.0, 1.0));
  };
  const auto run = [&](std::vector<Row>& a, std::vector<Row>& b) {
    std::vector<std::pair<double, std::int64_t>> by_angle;
    for (const auto j : lower.held) by_angle.emplace_back(-angle(a[at(j)], b[at(j)]), j);
    std::sort(by_angle.begin(), by_angle.end());
    std::vector<std::int64_t> merged;
    for (std::size_t i = at(plan_.minicache->retain); i < by_angle.size(); ++i)
      merged.push_back(by_angle[i].second);
    for (const auto j : merged) {
      const auto [below, above] = testing_support::slerp(a[at(j)], b[at(j)], plan_.minicache->t);
      a[at(j)] = below;
      b[at(j)] = above;
    }
  };
  run(lower.key, upper.key);
  run(lower.value, upper.value);
}

std::int64_t NaiveDecode::lowest(std::int64_t layer, std::int64_t h) const {
  return plan_.pod ? plan_.pod->lowest[at(h)][at(layer)] : layer;
}

bool NaiveDecode::distant(std::int64_t j) const {
  return plan_.pod && j >= plan_.pod->proximal.initial &&
         j <= position_ - plan_.pod->proximal.recent;
}

double NaiveDecode::score(const Row& query, const Row& key,
                          const capture::ContinuationRows& in) const {
  const double dot = std::inner_product(query.begin(), query.end(), key.begin(), 0.0) * in.scale;
  return in.softcap > 0 ? in.softcap * std::tanh(dot / in.softcap) : dot;
}

/// The pages that Quest reads, and what was generated.
std::vector<std::int64_t> NaiveDecode::quest_tokens(const capture::ContinuationRows& in,
                                                    std::int64_t g,
                                                    const std::vector<Row>& queries) {
  const auto& keys = head(in.layer, g * group_).key;
  std::vector<std::pair<double, std::int64_t>> pages;  // minus the bound, page
  const std::int64_t page = plan_.quest->page;
  const std::int64_t begin = in.window.first_key(position_);
  for (std::int64_t from = 0; from < first_; from += page) {
    const std::int64_t to = std::min(from + page, first_);
    if (to <= begin) continue;  // this layer sees none of it
    double bound = 0;
    for (std::int64_t h = g * group_; h < (g + 1) * group_; ++h)
      for (std::size_t i = 0; i < keys.front().size(); ++i) {
        double most = -1e300;
        for (std::int64_t j = from; j < to; ++j)
          most = std::max(most, queries[at(h)][i] * keys[at(j)][i]);
        bound += most;
      }
    pages.emplace_back(-bound, from / page);
  }
  std::sort(pages.begin(), pages.end());
  pages.resize(std::min(pages.size(), at(std::max<std::int64_t>(1, plan_.quest->budget / page))));
  std::vector<std::int64_t> tokens;
  for (const auto& [bound, number] : pages)
    for (std::int64_t j = number * page; j < std::min((number + 1) * page, first_); ++j)
      tokens.push_back(j);
  for (std::int64_t j = first_; j <= position_; ++j) tokens.push_back(j);
  return tokens;
}

void NaiveDecode::attend(const capture::ContinuationRows& in) {
  const std::int64_t layer = in.layer;
  for (std::int64_t h = 0; h < config_.n_heads; ++h) {
    Head& to = head(layer, h);
    to.key.push_back(row_of(in.key, 0, h / group_));
    to.value.push_back(row_of(in.value, 0, h / group_));
    to.held.push_back(position_);
    forget(to);
    const KvFormats formats = plan_.formats_of(layer);
    if (facts_of(formats.keys).by_token) round_row(to.key.back(), formats.keys);
    if (facts_of(formats.values).by_token) round_row(to.value.back(), formats.values);
  }
  auto& queries = queries_[at(layer)];
  queries.clear();
  for (std::int64_t h = 0; h < config_.n_heads; ++h) queries.push_back(row_of(in.query, 0, h));
  Shown& shown = shown_[at(layer)];
  shown.scale = in.scale;
  shown.softcap = in.softcap;
  shown.window = in.window;
  shown.sinks.clear();
  for (std::int64_t h = 0; in.sinks.data && h < config_.n_heads; ++h)
    shown.sinks.push_back(in.sinks(h));
  shown.queries.push_back(queries);

  const auto in_window = [&](std::int64_t j) { return j >= in.window.first_key(position_); };
  for (std::int64_t h = 0; h < config_.n_heads; ++h) {
    const std::int64_t g = h / group_, from = lowest(layer, h);
    const Head &own = head(layer, h), &low = head(from, h);
    std::vector<Scored> near, far;
    for (const auto j : plan_.quest ? quest_tokens(in, g, queries) : own.held)
      if (in_window(j) && !distant(j))
        near.push_back({score(queries[at(h)], own.key[at(j)], in), &own.value[at(j)]});
    for (const auto j : low.held) {
      // Where a window has trimmed this layer, it has no values of the tokens between.
      const bool has_value = !own.window || own.in_window(j, own.rolling ? position_ : first_ - 1);
      if (in_window(j) && distant(j) && has_value)
        far.push_back({score(queries_[at(from)][at(h)], low.key[at(j)], in), &own.value[at(j)]});
    }

    const auto sum = [](const std::vector<Scored>& of) {
      double total = 0;
      for (const auto& one : of) total += std::exp(one.score);
      return total;
    };
    // A sink counts as near, and gives nothing.
    const double of_sink = in.sinks.data ? std::exp(static_cast<double>(in.sinks(h))) : 0;
    const double of_near = sum(near) + of_sink;
    if (plan_.pod && plan_.pod->tau < 1 && !far.empty()) {
      ++gates;
      if (from != layer && of_near / (of_near + sum(far)) >= plan_.pod->tau) {
        ++skipped;
        far.clear();
      }
    }
    const double total = of_near + sum(far);
    Row out(at(config_.head_dim), 0.0);
    for (const auto* of : {&near, &far})
      for (const auto& one : *of)
        for (std::size_t i = 0; i < out.size(); ++i)
          out[i] += std::exp(one.score) / total * (*one.value)[i];
    for (std::size_t i = 0; i < out.size(); ++i)
      in.out(0, h, static_cast<std::int64_t>(i)) = static_cast<float>(out[i]);
  }
}

bool NaiveDecode::Head::in_window(std::int64_t j, std::int64_t last) const {
  return j < window->initial || j > last - window->recent;
}

/// A window that rolls.
void NaiveDecode::forget(Head& head) const {
  if (!head.rolling) return;
  std::erase_if(head.held, [&](std::int64_t j) { return !head.in_window(j, position_); });
}

/// LagKV: the last but one partition against the last one.
void NaiveDecode::cut(Head& head) const {
  const auto& lag = *plan_.lag;
  const auto L = lag.lag, total = static_cast<std::int64_t>(head.held.size());
  const auto scores_of = [&](const std::vector<Row>& rows) {
    const std::int64_t from = total - 2 * L,
                       against = lag.variant == LagVariant::lag ? from + L : from;
    std::vector<double> deviations(at(L));
    for (std::int64_t t = 0; t < L; ++t) {
      const Row& row = rows[at(head.held[at(from + t)])];
      std::vector<double> x;
      for (std::size_t c = 0; c < row.size(); ++c) {
        double least = 1e300, most = -1e300;
        for (std::int64_t u = 0; u < L; ++u) {
          const double value = rows[at(head.held[at(against + u)])][c];
          least = std::min(least, value);
          most = std::max(most, value);
        }
        x.push_back(most > least ? (row[c] - least) / (most - least) : 0);
      }
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
      double squares = 0;
      for (const double value : x) squares += (value - mean) * (value - mean);
      deviations[at(t)] = std::exp(std::sqrt(squares / static_cast<double>(x.size() - 1)));
    }
    const double sum = std::accumulate(deviations.begin(), deviations.end(), 0.0);
    for (double& value : deviations) value /= sum;
    return deviations;
  };
  std::vector<double> scores(at(L));
  if (lag.variant == LagVariant::l2) {
    for (std::int64_t t = 0; t < L; ++t) {
      const Row& key = head.key[at(head.held[at(total - 2 * L + t)])];
      scores[at(t)] = -std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0));
    }
  } else {
    const auto values = scores_of(head.value);
    scores = scores_of(head.key);
    for (std::size_t t = 0; t < scores.size(); ++t) scores[t] += values[t];
  }
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return scores[at(a)] > scores[at(b)]; });
  order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(lag.keep()));
  std::sort(order.rbegin(), order.rend());
  for (const auto t : order) head.held.erase(head.held.begin() + (total - 2 * L + t));
}

std::vector<float> NaiveDecode::step(std::int64_t token) {
  std::vector<float> logits;
  capture::ContinuationStep step{{token}, position_};
  if (engine_.has_layer_states()) step.states.push_back(&states_);
  step.attention = [&](const capture::ContinuationRows& in) { attend(in); };
  step.logits = [&](std::int64_t, View<const float, 2> rows) {
    logits.assign(rows.data, rows.data + rows.sizes[1]);
  };
  engine_.run_continuations({&step, 1});
  ++position_;
  if (plan_.lag && position_ >= plan_.lag->sink + 2 * plan_.lag->lag &&
      (position_ - plan_.lag->sink) % plan_.lag->lag == 0)
    for (std::int64_t layer = 0; layer < config_.n_layers; ++layer)
      for (std::int64_t h = 0; h < config_.n_heads; ++h)
        if (plan_.cut_heads[at(layer)][at(h / group_)] != 0) cut(head(layer, h));
  if (plan_.decoding && (position_ - first_) % plan_.decoding->every == 0)
    for (std::int64_t layer = 0; layer < config_.n_layers; ++layer) choose(layer);
  for (; position_ - plan_.kv_residual - coded_ >= 32; coded_ += 32)
    quantise_all(coded_, coded_ + 32);
  return logits;
}

double NaiveDecode::stored_bytes() const {
  double bytes = 0;
  for (std::int64_t i = 0; i < std::ssize(heads_); ++i) {
    const auto& cut = plan_.heads[at(i / config_.n_heads)][at(i % config_.n_heads / group_)];
    if (i % group_ != 0 && cut.by_query_head.empty()) continue;
    for (const auto j : in_reach(at(i)))
      for (const KvSide side : {KvSide::keys, KvSide::values}) {
        const KvFormats formats = formats_of(at(i));
        const KvFormat format = side == KvSide::keys ? formats.keys : formats.values;
        const bool coded = j < coded_ || facts_of(format).by_token;
        bytes += bytes_of_row(coded ? format : KvFormat::f16, side, config_.head_dim);
      }
  }
  return bytes;
}

std::vector<std::int64_t> NaiveDecode::in_reach(std::size_t i) const {
  const std::int64_t window = config_.window[i / at(config_.n_heads)];
  std::vector<std::int64_t> out;
  for (const auto j : heads_[i].held)
    if (window == 0 || j >= position_ - window) out.push_back(j);
  return out;
}

std::vector<std::int64_t> NaiveDecode::lengths() const {
  std::vector<std::int64_t> out(at(config_.n_layers), 0);
  for (std::size_t i = 0; i < heads_.size(); ++i)
    out[i / at(config_.n_heads)] =
        std::max(out[i / at(config_.n_heads)], static_cast<std::int64_t>(in_reach(i).size()));
  return out;
}

}  // namespace kvatlas::calibrate
