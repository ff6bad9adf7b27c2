// SPDX-License-Identifier: Apache-2.0
// What continuations see and hold, position by position.
#include <algorithm>

#include "calibrate/simulate/continuations_impl.hpp"

namespace kvatlas::calibrate {

void add_range(Ranges& ranges, const Range& range) {
  if (range.length() > 0) ranges.push_back(range);
}

Ranges intersect(const Ranges& a, const Ranges& b) {
  Ranges both;
  for (const auto& x : a)
    for (const auto& y : b) add_range(both, {std::max(x.begin, y.begin), std::min(x.end, y.end)});
  return both;
}

Ranges rows_of(const Ranges& positions, const CopiedRows& copied) {
  Ranges rows;
  for (const auto& range : positions) {
    add_range(rows, copied.run(range.begin, range.end));
  }
  return rows;
}

std::int64_t length_of(const Ranges& ranges) {
  std::int64_t sum = 0;
  for (const auto& range : ranges) sum += range.length();
  return sum;
}

std::int64_t head_step(const AnyView<3>& cache) { return cache.strides[0] / cache.strides[1]; }

AnyView<2> flat(const AnyView<3>& cache) {
  return {cache.data,
          cache.type,
          {(cache.sizes[0] - 1) * head_step(cache) + cache.sizes[1], cache.sizes[2]},
          {cache.strides[1], 1},
          cache.memory};
}

Ranges Continuations::State::Head::seen_from(std::int64_t position, std::int64_t model_window,
                                             std::int64_t first) const {
  const std::int64_t begin =
      model_window > 0 ? std::max<std::int64_t>(0, position - model_window + 1) : 0;
  Ranges seen{{begin, position + 1}};
  if (!window) return seen;
  const std::int64_t recent =
      std::max(window->initial, (rolling ? position + 1 : first) - window->recent);
  Ranges kept;
  add_range(kept, {0, std::min(window->initial, position + 1)});
  add_range(kept, {recent, position + 1});
  return intersect(seen, kept);
}

Ranges Continuations::State::Stream::generated(const Ranges& positions, std::int64_t l) const {
  Ranges rows;
  for (const auto& range : positions)
    add_range(rows, {std::max(range.begin - first, layer(l).generated_from), range.end - first});
  return rows;
}

std::int64_t Continuations::State::Stream::held(const Ranges& positions, std::int64_t l,
                                                std::int64_t g) const {
  return length_of(intersect(positions, head(l, g).ranges)) +
         length_of(rows_of(positions, head(l, g).copied)) + length_of(generated(positions, l));
}

std::int64_t Continuations::State::length(const Stream& stream, std::int64_t l,
                                          std::int64_t g) const {
  return stream.held(
      stream.head(l, g).seen_from(stream.first + stream.taken - 1, own_window(l), stream.first), l,
      g);
}

/// Bytes of the key and value of one prompt token in one KV head.
double Continuations::State::bytes_of_row(const Plan& plan, std::int64_t layer, bool merged) const {
  const auto d = static_cast<double>(config.head_dim);
  // Codes and, for every 32 of them, a 16-bit scale and minimum.
  const double value_bytes = plan.kv_bits == 16 ? 2 : plan.kv_bits / 8.0 + 4.0 / 32;
  // Two layers share a direction, and each has its norm.
  if (merged && is_merged(layer, config.n_layers)) return 2 * (d * value_bytes / 2 + 2);
  return 2 * d * value_bytes;
}

double Continuations::State::stored_bytes(const Stream& stream) const {
  const Plan& plan = *stream.plan;
  const std::int64_t position = stream.first + stream.taken - 1;  // of the last token
  const double of_generated = 4 * static_cast<double>(config.head_dim);
  double bytes = 0;
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = stream.head(l, g);
      const Ranges prompt_tokens{{0, stream.first}}, after{{stream.first, position + 1}};
      const auto of_prompt = [&](const Ranges& positions) {
        return length_of(intersect(positions, head.ranges)) +
               length_of(rows_of(intersect(positions, prompt_tokens), head.copied));
      };
      // Rows that LagKV has moved into copies keep their 16 bits.
      const auto generated = [&](const Ranges& positions) {
        return length_of(stream.generated(positions, l)) +
               length_of(rows_of(intersect(positions, after), head.copied));
      };
      const Ranges seen = head.seen_from(position, own_window(l), stream.first);
      const std::int64_t rows = of_prompt(seen);
      const std::int64_t unmerged = plan.minicache ? std::min(rows, plan.minicache->recent) : rows;
      bytes += static_cast<double>(rows - unmerged) * bytes_of_row(plan, l, true) +
               static_cast<double>(unmerged) * bytes_of_row(plan, l, false) +
               static_cast<double>(generated(seen)) * of_generated;
      if (!plan.pod || stream.shares(l, l, g, group())) continue;
      // Nobody reads its keys of distant tokens.
      const Ranges distant = intersect(seen, distant_from(position, plan.pod->proximal));
      bytes -= (static_cast<double>(of_prompt(distant)) * bytes_of_row(plan, l, false) +
                static_cast<double>(generated(distant)) * of_generated) /
               2;
    }
  return bytes;
}

}  // namespace kvatlas::calibrate
