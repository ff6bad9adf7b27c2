// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/engine.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include "analyzer/capture/feed_forward_impl.hpp"
#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/projection_impl.hpp"
#include "analyzer/capture/sequence_impl.hpp"
#include "analyzer/capture/state_layers_impl.hpp"
#include "analyzer/capture/streams_impl.hpp"
#include "analyzer/capture/tensor_memory_impl.hpp"
#include "analyzer/capture/weights_impl.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/free_memory.hpp"
#include "base/interrupt.hpp"

namespace kvatlas::capture {
namespace {

// The program with its libraries.
constexpr std::int64_t kProgramBytes = 224 << 20;
// Logits of many positions are computed in pieces of about this many bytes.
constexpr std::int64_t kLogitBytes = 16 << 20;

at::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "float16") return at::kHalf;
  if (dtype == "bfloat16") return at::kBFloat16;
  return at::kFloat;
}

/// The GPU to make current, so that our own kernels run on it too. There is none on a CPU.
std::optional<c10::Device> device_of(const at::TensorOptions& options) {
  return options.device().is_cuda() ? std::optional(options.device()) : std::nullopt;
}

/// Bytes that a run takes, as far as they can be foreseen.
struct MemoryNeed {
  std::int64_t all_weights = 0;
  std::int64_t two_layers = 0;  // of streamed weights
  std::int64_t laid_out = 0;    // a matrix in oneDNN's layout, beside itself
  std::int64_t in_a_layer = 0;  // intermediate results
  std::int64_t rest = 0;        // program, hidden states, caches
  bool staged = false;          // weights are decoded as float32 first
};

MemoryNeed estimate_memory(const model::ModelFile& model, const EngineOptions& options) {
  const model::Config& c = model.config();
  const at::ScalarType type = scalar_type(options.placement.dtype);
  const auto width = static_cast<std::int64_t>(at::elementSize(type));
  MemoryNeed need;
  std::int64_t largest = 0, largest_matrix = 0;
  for (const auto& layer : model.layers()) {
    const MatrixValues of_layer = matrix_values(layer);
    largest = std::max(largest, width * of_layer.all());
    largest_matrix = std::max(largest_matrix, of_layer.largest);
    need.all_weights += width * of_layer.all();
  }
  need.all_weights +=
      width * (value_count(model.head()) + value_count(model.layer_projection()) +
               value_count(model.stream_starts()) + value_count(model.stream_ends()));
  need.two_layers = 2 * largest;
  need.laid_out = width * largest_matrix;
  need.staged = type != at::kFloat || !at::Device(options.placement.device).is_cpu();
  const std::int64_t kv = 2 * c.n_kv_heads * c.head_dim;
  const std::int64_t attention = c.hidden_size + kv + 3 * c.n_heads * c.head_dim;
  need.in_a_layer =
      width * std::max(options.longest * attention, options.longest * 2 * c.hidden_size +
                                                        feed_forward_values(c, options.longest));
  const std::int64_t a_token = (1 + c.streams.count) * c.hidden_size +
                               c.n_layers * c.layer_input_size +
                               (options.keep_caches ? c.n_layers * kv : 0);
  need.rest = kProgramBytes + width * options.all_tokens * a_token + options.other_bytes +
              room_for_copies(options);
  return need;
}

View<const float, 1> view_of_sinks(const LayerTensors& weights) {
  return weights.sinks.defined() ? view_of<const float, 1>(weights.sinks) : View<const float, 1>();
}

/// [n_heads, keys] bool, where the layer runs.
at::Tensor flags_on(const c10::Device& device,
                    const std::vector<std::vector<std::uint8_t>>& of_heads) {
  const auto keys = std::ssize(of_heads.front());
  const at::Tensor flags = at::empty({std::ssize(of_heads), keys}, at::kByte);
  for (std::size_t h = 0; h < of_heads.size(); ++h)
    std::copy(of_heads[h].begin(), of_heads[h].end(),
              flags.mutable_data_ptr<std::uint8_t>() + static_cast<std::int64_t>(h) * keys);
  return flags.to(device, at::kBool);
}

}  // namespace

