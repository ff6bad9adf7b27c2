// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/engine.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/weights_impl.hpp"
#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/interrupt.hpp"

namespace kvatlas::capture {
namespace {

/// The feed-forward block runs on pieces of so many rows: few enough that their widest intermediate
/// stays in a cache, where the model is small, but enough to make reading the weights worth it.
std::int64_t mlp_rows(const model::Config& c) {
  constexpr std::int64_t kCacheBytes = 12 << 20;
  return std::max<std::int64_t>(1024, kCacheBytes / (2 * c.intermediate_size * 4));
}

// The program with its libraries.
constexpr std::int64_t kProgramBytes = 256 << 20;
// Logits of many positions are computed in pieces of about this many bytes.
constexpr std::int64_t kLogitBytes = 64 << 20;

at::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "float16") return at::kHalf;
  if (dtype == "bfloat16") return at::kBFloat16;
  return at::kFloat;
}

/// The GPU to make current, so that our own kernels run on it too; none on a CPU.
std::optional<c10::Device> device_of(const at::TensorOptions& options) {
  return options.device().is_cuda() ? std::optional(options.device()) : std::nullopt;
}

/// Bytes that a run takes, as far as they can be foreseen.
struct MemoryNeed {
  std::int64_t all_weights = 0;
  std::int64_t streamed_weights = 0;  // two layers and a piece of the head
  std::int64_t rest = 0;              // program, hidden states, caches, intermediate results
};

MemoryNeed estimate_memory(const model::ModelFile& model, const EngineOptions& options,
                           std::size_t value_bytes) {
  const model::Config& c = model.config();
  const auto width = static_cast<std::int64_t>(value_bytes);
  const auto values = [](const model::Weight& w) { return w ? w.rows() * w.columns() : 0; };
  MemoryNeed need;
  std::int64_t largest = 0, largest_matrix = 0;
  for (const auto& layer : model.layers()) {
    const std::int64_t bytes = width * (values(layer.qkv) + values(layer.output) +
                                        values(layer.gate_up) + values(layer.down));
    largest = std::max(largest, bytes);
    largest_matrix = std::max({largest_matrix, values(layer.qkv), values(layer.gate_up)});
    need.all_weights += bytes;
  }
  need.all_weights += width * values(model.head());
  need.streamed_weights = 2 * largest + kStagingBytes;
  const std::int64_t kv = 2 * c.n_kv_heads * c.head_dim;
  const std::int64_t a_token = c.hidden_size + (options.keep_caches ? c.n_layers * kv : 0);
  const std::int64_t in_a_layer = c.hidden_size + kv + 3 * c.n_heads * c.head_dim;
  need.rest = kProgramBytes +
              width * (options.all_tokens * a_token + options.longest * in_a_layer) +
              width * 3 * mlp_rows(c) * c.intermediate_size +
              width * largest_matrix +  // oneDNN reorders a matrix before it multiplies
              options.other_bytes;
  return need;
}

/// LibTorch's own failures, as ours. Its messages go on with a stack trace after the first line.
template <class Fn>
void translate_torch_errors(Fn&& fn) {
  try {
    fn();
  } catch (const c10::OutOfMemoryError& error) {
    fail(ErrorCode::resource,
         "the GPU's memory ran out: ", printable(error.what_without_backtrace(), 300),
         "; use a shorter prompt, --memory-budget or --device cpu");
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool memory = text.find("alloc") != std::string::npos;
    fail(memory ? ErrorCode::resource : ErrorCode::internal,
         memory ? "memory ran out: " : "LibTorch failed: ", printable(text, 300));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::resource, "memory ran out; use a shorter prompt or --memory-budget");
  }
}

}  // namespace

struct Sequence::State {
  bool keep_cache = true;
  std::int64_t length = 0;
  std::vector<float> logits;
  struct Layer {
    at::Tensor key, value;  // [n_kv_heads, capacity, head_dim]
  };
  std::vector<Layer> layers;
};

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;
std::int64_t Sequence::length() const { return state_->length; }
const std::vector<float>& Sequence::logits() const { return state_->logits; }
std::int64_t Sequence::cache_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& layer : state_->layers)
    if (layer.key.defined())
      bytes += static_cast<std::int64_t>(layer.key.nbytes() + layer.value.nbytes());
  return bytes;
}

