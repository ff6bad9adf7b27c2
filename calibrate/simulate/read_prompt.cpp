// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/read_prompt.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/tensors-inl.hpp"

namespace kvatlas::calibrate {
namespace {

/// What every layer showed, beside its keys and values, which the sequence holds.
struct Shown {
  std::vector<at::Tensor> queries;  // [layer] of [n_heads, rows, head_dim]
  std::vector<at::Tensor> sinks;    // [layer] of [n_heads], or undefined
  std::vector<double> scales, softcaps;
  std::vector<KeyWindow> windows;
};

}  // namespace

struct ReadPrompt::State {
  std::int64_t tokens = 0, rows = 0;  // of the prompt; of them, those whose queries are kept
  Shown prompt, step;

  std::int64_t rows_kept() const { return std::min(tokens, rows); }
};

namespace {

void remember(Shown& shown, const capture::AttentionInputs& in, std::int64_t rows) {
  const at::Tensor query = capture::tensor_of(in.query);
  shown.queries.push_back(
      query.narrow(1, query.size(1) - rows, rows).clone(at::MemoryFormat::Contiguous));
  shown.sinks.push_back(in.sinks.data ? capture::tensor_of(in.sinks).clone() : at::Tensor());
  shown.scales.push_back(in.scale);
  shown.softcaps.push_back(in.softcap);
  shown.windows.push_back(in.window);
}

/// The first `tokens` of what a sequence holds of a layer.
AnyView<3> first_of(AnyView<3> view, std::int64_t tokens) {
  view.sizes[1] = tokens;
  return view;
}

template <class Observe>
void replay(const Shown& shown, const capture::Sequence& sequence, std::int64_t tokens,
            const Observe& observe) {
  for (std::size_t i = 0; i < shown.queries.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const auto cache = sequence.cache(layer);
    observe({.layer = layer,
             .query = capture::any_view<3>(shown.queries[i]),
             .key = first_of(cache.key, tokens),
             .value = first_of(cache.value, tokens),
             .logsumexp = {},
             .scale = shown.scales[i],
             .softcap = shown.softcaps[i],
             .window = shown.windows[i],
             .sinks = shown.sinks[i].defined() ? capture::view_of<const float, 1>(shown.sinks[i])
                                               : View<const float, 1>()});
  }
}

std::int64_t bytes_of(const Shown& shown) {
  std::int64_t bytes = 0;
  for (const auto* tensors : {&shown.queries, &shown.sinks})
    for (const auto& tensor : *tensors) bytes += capture::bytes_of(tensor);
  return bytes;
}

}  // namespace

ReadPrompt::ReadPrompt(capture::Sequence empty, std::int64_t tokens, std::int64_t rows)
    : sequence(std::move(empty)), state_(std::make_unique<State>()) {
  state_->tokens = tokens;
  state_->rows = rows;
}
ReadPrompt::ReadPrompt(capture::Sequence loaded, std::unique_ptr<State> state)
    : sequence(std::move(loaded)), state_(std::move(state)) {}
ReadPrompt::~ReadPrompt() = default;
ReadPrompt::ReadPrompt(ReadPrompt&&) noexcept = default;

void ReadPrompt::prefill(const capture::AttentionInputs& in) {
  if (state_->rows > 0) remember(state_->prompt, in, state_->rows_kept());
}

void ReadPrompt::first_step(const capture::AttentionInputs& in) {
  if (state_->rows > 0) remember(state_->step, in, 1);
}

std::int64_t rows_to_keep(const Needs& needs) {
  // Enough for the settings that policies have unless they are asked for others.
  std::int64_t rows = 64;
  rows = std::max({rows, needs.rows, needs.last_queries});
  for (const auto& [proximity, w_last] : needs.prefill_masses) rows = std::max(rows, w_last);
  return rows;
}

bool ReadPrompt::tells(const Needs& needs) const {
  return !needs.columns && !needs.value_outputs && needs.queries_without_first.empty() &&
         !needs.mean_queries && needs.repetitions.empty() &&
         std::min(rows_to_keep(needs), state_->tokens) <= state_->rows_kept();
}

void ReadPrompt::show(PromptFacts& facts) const {
  const c10::InferenceMode no_gradients;
  replay(state_->prompt, sequence, state_->tokens,
         [&](const capture::AttentionInputs& in) { facts.prefill(in); });
  replay(state_->step, sequence, sequence.length(),
         [&](const capture::AttentionInputs& in) { facts.first_step(in); });
}

std::int64_t ReadPrompt::bytes() const {
  return sequence.bytes() + bytes_of(state_->prompt) + bytes_of(state_->step) +
         static_cast<std::int64_t>(logits.size() * sizeof(float));
}

void ReadPrompt::save(const capture::WriteBytes& write) const {
  sequence.save(write);
  capture::write_values(write, logits);
  capture::write_values<std::int64_t>(write, {state_->tokens, state_->rows});
  for (const Shown* shown : {&state_->prompt, &state_->step}) {
    capture::write_values(write, shown->scales);
    capture::write_values(write, shown->softcaps);
    capture::write_values(write, shown->windows);
    for (std::size_t i = 0; i < shown->queries.size(); ++i) {
      capture::write_tensor(write, shown->queries[i]);
      capture::write_tensor(write, shown->sinks[i]);
    }
  }
}

ReadPrompt ReadPrompt::load(const capture::Engine& engine, const capture::ReadBytes& read) {
  const c10::InferenceMode no_gradients;
  ReadPrompt out(engine.load(read), std::make_unique<State>());
  const at::Device device = capture::tensor_of(out.sequence.cache(0).key).device();
  out.logits = capture::read_values<float>(read);
  const auto sizes = capture::read_values<std::int64_t>(read);
  out.state_->tokens = sizes[0];
  out.state_->rows = sizes[1];
  for (Shown* shown : {&out.state_->prompt, &out.state_->step}) {
    shown->scales = capture::read_values<double>(read);
    shown->softcaps = capture::read_values<double>(read);
    shown->windows = capture::read_values<KeyWindow>(read);
    for (std::size_t i = 0; i < shown->windows.size(); ++i) {
      shown->queries.push_back(capture::read_tensor(read, device));
      shown->sinks.push_back(capture::read_tensor(read, device));
    }
  }
  return out;
}

}  // namespace kvatlas::calibrate
