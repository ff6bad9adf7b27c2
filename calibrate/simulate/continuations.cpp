// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/continuations.hpp"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations_impl.hpp"

namespace kvatlas::calibrate {

using capture::ContinuationRows;

Continuations::State::State(capture::Engine& e, const capture::Sequence& p, std::int64_t n_tokens,
                            std::int64_t most_steps)
    : engine(e),
      prompt(p),
      config(e.model().config()),
      cache_sizes(cache_shape(config)),
      n(n_tokens),
      steps(std::max<std::int64_t>(1, most_steps)),
      options(capture::tensor_of(p.cache(0).key).options()),
      copies(config, options),
      quest(config) {
  generated_key.resize(static_cast<std::size_t>(config.n_layers));
  generated_value.resize(generated_key.size());
  queries.resize(generated_key.size());
  scorings.resize(generated_key.size());
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    prompt_steps.push_back(head_step(prompt.cache(l).key));
}

namespace {

/// Whether copied rows are rounded after the prompt: those of the last tokens, or those that were
/// generated and that have been moved there.
bool rewrites_copies(const Plan& plan) {
  return !plan.formats.empty() && (plan.kv_residual > 0 || plan.lag || plan.decoding);
}

}  // namespace

void Continuations::State::duplicate_copies(Stream& stream) {
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    for (auto& head : stream.layers[l].heads) head.copied = copies.duplicate(l, head.copied);
  for (auto& [layers, rows] : stream.borrowed) rows = copies.duplicate(std::get<0>(layers), rows);
}

std::int64_t Continuations::State::rows_for(const Plan& plan, std::int64_t layer,
                                            bool forks) const {
  std::int64_t rows = 0;
  for (std::int64_t g = 0; g < K(); ++g) {
    rows += plan.heads[layer][g].copied() * (forks && rewrites_copies(plan) ? 2 : 1);
    if (plan.decoding && plan.cut_heads[layer][g] != 0)
      rows += most_rows(*plan.decoding) * (forks ? 3 : 1);
  }
  return rows;
}

void Continuations::State::make_room(std::size_t count) {
  const auto grow = [&](at::Tensor& tensor) {
    const auto have = tensor.defined() ? tensor.size(0) : 0;
    if (have >= static_cast<std::int64_t>(count)) return;
    const std::int64_t want = std::max<std::int64_t>(static_cast<std::int64_t>(count), 2 * have);
    at::Tensor larger = at::empty({want, K(), steps, config.head_dim}, options);
    if (have > 0) larger.narrow(0, 0, have).copy_(tensor);
    tensor = larger;
  };
  for (auto& tensor : generated_key) grow(tensor);
  for (auto& tensor : generated_value) grow(tensor);
}

/// What the plan selects or changes, out of the prompt's cache.
void Continuations::State::copy_prompt(Stream& stream) {
  const Plan& plan = *stream.plan;
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    const auto& cuts = plan.heads[l];
    Layer& layer = stream.layers[l];
    std::vector<std::vector<std::int64_t>> tokens;
    for (const auto& cut : cuts) {
      layer.heads.push_back({Ranges(cut.ranges), {}, {}, cut.window, cut.rolling});
      layer.heads.back().mass = cut.mass;
      tokens.push_back(cut.tokens);
    }
    const auto rows = copies.add(l, prompt.cache(l), tokens);
    for (std::size_t g = 0; g < rows.size(); ++g) layer.heads[g].copied = rows[g];
    for (std::size_t g = 0; g < rows.size(); ++g)
      for (const auto& of_query_head : cuts[g].by_query_head) {
        tokens.assign(rows.size(), {});
        tokens[g] = of_query_head;
        layer.heads[g].by_query_head.push_back(copies.add(l, prompt.cache(l), tokens)[g]);
      }
  }
  if (plan.minicache) merge_layers(stream);
  if (plan.shared_values) share_values(stream);
  if (plan.pod) copy_borrowed(stream);
  if (!plan.formats.empty())
    code(stream, {0, coded_tokens(stream.first, stream.first, plan.kv_residual)});
}

Continuations::Continuations(capture::Engine& engine, const capture::Sequence& prompt,
                             std::int64_t n_tokens, std::int64_t steps)
    : state_(std::make_unique<State>(engine, prompt, n_tokens, steps)) {}
Continuations::~Continuations() = default;

void Continuations::reserve(std::span<const Plan* const> plans, bool forks) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  s.make_room(s.streams.size() + plans.size() * (forks ? 2 : 1));
  for (std::int64_t l = 0; l < s.config.n_layers; ++l) {
    std::int64_t rows = 0;
    for (const Plan* plan : plans) rows += s.rows_for(*plan, l, forks);
    s.copies.reserve(l, rows);
  }
}

std::size_t Continuations::add(const Plan& plan) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  State::Stream stream;
  stream.plan = std::make_shared<const Plan>(plan);
  stream.first = s.n + plan.delay;
  stream.layers.resize(static_cast<std::size_t>(s.config.n_layers));
  for (const State::Stream& earlier : s.streams)
    stream.apart.push_back(s.apart_from(*earlier.plan, plan));
  if (s.engine.has_layer_states()) stream.states = s.prompt.layer_states(stream.first);
  s.copy_prompt(stream);
  s.make_room(s.streams.size() + 1);
  s.streams.push_back(std::move(stream));
  return s.streams.size() - 1;
}