struct Engine::State {
  std::shared_ptr<const model::ModelFile> model;
  EngineOptions options;
  at::TensorOptions tensor_options;
  MemoryPlan memory;
  std::optional<WeightStore> weights;

  const model::Config& config() const { return model->config(); }

  /// What goes through the layers for one step.
  struct Flow {
    Sequence::State* sequence;
    at::Tensor hidden;  // [n, D]
    RopeTable rope, local_rope;
    std::int64_t logit_rows;
    std::optional<kernels::Proximity> proximal;
    std::int64_t first() const { return sequence->length; }
  };

  Flow begin(const Step& step);
  void run_layer(std::int64_t index, const LayerTensors& w, Flow& flow, std::size_t number,
                 const AttentionObserver& observer);
  std::pair<at::Tensor, at::Tensor> remember(std::int64_t index, Sequence::State& sequence,
                                             const at::Tensor& key, const at::Tensor& value);
  void feed_forward(const LayerTensors& w, const at::Tensor& hidden);
  void emit_logits(Flow& flow, std::size_t number, Logits wanted, const LogitsObserver& observer);
};

Engine::Engine(std::shared_ptr<const model::ModelFile> model, const EngineOptions& options)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.model = std::move(model);
  s.options = options;
  translate_torch_errors([&] {
    const at::Device device(options.placement.device);
    s.tensor_options = at::TensorOptions(device).dtype(scalar_type(options.placement.dtype));
  });
  s.memory = plan_memory(*s.model, options);
  if (s.memory.streaming && options.memory_budget > 0 &&
      s.memory.total_bytes > options.memory_budget)
    fail(ErrorCode::resource, "--memory-budget ", bytes_str(options.memory_budget),
         " is too small: these prompts need about ", bytes_str(s.memory.total_bytes),
         " even with weights streamed layer by layer");
  s.weights.emplace(s.model, s.tensor_options, s.memory.streaming);
}

MemoryPlan plan_memory(const model::ModelFile& model, const EngineOptions& options) {
  const auto bytes = at::elementSize(scalar_type(options.placement.dtype));
  const MemoryNeed need = estimate_memory(model, options, bytes);
  MemoryPlan plan;
  plan.weight_bytes = need.all_weights;
  plan.streaming = options.weights == EngineOptions::Weights::streaming;
  if (options.memory_budget > 0 && options.weights == EngineOptions::Weights::automatic)
    plan.streaming = need.all_weights + need.rest > options.memory_budget;
  plan.held_weight_bytes = plan.streaming ? need.streamed_weights : need.all_weights;
  plan.total_bytes = plan.held_weight_bytes + need.rest;
  return plan;
}

Engine::~Engine() = default;
const model::ModelFile& Engine::model() const { return *state_->model; }
bool Engine::streaming() const { return state_->weights->streaming(); }

std::string Engine::plan() const {
  const State& s = *state_;
  const std::string all = bytes_str(s.memory.weight_bytes);
  return str(s.options.placement.device, ", ", s.options.placement.dtype, ", weights ",
             streaming() ? str("streamed layer by layer (", all, " in all, ",
                               bytes_str(s.memory.held_weight_bytes), " at a time)")
                         : str("resident (", all, ")"));
}

Sequence Engine::sequence(bool keep_cache) const {
  auto state = std::make_unique<Sequence::State>();
  state->keep_cache = keep_cache;
  state->layers.resize(state_->model->layers().size());
  return Sequence(std::move(state));
}

