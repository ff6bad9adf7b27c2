// SPDX-License-Identifier: Apache-2.0
#include "analyzer/config/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "analyzer/config/config_files.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::model {

namespace {

// They stand in the order of Architecture.
constexpr std::array kArchitectures = {
    "llama",       "mistral",      "qwen2",      "qwen3",
    "internlm2",   "phi3",         "gemma2",     "gemma3",
    "apertus",     "arcee",        "cohere2",    "dots1",
    "ernie4_5",    "ernie4_5_moe", "exaone4",    "glm4",
    "glm4_moe",    "granite",      "granitemoe", "hunyuan_v1_dense",
    "minimax_m2",  "ministral",    "mixtral",    "nemotron",
    "olmo2",       "olmo3",        "olmoe",      "phi",
    "phimoe",      "qwen2_moe",    "qwen3_moe",  "seed_oss",
    "smollm3",     "stablelm",     "starcoder2", "gpt_oss",
    "lfm2",        "qwen3_next",   "qwen3_5",    "qwen3_5_moe",
    "deepseek_v2", "deepseek_v3",  "gemma4",     "granitemoehybrid",
    "gemma3n",     "llama4"};
static_assert(kArchitectures.size() == static_cast<std::size_t>(Architecture::llama4) + 1);
// They stand in the order of Activation.
constexpr std::array kActivations = {"silu",  "gelu_tanh", "gelu",
                                     "relu2", "xielu",     "clamped_swiglu"};
static_assert(kActivations.size() == static_cast<std::size_t>(Activation::clamped_swiglu) + 1);
// They stand in the order of RopeKind.
constexpr std::array kRopeKinds = {"default", "linear",   "dynamic",     "llama3",
                                   "yarn",    "longrope", "proportional"};
static_assert(kRopeKinds.size() == static_cast<std::size_t>(RopeKind::proportional) + 1);

}  // namespace

const char* architecture_name(Architecture architecture) {
  return kArchitectures[static_cast<std::size_t>(architecture)];
}

const char* rope_kind_name(RopeKind kind) { return kRopeKinds[static_cast<std::size_t>(kind)]; }

const char* activation_name(Activation activation) {
  return kActivations[static_cast<std::size_t>(activation)];
}

void Config::rotate_windows_alone() {
  rotated.clear();
  for (const auto size : window) rotated.push_back(size > 0 ? 1 : 0);
}