struct Engine::State {
  std::shared_ptr<const model::ModelFile> model;
  EngineOptions options;
  at::TensorOptions tensor_options;
  MemoryPlan memory;
  std::optional<WeightStore> weights;
  std::size_t n_states = 0;  // layers without attention

  const model::Config& config() const { return model->config(); }

  /// What follows the attention of a layer, [n, n_heads * head_dim], added to the hidden states.
  void finish_layer(std::int64_t index, const LayerTensors& w, const at::Tensor& attended,
                    const at::Tensor& gate, Carried& carried);
  /// Layers without attention, whose states begin at number `first` of each of `states`.
  void run_others(const std::vector<LayerTensors>& layers, std::size_t first,
                  const at::Tensor& hidden, std::span<std::vector<LayerState>* const> states);

  /// Keys and values of layers, for later layers that have none of their own.
  using KeysOfOthers = std::map<std::int64_t, std::pair<at::Tensor, at::Tensor>>;
  /// Keeps a layer's keys and values, or gives it those of the layer that it reads.
  std::pair<at::Tensor, at::Tensor> share_keys(std::int64_t index, const at::Tensor& key,
                                               const at::Tensor& value, KeysOfOthers& others) const;

  /// What goes through the layers for one step.
  struct Flow {
    Sequence::State* sequence;
    Carried carried;
    KeysOfOthers keys_of_others;
    std::vector<LayerState> states;  // of layers without attention
    std::size_t states_done = 0;
    Rotations rotations;
    std::int64_t logit_rows;
    std::vector<std::optional<kernels::Proximity>> proximal;
    decltype(Step::on_store) on_store;
    decltype(Step::on_query) on_query;
    std::optional<SharedKeys> shared;
    decltype(Step::seen) seen;
    bool forgotten;
    std::vector<at::Tensor> queries;  // [layer] of [n_heads, n, head_dim], if keys are shared
    std::int64_t first() const { return sequence->length; }
  };

  Flow begin(const Step& step);
  /// The queries and keys by which a layer scores distant keys; none if they are its own.
  std::optional<Attention::Shared> shared_with(std::int64_t index, const Flow& flow) const;
  void run_layer(std::int64_t index, const LayerTensors& w, Flow& flow, std::size_t number,
                 const Observers& observers);
  std::pair<at::Tensor, at::Tensor> remember(std::int64_t index, Sequence::State& sequence,
                                             const at::Tensor& key, const at::Tensor& value);
  static std::pair<at::Tensor, at::Tensor> behind(std::int64_t index,
                                                  const Sequence::State& sequence,
                                                  const at::Tensor& key, const at::Tensor& value);
  void emit_logits(Flow& flow, std::size_t number, Logits wanted, const LogitsObserver& observer);
  /// The logits of rows start .. start + a piece of hidden states, on the host.
  at::Tensor logits_piece(const at::Tensor& hidden, std::int64_t start);
  void give_logits(std::span<const ContinuationStep> steps, const at::Tensor& hidden);
};

Engine::Engine(std::shared_ptr<const model::ModelFile> model, const EngineOptions& options)
    : state_(std::make_unique<State>()) {
  reuse_memory_of_tensors();
  State& s = *state_;
  s.model = std::move(model);
  s.options = options;
  const at::Device device(options.placement.device);
  s.tensor_options = at::TensorOptions(device).dtype(scalar_type(options.placement.dtype));
  for (const auto& layer : s.model->layers())
    s.n_states += layer.before.size() + layer.after.size();
  s.memory = plan_memory(*s.model, options);
  require_memory(s.memory, options);
  s.weights.emplace(s.model, s.tensor_options, s.memory.streaming);
}

std::int64_t room_for_copies(const EngineOptions& options) {
  return options.memory_budget > 0 ? std::min(options.copy_bytes, options.memory_budget / 4)
                                   : options.copy_bytes;
}

