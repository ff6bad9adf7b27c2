// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/config.hpp"

#include <array>
#include <cmath>

#include "analyzer/model/config_files.hpp"
#include "base/error.hpp"

namespace kvatlas::model {

namespace {

// They stand in the order of Architecture.
constexpr std::array kArchitectures = {"llama",     "mistral", "qwen2",  "qwen3",
                                       "internlm2", "phi3",    "gemma2", "gemma3"};
static_assert(kArchitectures.size() == static_cast<std::size_t>(Architecture::gemma3) + 1);
// They stand in the order of RopeKind.
constexpr std::array kRopeKinds = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
static_assert(kRopeKinds.size() == static_cast<std::size_t>(RopeKind::longrope) + 1);

}  // namespace

const char* architecture_name(Architecture architecture) {
  return kArchitectures[static_cast<std::size_t>(architecture)];
}

const char* rope_kind_name(RopeKind kind) { return kRopeKinds[static_cast<std::size_t>(kind)]; }

void fail_mixture_of_experts(std::string_view architecture) {
  fail(ErrorCode::unsupported, "the model (", printable(architecture),
       ") is a mixture of experts, which is not supported");
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
  check_rope(config.rope, config.rotary_dim);
  if (config.local_rope) check_rope(*config.local_rope, config.rotary_dim);
}

}  // namespace kvatlas::model