std::int64_t Config::cached_values(std::int64_t layer) const {
  if (latent.rank > 0) return latent.rank + latent.rotated_dim;
  const LayerShape sizes = shape(layer);
  return sizes.keys_of == layer ? sizes.kv_heads * (sizes.head_dim + sizes.value_dim) : 0;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names(kArchitectures.begin(), kArchitectures.end());
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t lending_layer(const Config& config, std::int64_t layer, std::int64_t first) {
  for (std::int64_t lender = first - 1; lender >= 0; --lender)
    if ((config.window[lender] == 0) == (config.window[layer] == 0)) return lender;
  fail(ErrorCode::unreadable, "layer ", layer,
       " reads the keys of an earlier layer of its kind, and there is none");
}

void keep_attention_layers(Config& config) {
  if (config.layer_numbers.empty()) return;
  const auto keep = [&](auto& list) {
    if (list.empty()) return;
    auto kept = list;
    kept.clear();
    for (const auto number : config.layer_numbers) kept.push_back(list[number]);
    list = std::move(kept);
  };
  keep(config.window);
  keep(config.rotated);
  config.n_layers = std::ssize(config.layer_numbers);
}

void fail_architecture(std::string_view name, const std::vector<std::string>& known) {
  fail(ErrorCode::unsupported, "the architecture ", quoted(name),
       " is not supported; these are: ", join(known));
}

namespace {

void check_rope(const Rope& rope, std::int64_t rotary_dim) {
  const auto check_factors = [&](const std::vector<double>& factors, const char* name,
                                 bool needed) {
    if (factors.empty() && !needed) return;
    if (static_cast<std::int64_t>(factors.size()) != rotary_dim / 2)
      fail(ErrorCode::unreadable, "rope ", name, ": ", factors.size(), " values, expected ",
           rotary_dim / 2, " (half the rotary dimension)");
    for (double factor : factors)
      if (!(factor > 0.0) || !std::isfinite(factor))
        fail(ErrorCode::unreadable, "rope ", name, ": found ", factor,
             ", expected positive numbers");
  };
  // Logarithms of both are divided by.
  if (!(rope.theta > 1.0))
    fail(ErrorCode::unreadable, "rope theta ", rope.theta, ", expected more than 1");
  const bool longrope = rope.kind == RopeKind::longrope;
  if (longrope && rope.original_context < 2)
    fail(ErrorCode::unreadable, "rope original context length ", rope.original_context,
         ", expected at least 2");
  check_factors(rope.short_factor, "short_factor", longrope);
  check_factors(rope.long_factor, "long_factor", longrope);
  check_factors(rope.divisors, "frequency divisors", false);
  if (rope.kind == RopeKind::dynamic && rotary_dim == 2)
    fail(ErrorCode::unreadable, "dynamic rope scaling with a rotary dimension of 2, expected more");
  if (rope.kind == RopeKind::llama3 && !(rope.high_freq_factor > rope.low_freq_factor))
    fail(ErrorCode::unreadable, "rope high_freq_factor ", rope.high_freq_factor,
         ", expected more than low_freq_factor, ", rope.low_freq_factor);
}

void check_experts(const Config& config) {
  const Experts& experts = config.experts;
  if (experts.count == 0) return;
  if (experts.active < 1 || experts.active > experts.count)
    fail(ErrorCode::unreadable, experts.active, " experts a token, expected 1 to the ",
         experts.count, " that there are");
  if (experts.score == Experts::Score::sparse_mixer && experts.active != 2)
    fail(ErrorCode::unsupported, experts.active,
         " experts a token under Phi's sparse mixer, which chooses 2");
  if (experts.groups < 1 || experts.count % experts.groups != 0 ||
      (experts.groups > 1 && experts.count / experts.groups < experts.best_of_group))
    fail(ErrorCode::unreadable, experts.groups, " groups of ", experts.count,
         " experts, expected a divisor that leaves ", experts.best_of_group, " in a group");
  if (experts.active_groups < 1 || experts.active_groups > experts.groups ||
      experts.active > experts.active_groups * (experts.count / experts.groups))
    fail(ErrorCode::unreadable, experts.active_groups, " groups to choose ", experts.active,
         " experts from, expected some of ", experts.groups, " that hold as many");
}

}  // namespace

namespace {

void check_shapes(const Config& config) {
  for (std::int64_t layer = 0; layer < std::ssize(config.shapes); ++layer) {
    const LayerShape& shape = config.shapes[layer];
    if (config.n_heads % shape.kv_heads != 0 || config.n_kv_heads % shape.kv_heads != 0)
      fail(ErrorCode::unsupported, "layer ", layer, " has ", shape.kv_heads,
           " key-value heads, expected a divisor of ", config.n_heads,
           " attention heads and of the ", config.n_kv_heads,
           " key-value heads that other layers have");
  }
}

}  // namespace

void check_consistency(const Config& config) {
  if (config.n_heads % config.n_kv_heads != 0)
    fail(ErrorCode::unreadable, config.n_heads, " attention heads, expected a multiple of the ",
         config.n_kv_heads, " key-value heads");
  if (config.n_heads * config.head_dim > Limits::width)
    fail(ErrorCode::unreadable, config.n_heads, " heads of ", config.head_dim,
         " values, expected at most ", Limits::width, " together");
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim)
    fail(ErrorCode::unreadable, "a rotary dimension of ", config.rotary_dim,
         ", expected an even number from 2 to the head dimension, ", config.head_dim);
  check_experts(config);
  check_shapes(config);
  check_rope(config.rope, config.rotary_dim);
  if (config.local_rope) check_rope(*config.local_rope, config.local_rotary_dim);
}

}  // namespace kvatlas::model