void Engine::run(std::span<const Step> steps, Logits logits, const Observers& observers) {
  State& s = *state_;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    if (step.tokens.empty()) fail(ErrorCode::usage, "prompt ", i + 1, " has no tokens");
    if (step.sequence->length() > 0 && !step.sequence->state_->keep_cache)
      fail(ErrorCode::internal, "a sequence without a cache was continued");
    require_in_vocabulary(step.tokens, s.config(), ErrorCode::usage);
  }
  translate_torch_errors([&] {
    const c10::InferenceMode no_gradients;
    const c10::OptionalDeviceGuard device(device_of(s.tensor_options));
    std::vector<State::Flow> flows;
    for (const auto& step : steps) flows.push_back(s.begin(step));
    const auto n_layers = static_cast<std::int64_t>(s.model->layers().size());
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
      const LayerTensors& weights = s.weights->layer(layer);
      for (std::size_t i = 0; i < flows.size(); ++i)
        s.run_layer(layer, weights, flows[i], i, observers.attention);
      stop_if_interrupted();
      if (observers.progress) observers.progress(layer + 1);
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
      s.emit_logits(flows[i], i, logits, observers.logits);
      flows[i].sequence->length += flows[i].hidden.size(0);
    }
  });
}

Engine::State::Flow Engine::State::begin(const Step& step) {
  const model::Config& c = config();
  Flow flow;
  flow.sequence = step.sequence->state_.get();
  flow.hidden = weights->embed(step.tokens);
  flow.logit_rows = step.logit_rows;
  flow.proximal = step.proximal;
  const auto n = static_cast<std::int64_t>(step.tokens.size());
  const auto table = [&](const model::Rope& rope) {
    return rope_table(
        model::rope_frequencies(rope, c.rotary_dim, c.context_length, flow.first() + n),
        flow.first(), n, tensor_options.device());
  };
  flow.rope = table(c.rope);
  if (c.local_rope) flow.local_rope = table(*c.local_rope);
  return flow;
}

void Engine::State::run_layer(std::int64_t index, const LayerTensors& w, Flow& flow,
                              std::size_t number, const AttentionObserver& observer) {
  const model::Config& c = config();
  const std::int64_t n = flow.hidden.size(0), d = c.head_dim;
  const std::int64_t window = c.window[static_cast<std::size_t>(index)];

  const at::Tensor normed = rms_norm(flow.hidden, w.attention_norm, c.norm_eps, c.norm_offset);
  const at::Tensor qkv =
      linear(normed, w.qkv, w.qkv_bias).view({n, c.n_heads + 2 * c.n_kv_heads, d});
  at::Tensor q = qkv.narrow(1, 0, c.n_heads);
  at::Tensor k = qkv.narrow(1, c.n_heads, c.n_kv_heads);
  const at::Tensor v = qkv.narrow(1, c.n_heads + c.n_kv_heads, c.n_kv_heads);
  const auto norm_heads = [&](const at::Tensor& heads, const at::Tensor& weight) {
    return rms_norm(heads.reshape({-1, d}), weight, c.norm_eps, c.norm_offset).view(heads.sizes());
  };
  if (w.q_norm.defined()) q = norm_heads(q, w.q_norm);
  if (w.k_norm.defined()) k = norm_heads(k, w.k_norm);
  const RopeTable& table = window > 0 && c.local_rope ? flow.local_rope : flow.rope;
  rotate(q, table);
  rotate(k, table);

  auto [key, value] = std::pair(k.transpose(0, 1), v.transpose(0, 1));
  if (flow.sequence->keep_cache) std::tie(key, value) = remember(index, *flow.sequence, key, value);
  const at::Tensor query = q.transpose(0, 1);
  const Attended attended =
      attend({query, key, value, c.attention_scale, c.attention_softcap, window, flow.proximal});
  if (observer)
    observer(
        {.layer = index,
         .sequence = number,
         .first_position = flow.first(),
         .query = any_view<3>(query),
         .key = any_view<3>(key),
         .value = any_view<3>(value),
         .logsumexp = attended.logsumexp.defined() ? any_view<2>(attended.logsumexp) : AnyView<2>(),
         .scale = c.attention_scale,
         .softcap = c.attention_softcap,
         .window = window});

  at::Tensor out = linear(attended.out, w.output, w.output_bias);
  if (w.post_attention_norm.defined())
    out = rms_norm(out, w.post_attention_norm, c.norm_eps, c.norm_offset);
  flow.hidden.add_(out);
  feed_forward(w, flow.hidden);
}