MemoryPlan plan_memory(const model::ModelFile& model, const EngineOptions& options) {
  const MemoryNeed need = estimate_memory(model, options);
  MemoryPlan plan;
  plan.weight_bytes = need.all_weights;
  const std::int64_t resident = need.all_weights + need.laid_out + need.in_a_layer + need.rest;
  plan.streaming = options.weights == EngineOptions::Weights::streaming;
  const bool on_host = at::Device(options.placement.device).is_cpu();
  const std::int64_t room = options.memory_budget > 0 ? options.memory_budget : free_memory();
  if (options.weights == EngineOptions::Weights::automatic &&
      (options.memory_budget > 0 || on_host))
    plan.streaming = resident > room;
  // Weights in float32 are decoded where they are multiplied. Then a piece of the head is staged
  // alone, when no layer runs.
  const std::int64_t streamed = need.two_layers + need.rest +
                                (need.staged ? kStagingBytes + need.laid_out + need.in_a_layer
                                             : std::max(kStagingBytes, need.in_a_layer));
  plan.held_weight_bytes = plan.streaming ? need.two_layers + kStagingBytes : need.all_weights;
  plan.total_bytes = plan.streaming ? streamed : resident;
  plan.least_bytes = std::min(streamed, resident);
  return plan;
}

void require_memory(const MemoryPlan& plan, const EngineOptions& options) {
  if (!plan.streaming || options.memory_budget == 0 || plan.total_bytes <= options.memory_budget)
    return;
  const std::int64_t fixed = plan.least_bytes - room_for_copies(options);
  // Of a larger budget copies take more.
  const std::int64_t least = fixed + std::min(options.copy_bytes, (fixed + 2) / 3);
  fail(ErrorCode::resource, "the memory allowed (--memory-budget, ulimit -v), ",
       bytes_str(options.memory_budget), ", is too small: these prompts need about ",
       enough_bytes_str(least),
       plan.least_bytes == plan.total_bytes ? " even with weights streamed layer by layer" : "");
}

Engine::~Engine() = default;
const model::ModelFile& Engine::model() const { return *state_->model; }
bool Engine::has_layer_states() const { return state_->n_states > 0; }
bool Engine::streaming() const { return state_->weights->streaming(); }

