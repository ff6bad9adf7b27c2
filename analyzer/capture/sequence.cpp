// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analyzer/capture/sequence_impl.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"

namespace kvatlas::capture {

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;
std::int64_t Sequence::length() const { return state_->length; }
const std::vector<float>& Sequence::logits() const { return state_->logits; }

LayerStates Sequence::layer_states(std::int64_t length) const {
  if (length == state_->length) return state_->now;
  if (length == state_->before_length) return state_->before;
  fail(ErrorCode::internal, "the states of layers after ", length, " tokens were asked for");
}

Sequence::Cache Sequence::cache(std::int64_t layer) const {
  const auto& held = state_->layers[layer];
  return {any_view<3>(held.key.narrow(1, 0, state_->length)),
          any_view<3>(held.value.narrow(1, 0, state_->length))};
}

std::int64_t Sequence::bytes() const {
  auto bytes = static_cast<std::int64_t>(state_->logits.size() * sizeof(float));
  for (std::size_t i = 0; i < state_->layers.size(); ++i)
    if (state_->owner(i) == i)
      bytes += bytes_of(state_->layers[i].key) + bytes_of(state_->layers[i].value);
  for (const auto* states : {&state_->now, &state_->before})
    if (states->state_)
      for (const auto& layer : states->state_->layers)
        bytes += bytes_of(layer.conv) + bytes_of(layer.memory);
  return bytes;
}

void Sequence::save(const WriteBytes& write) const { state_->save(write); }

std::size_t Sequence::State::owner(std::size_t layer) const {
  const auto same = std::find_if(layers.begin(), layers.end(), [&](const Layer& other) {
    return other.key.is_same(layers[layer].key);
  });
  return static_cast<std::size_t>(same - layers.begin());
}

void Sequence::State::save(const WriteBytes& write) const {
  std::vector<std::int64_t> numbers = {before_length, length};
  for (std::size_t i = 0; i < layers.size(); ++i)
    numbers.push_back(static_cast<std::int64_t>(owner(i)));
  write_values(write, numbers);
  write_values(write, logits);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (owner(i) != i) continue;
    write_tensor(write, layers[i].key.narrow(1, 0, length));
    write_tensor(write, layers[i].value.narrow(1, 0, length));
  }
  for (const auto* states : {&before, &now}) {
    const std::vector<LayerState> none;
    const auto& of_layers = states->state_ ? states->state_->layers : none;
    write_values<std::size_t>(write, {of_layers.size()});
    for (const auto& layer : of_layers) {
      write_tensor(write, layer.conv);
      write_tensor(write, layer.memory);
    }
  }
}

void Sequence::State::load(const ReadBytes& read, const at::Device& device) {
  const auto numbers = read_values<std::int64_t>(read);
  before_length = numbers[0];
  length = numbers[1];
  logits = read_values<float>(read);
  for (std::size_t i = 0; i + 2 < numbers.size(); ++i) {
    const auto owner = static_cast<std::size_t>(numbers[i + 2]);
    if (owner < i) {
      layers.push_back(layers[owner]);
      continue;
    }
    at::Tensor key = read_tensor(read, device);
    layers.push_back({std::move(key), read_tensor(read, device)});
  }
  for (auto* states : {&before, &now}) {
    LayerStates::State of_layers;
    of_layers.layers.resize(read_values<std::size_t>(read).front());
    for (auto& layer : of_layers.layers) {
      layer.conv = read_tensor(read, device);
      layer.memory = read_tensor(read, at::kCPU);
    }
    states->state_ = std::make_shared<const LayerStates::State>(std::move(of_layers));
  }
}

}  // namespace kvatlas::capture
