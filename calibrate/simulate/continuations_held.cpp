// SPDX-License-Identifier: Apache-2.0
// What continuations see and hold, position by position.
#include <algorithm>

#include "analyzer/config/cache_card.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations_impl.hpp"

namespace kvatlas::calibrate {

std::vector<const CopiedRows*> Continuations::State::Head::all_copied() const {
  std::vector<const CopiedRows*> all{&copied};
  for (const auto& rows : by_query_head) all.push_back(&rows);
  return all;
}

Ranges rows_of(const Ranges& positions, const CopiedRows& copied) {
  Ranges rows;
  for (const auto& range : positions) {
    add_range(rows, copied.run(range.begin, range.end));
  }
  return rows;
}

std::int64_t head_step(const AnyView<3>& cache) { return cache.strides[0] / cache.strides[1]; }

AnyView<2> flat(const AnyView<3>& cache) {
  return {cache.data,
          cache.type,
          {(cache.sizes[0] - 1) * head_step(cache) + cache.sizes[1], cache.sizes[2]},
          {cache.strides[1], 1},
          cache.memory};
}

Ranges Continuations::State::Head::seen_from(std::int64_t position, KeyWindow model_window,
                                             std::int64_t first) const {
  Ranges seen{{model_window.first_key(position), position + 1}};
  if (!window) return seen;
  const std::int64_t end = rolling ? position + 1 : first;
  const std::int64_t recent = std::max(window->initial, end - window->recent);
  Ranges kept;
  add_range(kept, {0, std::min(window->initial, position + 1)});
  add_range(kept, {recent, position + 1});
  return intersect(seen, kept);
}

Ranges Continuations::State::Stream::generated(const Ranges& positions, std::int64_t l,
                                               std::int64_t g) const {
  Ranges rows;
  for (const auto& range : positions)
    add_range(rows, {std::max(range.begin - first, head(l, g).generated_from), range.end - first});
  return rows;
}

std::int64_t Continuations::State::Stream::held(const Ranges& positions, std::int64_t l,
                                                std::int64_t g) const {
  std::int64_t most = 0;
  for (const auto& rows : head(l, g).by_query_head)
    most = std::max(most, length_of(rows_of(positions, rows)));
  return most + length_of(intersect(positions, head(l, g).ranges)) +
         length_of(rows_of(positions, head(l, g).copied)) + length_of(generated(positions, l, g));
}

std::int64_t Continuations::State::Stream::stored(const Ranges& positions, std::int64_t l,
                                                  std::int64_t g) const {
  const auto& by_query_head = head(l, g).by_query_head;
  if (by_query_head.empty()) return held(positions, l, g);
  std::int64_t sum = 0;
  for (const auto& rows : by_query_head)
    sum += length_of(rows_of(positions, rows)) + length_of(generated(positions, l, g));
  return sum;
}

std::int64_t Continuations::State::length(const Stream& stream, std::int64_t l,
                                          std::int64_t g) const {
  return stream.held(
      stream.head(l, g).seen_from(stream.first + stream.taken - 1, own_window(l), stream.first), l,
      g);
}

HeldPositions Continuations::positions(std::size_t number) const {
  const State& s = *state_;
  const State::Stream& stream = s.streams[number];
  const std::int64_t last = stream.first + stream.taken - 1;
  HeldPositions out;
  for (std::int64_t l = 0; l < s.config.n_layers; ++l) {
    auto& of_layer = out.emplace_back();
    for (const State::Head& head : stream.layer(l).heads) {
      const Ranges seen = head.seen_from(last, s.own_window(l), stream.first);
      Ranges held = head.ranges;
      for (const auto* rows : head.all_copied())
        for (std::int64_t i = 0; i < rows->length(); ++i)
          held.push_back({rows->tokens->at(i), rows->tokens->at(i) + 1});
      add_range(held, {stream.first + head.generated_from, last + 1});
      const Ranges both = joined(intersect(seen, held));
      of_layer.emplace_back(both.begin(), both.end());
    }
  }
  return out;
}

CacheShape cache_shape(const model::Config& config) {
  return {config.n_layers, config.n_kv_heads, config.head_dim,
          config.window,   config.n_heads,    model::cached_values(config)};
}

/// Bytes of the key, or the value, of one token in one KV head.
double Continuations::State::bytes_of_row(KvFormat format, KvSide side, bool merged) const {
  const double row = cache_sizes.bytes_of_row(format, side);
  // Two layers share a direction, and each has its norm.
  return merged ? row / 2 + 2 : row;
}

namespace {

/// How many of the positions, which ascend, lie in the ranges.
std::int64_t count_in(const Ranges& ranges, const std::vector<std::int64_t>& positions) {
  std::int64_t count = 0;
  for (const auto& range : ranges)
    count += std::lower_bound(positions.begin(), positions.end(), range.end) -
             std::lower_bound(positions.begin(), positions.end(), range.begin);
  return count;
}

}  // namespace

double Continuations::State::stored_bytes(const Stream& stream) const {
  const Plan& plan = *stream.plan;
  const std::int64_t position = stream.first + stream.taken - 1,  // of the last token
      coded = coded_tokens(stream.first, position + 1, plan.kv_residual);
  double bytes = 0;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    double of_layer = 0;
    for (std::int64_t g = 0; g < K(); ++g) {
      const Ranges seen = stream.head(l, g).seen_from(position, own_window(l), stream.first);
      const auto bytes_of = [&](KvFormat of_side, KvSide side, const Ranges& positions,
                                const std::vector<std::int64_t>& merged) {
        double sum = 0;
        const std::int64_t end = facts_of(of_side).by_token ? position + 1 : coded;
        const std::pair<Range, KvFormat> stored[] = {{{0, end}, of_side},
                                                     {{end, position + 1}, KvFormat::f16}};
        for (const auto& [range, format] : stored) {
          const Ranges these = intersect(positions, {range});
          const std::int64_t rows = stream.stored(these, l, g), in_pairs = count_in(these, merged);
          sum += static_cast<double>(in_pairs) * bytes_of_row(format, side, true) +
                 static_cast<double>(rows - in_pairs) * bytes_of_row(format, side, false);
        }
        return sum;
      };
      const KvFormats formats = plan.formats_of(l);
      of_layer += bytes_of(formats.keys, KvSide::keys, seen, stream.head(l, g).merged_keys) +
                  bytes_of(formats.values, KvSide::values, seen, stream.head(l, g).merged_values);
      // Nobody reads the keys of its distant tokens.
      if (plan.pod && !stream.shares(l, l, g, group()))
        of_layer -= bytes_of(formats.keys, KvSide::keys,
                             intersect(seen, distant_from(position, plan.pod->proximal)), {});
      // Of values that are a lower layer's only the lengths are stored, in 16 bits each.
      if (plan.shared_values && plan.shared_values->lowest[g][l] != l) {
        const Ranges shared = intersect(seen, {{0, stream.first - plan.shared_values->recent}});
        of_layer -= bytes_of(formats.values, KvSide::values, shared, {}) -
                    2 * static_cast<double>(stream.stored(shared, l, g));
      }
    }
    bytes += of_layer * cache_sizes.share(l);
  }
  return bytes;
}

}  // namespace kvatlas::calibrate