std::size_t Continuations::fork(std::size_t number) {
  const c10::InferenceMode no_gradients;
  State& s = *state_;
  const std::size_t added = s.streams.size();
  s.make_room(added + 1);
  s.streams.push_back(s.streams[number]);
  auto& apart = s.streams[added].apart;
  apart.push_back(s.config.n_layers);
  for (std::size_t later = number + 1; later < added; ++later)
    apart.push_back(s.streams[later].apart[number]);
  if (s.streams[added].plan->decoding) s.share_copies(s.streams[number], s.streams[added]);
  if (rewrites_copies(*s.streams[added].plan)) s.duplicate_copies(s.streams[added]);
  const std::int64_t taken = s.streams[added].taken;
  const auto copy = [&](const at::Tensor& rows) {
    rows[static_cast<std::int64_t>(added)]
        .narrow(1, 0, taken)
        .copy_(rows[static_cast<std::int64_t>(number)].narrow(1, 0, taken));
  };
  if (taken > 0) {
    for (const auto& rows : s.generated_key) copy(rows);
    for (const auto& rows : s.generated_value) copy(rows);
  }
  return added;
}

std::int64_t Continuations::bytes_of(const Plan& plan) const {
  const State& s = *state_;
  const std::int64_t row =
      2 * s.config.head_dim * static_cast<std::int64_t>(s.options.dtype().itemsize());
  std::int64_t rows = 2 * s.steps * s.K() * s.config.n_layers;
  for (std::int64_t l = 0; l < s.config.n_layers; ++l) rows += s.rows_for(plan, l, true);
  return rows * row;
}

capture::ContinuationStep Continuations::next_step(
    std::span<const std::size_t> which, std::span<const std::int64_t> tokens, std::int64_t position,
    std::function<void(std::size_t row, std::span<const float> logits)> logits) {
  State& s = *state_;
  const c10::InferenceMode no_gradients;
  s.stepping.clear();
  std::vector<std::int64_t> index;
  for (std::size_t row = 0; row < which.size(); ++row)
    s.streams[which[row]].tokens.push_back(tokens[row]);
  capture::ContinuationStep step;
  step.position = position;
  auto order = s.find_branches(which, step.branches);
  for (const auto row : order) {
    State::Stream& stream = s.streams[which[row]];
    if (stream.first + stream.taken != position || stream.taken == s.steps)
      fail(ErrorCode::internal, "a continuation was run at another position than its own");
    stream.bytes.read = 0;
    step.tokens.push_back(tokens[row]);
    s.stepping.push_back(&stream);
    for (std::int64_t g = 0; g < s.K(); ++g)
      index.push_back(s.generated_start(stream, g) + stream.taken);
  }
  s.generated_index = at::tensor(index, at::kLong).to(s.options.device());
  if (s.engine.has_layer_states())
    for (auto* stream : s.stepping) step.states.push_back(&stream->states);
  step.attention = [&s](const ContinuationRows& in) { s.attend(in); };
  step.logits = [order = std::move(order), logits = std::move(logits)](std::int64_t first,
                                                                       View<const float, 2> rows) {
    for (std::int64_t r = 0; r < rows.sizes[0]; ++r)
      logits(order[static_cast<std::size_t>(first + r)],
             {rows.at(r), static_cast<std::size_t>(rows.sizes[1])});
  };
  return step;
}

void Continuations::took_step() {
  State& s = *state_;
  const c10::InferenceMode no_gradients;
  parallel_for(std::ssize(s.stepping), [&](std::int64_t row, int) {
    State::Stream& stream = *s.stepping[row];
    ++stream.taken;
    stream.bytes.held = s.stored_bytes(stream);
    if (!stream.plan->quest) stream.bytes.read = stream.bytes.held;
  });
  for (auto* stream : s.stepping) {
    const std::int64_t read = stream->first + stream->taken;
    s.cut_further(*stream, read);
    s.choose_anew(*stream);
    s.code_further(*stream, read);
  }
}

StepBytes Continuations::last_step(std::size_t number) const {
  return state_->streams[number].bytes;
}

std::vector<std::int64_t> Continuations::lengths(std::size_t number) const {
  const State& s = *state_;
  std::vector<std::int64_t> lengths;
  for (std::int64_t l = 0; l < s.config.n_layers; ++l) {
    std::int64_t most = 0;
    for (std::int64_t g = 0; g < s.K(); ++g)
      most = std::max(most, s.length(s.streams[number], l, g));
    lengths.push_back(most);
  }
  return lengths;
}

double Continuations::stored_bytes(std::size_t number) const {
  return state_->stored_bytes(state_->streams[number]);
}

double Continuations::skipped(std::size_t number) const {
  const auto& stream = state_->streams[number];
  return stream.gates == 0
             ? std::numeric_limits<double>::quiet_NaN()
             : static_cast<double>(stream.skipped) / static_cast<double>(stream.gates);
}

}  // namespace kvatlas::calibrate