/// Appends keys and values [K, n, d] to a layer's cache and gives all of it, [K, n_all, d].
std::pair<at::Tensor, at::Tensor> Engine::State::remember(std::int64_t index,
                                                          Sequence::State& sequence,
                                                          const at::Tensor& key,
                                                          const at::Tensor& value) {
  auto& layer = sequence.layers[static_cast<std::size_t>(index)];
  const std::int64_t n = key.size(1), total = sequence.length + n;
  if (!layer.key.defined() || layer.key.size(1) < total) {
    // A prompt is stored tightly; what is generated afterwards grows the cache by a quarter at a
    // time.
    const std::int64_t capacity = sequence.length == 0 ? total + 64 : total + total / 4 + 64;
    const auto grow = [&](at::Tensor& tensor) {
      at::Tensor larger = at::empty({key.size(0), capacity, key.size(2)}, key.options());
      if (sequence.length > 0)
        larger.narrow(1, 0, sequence.length).copy_(tensor.narrow(1, 0, sequence.length));
      tensor = larger;
    };
    grow(layer.key);
    grow(layer.value);
  }
  layer.key.narrow(1, sequence.length, n).copy_(key);
  layer.value.narrow(1, sequence.length, n).copy_(value);
  return {layer.key.narrow(1, 0, total), layer.value.narrow(1, 0, total)};
}

void Engine::State::feed_forward(const LayerTensors& w, const at::Tensor& hidden) {
  const model::Config& c = config();
  const std::int64_t n = hidden.size(0);
  const std::int64_t piece = mlp_rows(c);
  for (std::int64_t start = 0; start < n; start += piece) {
    at::Tensor rows = hidden.narrow(0, start, std::min(piece, n - start));
    const at::Tensor normed = rms_norm(rows, w.mlp_norm, c.norm_eps, c.norm_offset);
    const at::Tensor active =
        gated_activation(linear(normed, w.gate_up, w.gate_up_bias), c.activation);
    at::Tensor out = linear(active, w.down, w.down_bias);
    if (w.post_mlp_norm.defined()) out = rms_norm(out, w.post_mlp_norm, c.norm_eps, c.norm_offset);
    rows.add_(out);
  }
}

void Engine::State::emit_logits(Flow& flow, std::size_t number, Logits wanted,
                                const LogitsObserver& observer) {
  if (wanted == Logits::none) return;
  const model::Config& c = config();
  const std::int64_t n = flow.hidden.size(0);
  const std::int64_t piece = std::max<std::int64_t>(1, kLogitBytes / (4 * c.vocab_size));
  const std::int64_t count = wanted == Logits::all ? std::min(n, flow.logit_rows) : 1;
  for (std::int64_t start = n - count; start < n; start += piece) {
    const at::Tensor rows = flow.hidden.narrow(0, start, std::min(piece, n - start));
    const at::Tensor normed = rms_norm(rows, weights->final_norm(), c.norm_eps, c.norm_offset);
    const at::Tensor logits = weights->logits(normed).cpu();
    const float* data = logits.const_data_ptr<float>();
    if (wanted == Logits::all && observer)
      observer(number, flow.first() + start, {data, {logits.size(0), c.vocab_size}});
    if (start + piece >= n)
      flow.sequence->logits.assign(data + (logits.size(0) - 1) * c.vocab_size,
                                   data + logits.size(0) * c.vocab_size);
  }
}

void require_in_vocabulary(std::span<const std::int64_t> tokens, const model::Config& config,
                           ErrorCode code) {
  for (auto token : tokens)
    if (token < 0 || token >= config.vocab_size)
      fail(code, "token id ", token, " is outside the model's vocabulary of ", config.vocab_size);
}

std::int64_t argmax(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::vector<std::int64_t> best_tokens(std::span<const float> logits, std::size_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  const auto value = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
      [&](auto a, auto b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  ids.resize(count);
  return ids;
}

void require_numbers(const Sequence& sequence, const std::string& prompt) {
  const auto& logits = sequence.logits();
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }))
    fail(ErrorCode::numeric, prompt, ", position ", sequence.length(),
         ": the model's logits are not numbers; the weights may be damaged, or --dtype too narrow");
}

}  // namespace kvatlas::capture
