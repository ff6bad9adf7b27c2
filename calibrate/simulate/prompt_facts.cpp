// SPDX-License-Identifier: Apache-2.0
// What a prompt's prefill and first decode step show of it, as far as the policies need it.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {

using capture::float_on;
using capture::last_rows_of;
using capture::view_of;

PromptFacts::PromptFacts(Needs needs, const model::Config& config, std::int64_t n_tokens)
    : state_(std::make_unique<State>(State{std::move(needs), config, n_tokens})) {
  State& s = *state_;
  s.columns.resize(static_cast<std::size_t>(config.n_layers));
  s.value_outputs.resize(static_cast<std::size_t>(config.n_layers));
  s.last_queries.resize(static_cast<std::size_t>(config.n_layers));
  s.queries.resize(s.needs.queries_without_first.size());
  if (s.needs.mean_queries)
    s.mean_queries =
        std::make_shared<std::vector<MeanQueries>>(static_cast<std::size_t>(config.n_layers));
  s.repeated.resize(s.needs.repetitions.size());
  for (auto& layers : s.repeated)
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
      layers.push_back(at::zeros({config.n_kv_heads, n_tokens}, at::TensorOptions(at::kFloat)));
  s.prefill_mass.resize(s.needs.prefill_masses.size());
  s.decode_mass.resize(s.needs.decode_masses.size());
}
PromptFacts::~PromptFacts() = default;
PromptFacts::PromptFacts(PromptFacts&&) noexcept = default;
const Needs& PromptFacts::needs() const { return state_->needs; }

namespace {

at::Tensor last_queries_of(const capture::AttentionInputs& in, std::int64_t rows) {
  const at::Tensor query = capture::tensor_of(in.query);
  return query.narrow(1, query.size(1) - rows, rows).clone();
}

/// Adds the proximal masses of the last `rows` rows, the mean over rows: [n_heads].
void add_masses(std::vector<double>& masses, const capture::AttentionInputs& in,
                const Proximity& proximity, std::int64_t rows) {
  const std::int64_t heads = in.query.sizes[0];
  const at::Tensor mass = at::empty({1, heads, rows}, float_on(in.query));
  kernels::LastRows io = last_rows_of(in, rows);
  io.grid = {proximity};
  io.mass = view_of<float, 3>(mass);
  kernels::last_rows(io);
  const at::Tensor mean = mass[0].to(at::kDouble).mean(1).cpu();
  masses.insert(masses.end(), mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + heads);
}

}  // namespace

void PromptFacts::queries(std::int64_t layer, const AnyView<3>& query) {
  State& s = *state_;
  if (s.mean_queries) {
    const at::Tensor rows = capture::tensor_of(query).to(at::kFloat);
    const std::int64_t pairs = turning_pairs(s.config, layer);
    (*s.mean_queries)[layer] = {
        rows.mean(1), at::hypot(rows.narrow(2, 0, pairs), rows.narrow(2, pairs, pairs)).mean(1)};
  }
  for (std::size_t i = 0; i < s.queries.size(); ++i) {
    const std::int64_t first = s.needs.queries_without_first[i];
    s.queries[i].resize(static_cast<std::size_t>(s.config.n_layers));
    if (first >= s.n) continue;
    const at::Tensor rows = capture::tensor_of(query).narrow(1, first, s.n - first).to(at::kFloat);
    const at::Tensor mean = rows.mean(1, true), apart = rows - mean;
    s.queries[i][layer] = {mean.squeeze(1), at::matmul(apart.transpose(1, 2), apart) /
                                                static_cast<double>(s.n - first)};
  }
}

void PromptFacts::value_outputs(std::int64_t layer, const AnyView<2>& outputs) {
  if (state_->needs.value_outputs)
    state_->value_outputs[layer] = capture::tensor_of(outputs).clone();
}

void PromptFacts::prefill(const capture::AttentionInputs& in) {
  State& s = *state_;
  const std::int64_t heads = in.query.sizes[0];
  if (const std::int64_t rows = std::min(s.needs.rows, s.n); rows > 0) {
    if (!s.rows.defined())
      s.rows = at::empty({s.config.n_layers, heads, rows, s.n}, float_on(in.query));
    const at::Tensor probs = s.rows.select(0, in.layer);
    kernels::LastRows io = last_rows_of(in, rows);
    io.probs = view_of<float, 3>(probs);
    kernels::last_rows(io);
  }
  if (s.needs.last_queries > 0)
    s.last_queries[in.layer] = {
        Scoring::of(in), last_queries_of(in, std::min(s.needs.last_queries, s.n)), {}};
  for (std::size_t i = 0; i < s.needs.prefill_masses.size(); ++i) {
    const auto& [proximity, w_last] = s.needs.prefill_masses[i];
    add_masses(s.prefill_mass[i], in, proximity, std::min(w_last, s.n));
  }
  if (s.needs.columns) {
    at::Tensor lse;
    kernels::AttentionMaps io = capture::maps_of(in, [&] {
      return lse = at::empty({heads, s.n}, float_on(in.query));
    });
    const at::Tensor columns = at::empty({heads, s.n}, float_on(in.query));
    io.column_sums = view_of<float, 2>(columns);
    kernels::attention_maps(io);
    const std::int64_t kv_heads = s.config.n_kv_heads;
    s.columns[in.layer] = columns.view({kv_heads, heads / kv_heads, s.n})
                              .to(at::kDouble)
                              .mean(1)
                              .to(at::kFloat)
                              .cpu();
  }
}

void PromptFacts::first_step(const capture::AttentionInputs& in) {
  State& s = *state_;
  for (std::size_t i = 0; i < s.needs.decode_masses.size(); ++i)
    add_masses(s.decode_mass[i], in, s.needs.decode_masses[i], 1);
  if (s.needs.last_queries > 0) s.last_queries[in.layer].step = last_queries_of(in, 1);
}

namespace {

/// What was taken for the wanted one of the known ones.
template <class Taken, class T>
const Taken& found(const std::vector<Taken>& all, const std::vector<T>& known, const T& wanted) {
  return all[std::find(known.begin(), known.end(), wanted) - known.begin()];
}

}  // namespace

void PromptFacts::repeated(const Repetition& repetition, Range part,
                           const capture::AttentionInputs& in) {
  State& s = *state_;
  const at::Tensor& scores = found(s.repeated, s.needs.repetitions, repetition)[in.layer];
  scores.narrow(1, part.begin, part.length())
      .copy_(greatest_attention(in, part, std::min(repetition.sink, part.begin)));
}

const std::vector<double>& PromptFacts::State::prefill_mass_of(const Proximity& keep,
                                                               std::int64_t w_last) const {
  return found(prefill_mass, needs.prefill_masses, {keep, w_last});
}
const std::vector<double>& PromptFacts::State::decode_mass_of(const Proximity& keep) const {
  return found(decode_mass, needs.decode_masses, keep);
}
const QuerySpread& PromptFacts::State::queries_of(std::int64_t without_first,
                                                  std::int64_t layer) const {
  return found(queries, needs.queries_without_first, without_first)[layer];
}
const std::vector<at::Tensor>& PromptFacts::State::repeated_of(const Repetition& repetition) const {
  return found(repeated, needs.repetitions, repetition);
}

}  // namespace kvatlas::calibrate