std::string Engine::plan() const {
  const State& s = *state_;
  const std::string all = bytes_str(s.memory.weight_bytes);
  return str(device_text(s.options.placement), ", ", s.options.placement.dtype, ", weights ",
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

Sequence Engine::load(const ReadBytes& read) const {
  auto state = std::make_unique<Sequence::State>();
  const c10::InferenceMode no_gradients;
  state->load(read, state_->tensor_options.device());
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
  const c10::InferenceMode no_gradients;
  const c10::OptionalDeviceGuard device(device_of(s.tensor_options));
  std::vector<State::Flow> flows;
  for (const auto& step : steps) flows.push_back(s.begin(step));
  const auto n_layers = static_cast<std::int64_t>(s.model->layers().size());
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    const LayerTensors& weights = s.weights->layer(layer);
    for (std::size_t i = 0; i < flows.size(); ++i)
      s.run_layer(layer, weights, flows[i], i, observers);
    stop_if_interrupted();
    if (observers.progress) observers.progress(layer + 1);
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    join_streams(*s.weights, s.config(), flows[i].carried);
    s.emit_logits(flows[i], i, logits, observers.logits);
    if (flows[i].forgotten) continue;
    Sequence::State& sequence = *flows[i].sequence;
    sequence.before = sequence.now;
    sequence.before_length = sequence.length;
    sequence.now.state_ =
        std::make_shared<LayerStates::State>(LayerStates::State{std::move(flows[i].states)});
    sequence.length += flows[i].carried.hidden.size(0);
  }
}

Engine::State::Flow Engine::State::begin(const Step& step) {
  Flow flow;
  flow.sequence = step.sequence->state_.get();
  flow.carried = carried_into(*weights, config(), step.tokens);
  flow.logit_rows = step.logit_rows;
  if (const auto& now = flow.sequence->now.state_) flow.states = now->layers;
  flow.states.resize(n_states);
  flow.proximal = step.proximal;
  flow.on_store = step.on_store;
  flow.on_query = step.on_query;
  flow.shared = step.shared;
  flow.seen = step.seen;
  flow.forgotten = step.forgotten;
  flow.rotations = rotations(config(), flow.first(), static_cast<std::int64_t>(step.tokens.size()),
                             tensor_options.device());
  return flow;
}

std::optional<Attention::Shared> Engine::State::shared_with(std::int64_t index,
                                                            const Flow& flow) const {
  if (!flow.shared) return std::nullopt;
  const model::Config& c = config();
  const std::int64_t group = c.n_heads / c.n_kv_heads,
                     total = flow.first() + flow.carried.hidden.size(0);
  std::vector<at::Tensor> queries, keys;
  bool others = false;
  for (std::int64_t h = 0; h < c.n_heads; ++h) {
    const std::int64_t lowest = flow.shared->lowest[h][index];
    others |= lowest != index;
    queries.push_back(flow.queries[lowest][h]);
    keys.push_back(flow.sequence->layers[lowest].key[h / group].narrow(0, 0, total));
  }
  if (!others) return std::nullopt;
  return Attention::Shared{at::stack(queries), at::stack(keys), flow.shared->proximal};
}

void Engine::State::run_layer(std::int64_t index, const LayerTensors& w, Flow& flow,
                              std::size_t number, const Observers& observers) {
  const model::Config& c = config();
  const KeyWindow window = c.key_window(index);
  std::vector<LayerState>* const states = &flow.states;
  const at::Tensor& hidden = flow.carried.hidden;
  run_others(w.before, flow.states_done, hidden, {&states, 1});
  flow.states_done += w.before.size();
  predict_streams(w, c, flow.carried);
  const Projected projected =
      project(c, index, w, hidden, flow.rotations, [&](const Projected& unturned) {
        if (observers.queries)
          observers.queries(index, number,
                            any_view<3>(filled_up(unturned.query, c.head_dim).transpose(0, 1)));
        if (observers.reach && unturned.key.defined()) {
          const at::Tensor reach = head_reach(c, index, w, unturned).cpu().contiguous();
          observers.reach(index, number,
                          {reach.const_data_ptr<float>(), static_cast<std::size_t>(reach.numel())});
        }
      });
  at::Tensor key, value;
  if (const auto owner = c.shape(index).keys_of; owner == index) {
    key = projected.key.transpose(0, 1);
    value = projected.value.transpose(0, 1);
    if (flow.on_store) flow.on_store(index, any_view<3>(key), any_view<3>(value));
    if (flow.sequence->keep_cache)
      std::tie(key, value) = flow.forgotten ? behind(index, *flow.sequence, key, value)
                                            : remember(index, *flow.sequence, key, value);
  } else if (flow.sequence->keep_cache) {
    flow.sequence->layers[index] = flow.sequence->layers[owner];
  }
  std::tie(key, value) = share_keys(index, key, value, flow.keys_of_others);
  if (observers.value_outputs)
    observers.value_outputs(index, number, any_view<2>(value_outputs(c, index, w, value)));
  const at::Tensor query = projected.query.transpose(0, 1);
  if (flow.on_query) flow.on_query(index, any_view<3>(query));
  const auto proximal = flow.proximal.empty() ? std::nullopt : flow.proximal[index];
  if (flow.shared) flow.queries.push_back(query);
  AttentionInputs inputs{.layer = index,
                         .sequence = number,
                         .query = any_view<3>(query),
                         .key = any_view<3>(key),
                         .value = any_view<3>(value),
                         .logsumexp = {},
                         .scale = c.attention_scale,
                         .softcap = c.attention_softcap,
                         .window = window,
                         .sinks = view_of_sinks(w)};
  std::optional<Attention::Seen> seen;
  if (flow.seen) {
    const SeenKeys keys = flow.seen(inputs);
    seen = {flags_on(query.device(), keys.columns), flags_on(query.device(), keys.diagonals)};
  }
  const Attended attended = attend({query, key, value, c.attention_scale, c.attention_softcap,
                                    window, w.sinks, proximal, shared_with(index, flow), seen});
  if (attended.logsumexp.defined()) inputs.logsumexp = any_view<2>(attended.logsumexp);
  if (observers.attention) observers.attention(inputs);

  finish_layer(index, w, attended.out, projected.gate, flow.carried);
  run_others(w.after, flow.states_done, hidden, {&states, 1});
}

void Engine::State::run_others(const std::vector<LayerTensors>& layers, std::size_t first,
                               const at::Tensor& hidden,
                               std::span<std::vector<LayerState>* const> states) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<LayerState*> of_layer;
    for (auto* all : states) of_layer.push_back(&(*all)[first + i]);
    run_state_layer(config(), layers[i], hidden, of_layer);
  }
}

