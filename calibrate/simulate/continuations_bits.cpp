// SPDX-License-Identifier: Apache-2.0
// Keys and values in fewer bits: the prompt's tokens are rounded to codes at the cut, except for
// the last ones where the policy says so. Later tokens follow in groups of 32, or at once where the
// format rounds each token by itself.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations_impl.hpp"

namespace kvatlas::calibrate {

/// Rounds what KV head g holds at these positions: keys of layer m, values of layer l. Rows of keys
/// are rounded together, for their groups go over tokens. Generated rows that are borrowed from
/// another layer are only read, for each layer rounds its own.
void Continuations::State::code_rows(Stream& stream, const Range& positions, std::int64_t l,
                                     std::int64_t m, std::int64_t g, const CopiedRows& copied) {
  const Ranges seen = intersect(
      stream.head(m, g).seen_from(stream.first + stream.taken - 1, {}, stream.first), {positions});
  std::vector<at::Tensor> keys, values;
  const auto add = [&](const at::Tensor& key, const at::Tensor& value, const Ranges& rows) {
    for (const auto& range : rows) {
      keys.push_back(key.narrow(0, range.begin, range.length()));
      values.push_back(value.narrow(0, range.begin, range.length()));
    }
  };
  add(copies.keys(l), copies.values(l), rows_of(seen, copied));
  const std::size_t of_copies = keys.size();
  if (const Ranges rows = stream.generated(seen, m, g); !rows.empty()) {
    const auto number = &stream - streams.data();
    add(generated_key[m][number][g], generated_value[l][number][g], rows);
  }
  if (keys.empty()) return;
  // What is generated was rounded at once where a token is rounded by itself.
  const auto format = [&](KvFormat of_layer) {
    return positions.begin >= stream.first && facts_of(of_layer).by_token ? KvFormat::f16
                                                                          : of_layer;
  };
  const at::Tensor all_keys = at::cat(keys), all_values = at::cat(values);
  const Plan& plan = *stream.plan;
  round_rows(all_keys, format(plan.formats_of(m).keys), KvSide::keys,
             plan.scale_of(&Fp8Scales::keys, m, g));
  round_rows(all_values, format(plan.formats_of(l).values), KvSide::values,
             plan.scale_of(&Fp8Scales::values, l, g));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < (l == m ? keys.size() : of_copies); ++i) {
    const std::int64_t count = keys[i].size(0);
    keys[i].copy_(all_keys.narrow(0, row, count));
    values[i].copy_(all_values.narrow(0, row, count));
    row += count;
  }
}

void Continuations::State::code(Stream& stream, const Range& positions) {
  for (const auto& [of, rows] : stream.borrowed) {
    const auto& [l, m, g] = of;
    code_rows(stream, positions, l, m, g, rows);
  }
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    if (stream.plan->formats_of(l).plain()) continue;
    for (std::int64_t g = 0; g < K(); ++g) {
      const Head& head = stream.head(l, g);
      // What is generated is the same for all query heads.
      if (head.by_query_head.empty() || positions.begin >= stream.first)
        code_rows(stream, positions, l, l, g, head.copied);
      else
        for (const auto& rows : head.by_query_head) code_rows(stream, positions, l, l, g, rows);
    }
  }
}

void Continuations::State::round_generated(std::int64_t l, KvSide side, const at::Tensor& rows) {
  std::map<std::pair<KvFormat, double>, std::vector<std::int64_t>> of_format;  // and scale
  const auto scales = side == KvSide::keys ? &Fp8Scales::keys : &Fp8Scales::values;
  for (std::size_t r = 0; r < stepping.size(); ++r) {
    const KvFormats formats = stepping[r]->plan->formats_of(l);
    const KvFormat format = side == KvSide::keys ? formats.keys : formats.values;
    if (format == KvFormat::f16 || !facts_of(format).by_token) continue;
    for (std::int64_t g = 0; g < K(); ++g)
      of_format[{format, stepping[r]->plan->scale_of(scales, l, g)}].push_back(
          static_cast<std::int64_t>(r) * K() + g);
  }
  for (const auto& [how, numbers] : of_format) {
    const at::Tensor index = at::tensor(numbers, at::kLong).to(rows.device());
    const at::Tensor chosen = rows.index_select(0, index);
    round_rows(chosen, how.first, side, how.second);
    rows.index_copy_(0, index, chosen);
  }
}

void Continuations::State::code_further(Stream& stream, std::int64_t tokens) {
  const Plan& plan = *stream.plan;
  if (plan.formats.empty()) return;
  const auto coded = [&](std::int64_t of) {
    return coded_tokens(stream.first, of, plan.kv_residual);
  };
  const Range next{coded(tokens - 1), coded(tokens)};
  if (next.length() > 0) code(stream, next);
}

}  // namespace kvatlas::calibrate