void Engine::State::finish_layer(std::int64_t index, const LayerTensors& w,
                                 const at::Tensor& attended, const at::Tensor& gate,
                                 Carried& carried) {
  const model::Config& c = config();
  const at::Tensor out = project_back(c, index, w, attended, gate);
  const auto least_gate = c.sparse_gates.empty() ? std::nullopt : c.sparse_gates[index];
  if (c.parallel_block) feed_forward(c, w, carried.hidden);
  add_attention(w, c, out, carried.hidden);
  if (!c.parallel_block) feed_forward(c, w, carried.hidden, least_gate);
  end_layer(w, c, index, carried);
}

std::pair<at::Tensor, at::Tensor> Engine::State::share_keys(std::int64_t index,
                                                            const at::Tensor& key,
                                                            const at::Tensor& value,
                                                            KeysOfOthers& others) const {
  const auto& shapes = config().shapes;
  if (shapes.empty()) return {key, value};
  if (shapes[index].keys_of != index) return others.at(shapes[index].keys_of);
  const bool read_later = std::any_of(shapes.begin() + index + 1, shapes.end(),
                                      [&](const auto& shape) { return shape.keys_of == index; });
  if (read_later) others[index] = {key, value};
  return {key, value};
}

namespace {

/// Which rows there are in a layer: those of the first continuations, in their order. The others
/// are still one with what they branch from.
class BranchedRows {
 public:
  explicit BranchedRows(const ContinuationStep& step)
      : branches_(step.branches), row_of_(step.tokens.size()), rows_(row_of_.size()) {
    std::iota(row_of_.begin(), row_of_.end(), 0);
  }

  /// Goes on to a layer, and gives [row] which one it was before.
  std::vector<std::int64_t> enter(std::int64_t layer) {
    if (!branches_.empty())
      rows_ = static_cast<std::size_t>(
          std::distance(branches_.begin(),
                        std::find_if(branches_.begin(), branches_.end(),
                                     [&](const Branch& branch) { return branch.layer > layer; })));
    std::vector<std::int64_t> was(row_of_.begin(), row_of_.begin() + count());
    for (std::size_t i = 0; i < row_of_.size(); ++i)
      row_of_[i] = i < rows_ ? static_cast<std::int64_t>(i) : row_of_[branches_[i].of];
    return was;
  }
  std::int64_t count() const { return static_cast<std::int64_t>(rows_); }
  const std::vector<std::int64_t>& row_of() const { return row_of_; }

 private:
  std::span<const Branch> branches_;
  std::vector<std::int64_t> row_of_;  // [continuation]
  std::size_t rows_;
};

/// Appends what is numbered from 0 on to what is numbered from `start` on.
void append_from(std::int64_t start, const std::vector<std::int64_t>& numbers,
                 std::vector<std::int64_t>& to) {
  for (const auto number : numbers) to.push_back(start + number);
}

/// The turns of all rows, those of each step at its position.
Rotations turns_of(const std::vector<Rotations>& steps, const std::vector<BranchedRows>& rows) {
  const auto of_rows = [&](const auto& part) {
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (const at::Tensor& of_step = part(steps[i]); of_step.defined())
        all.push_back(of_step.repeat_interleave(rows[i].count(), 0));
    return all.empty() ? at::Tensor() : at::cat(all);
  };
  return {{of_rows([](const Rotations& of) { return of.global.cosine; }),
           of_rows([](const Rotations& of) { return of.global.sine; })},
          {of_rows([](const Rotations& of) { return of.local.cosine; }),
           of_rows([](const Rotations& of) { return of.local.sine; })},
          of_rows([](const Rotations& of) { return of.temperature; })};
}

}  // namespace

void Engine::run_continuations(std::span<const ContinuationStep> steps) {
  State& s = *state_;
  const model::Config& c = s.config();
  if (steps.empty()) return;
  const c10::InferenceMode no_gradients;
  const c10::OptionalDeviceGuard device(device_of(s.tensor_options));
  std::vector<std::int64_t> tokens;
  std::vector<std::vector<LayerState>> layer_states;
  std::vector<Rotations> turn;
  std::vector<BranchedRows> branched;
  for (const ContinuationStep& step : steps) {
    tokens.insert(tokens.end(), step.tokens.begin(), step.tokens.end());
    for (const auto* of : step.states) layer_states.push_back(of->state_->layers);
    turn.push_back(rotations(c, step.position, 1, s.tensor_options.device()));
    branched.emplace_back(step);
  }
  require_in_vocabulary(tokens, c, ErrorCode::internal);
  std::vector<std::vector<LayerState>*> of_rows;
  for (auto& of : layer_states) of_rows.push_back(&of);
  std::size_t states_done = 0;
  Carried carried = carried_into(*s.weights, c, {tokens.begin(), tokens.end()});
  const at::Tensor& hidden = carried.hidden;
  State::KeysOfOthers keys_of_others;
  Rotations turns;
  at::Tensor out;
  const auto choose = [&](const std::vector<std::int64_t>& rows) {
    const at::Tensor index = at::tensor(rows, at::kLong).to(hidden.device());
    carried.choose(index);
    for (auto& [of, keys] : keys_of_others)
      keys = {keys.first.index_select(0, index), keys.second.index_select(0, index)};
  };
  std::int64_t rows_before = std::ssize(tokens);
  const auto n_layers = static_cast<std::int64_t>(s.model->layers().size());
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    std::vector<std::int64_t> was;
    std::int64_t start = 0;
    for (auto& of_step : branched) {
      const std::int64_t before = of_step.count();
      append_from(start, of_step.enter(layer), was);
      start += before;
    }
    if (std::ssize(was) != rows_before) choose(was);
    rows_before = std::ssize(was);
    if (!out.defined() || out.size(0) != rows_before) {
      out = at::empty({rows_before, c.n_heads, c.head_dim}, s.tensor_options.dtype(at::kFloat));
      turns = turns_of(turn, branched);
    }
    const LayerTensors& weights = s.weights->layer(layer);
    s.run_others(weights.before, states_done, hidden, of_rows);
    states_done += weights.before.size();
    predict_streams(weights, c, carried);
    const Projected rows = project(c, layer, weights, hidden, turns);
    const auto [key, value] = s.share_keys(layer, rows.key, rows.value, keys_of_others);
    start = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::int64_t count = branched[i].count();
      const auto of_step = [&](const at::Tensor& all) { return all.narrow(0, start, count); };
      at::Tensor to = of_step(out);
      steps[i].attention({.layer = layer,
                          .position = steps[i].position,
                          .row_of = branched[i].row_of(),
                          .query = any_view<3>(of_step(rows.query)),
                          .key = any_view<3>(of_step(key)),
                          .value = any_view<3>(of_step(value)),
                          .scale = c.attention_scale,
                          .softcap = c.attention_softcap,
                          .window = c.key_window(layer),
                          .sinks = view_of_sinks(weights),
                          .out = view_of<float, 3>(to)});
      start += count;
    }
    s.finish_layer(layer, weights, out.flatten(1).to(hidden.scalar_type()), rows.gate, carried);
    s.run_others(weights.after, states_done, hidden, of_rows);
    stop_if_interrupted();
  }
  if (rows_before < std::ssize(tokens)) {
    std::vector<std::int64_t> row_of;
    std::int64_t start = 0;
    for (const auto& of_step : branched) {
      append_from(start, of_step.row_of(), row_of);
      start += of_step.count();
    }
    choose(row_of);
  }
  auto state = layer_states.begin();
  for (const ContinuationStep& step : steps)
    for (auto* of : step.states)
      of->state_ = std::make_shared<LayerStates::State>(LayerStates::State{std::move(*state++)});
  join_streams(*s.weights, c, carried);
  s.give_logits(steps, hidden);
}

/// Pieces of the rows of logits, which need not end where a step's rows end.
void Engine::State::give_logits(std::span<const ContinuationStep> steps, const at::Tensor& hidden) {
  std::int64_t start = 0, first = 0;  // of the piece, and of the step
  at::Tensor piece;
  for (const ContinuationStep& step : steps) {
    const std::int64_t end = first + std::ssize(step.tokens);
    for (std::int64_t row = first; row < end;) {
      if (!piece.defined() || row == start + piece.size(0)) {
        start = row;
        piece = logits_piece(hidden, start);
      }
      const std::int64_t count = std::min(end, start + piece.size(0)) - row;
      step.logits(row - first, {piece.const_data_ptr<float>() + (row - start) * config().vocab_size,
                                {count, config().vocab_size}});
      row += count;
    }
    first = end;
  }
}

/// Appends keys and values [K, n, d] to a layer's cache and gives all of it, [K, n_all, d].
std::pair<at::Tensor, at::Tensor> Engine::State::remember(std::int64_t index,
                                                          Sequence::State& sequence,
                                                          const at::Tensor& key,
                                                          const at::Tensor& value) {
  auto& layer = sequence.layers[index];
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

/// The same without appending them.
std::pair<at::Tensor, at::Tensor> Engine::State::behind(std::int64_t index,
                                                        const Sequence::State& sequence,
                                                        const at::Tensor& key,
                                                        const at::Tensor& value) {
  const auto& layer = sequence.layers[index];
  return {at::cat({layer.key.narrow(1, 0, sequence.length), key}, 1),
          at::cat({layer.value.narrow(1, 0, sequence.length), value}, 1)};
}

void Engine::State::emit_logits(Flow& flow, std::size_t number, Logits wanted,
                                const LogitsObserver& observer) {
  if (wanted == Logits::none) return;
  const model::Config& c = config();
  const at::Tensor& hidden = flow.carried.hidden;
  const std::int64_t n = hidden.size(0);
  const std::int64_t count = wanted == Logits::all ? std::min(n, flow.logit_rows) : 1;
  for (std::int64_t start = n - count; start < n;) {
    const at::Tensor logits = logits_piece(hidden, start);
    const float* data = logits.const_data_ptr<float>();
    if (wanted == Logits::all && observer)
      observer(number, flow.first() + start, {data, {logits.size(0), c.vocab_size}});
    start += logits.size(0);
    if (start >= n)
      flow.sequence->logits.assign(data + (logits.size(0) - 1) * c.vocab_size,
                                   data + logits.size(0) * c.vocab_size);
  }
}

at::Tensor Engine::State::logits_piece(const at::Tensor& hidden, std::int64_t start) {
  const model::Config& c = config();
  const std::int64_t piece = std::max<std::int64_t>(1, kLogitBytes / (4 * c.vocab_size));
  const at::Tensor rows = hidden.narrow(0, start, std::min(piece, hidden.size(0) - start));
  return weights->logits(norm(rows, weights->final_norm(), weights->final_norm_bias(), c)).cpu();
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
  const auto value = [&](std::int64_t id) { return logits[id]; };
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
