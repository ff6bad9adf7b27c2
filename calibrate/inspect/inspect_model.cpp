// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analyzer/config/cache_card.hpp"
#include "base/error.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

/// The layers that hold tokens, each with the numbers of a token and its own window or chunk.
CacheShape shape_of(const model::CacheCard& cache) {
  CacheShape shape{.layers = 0, .kv_heads = 1, .head_dim = 1};
  for (const auto& layer : cache.layers)
    if (layer.values_per_token() > 0) {
      ++shape.layers;
      shape.values.push_back(layer.values_per_token());
      shape.windows.push_back(layer.tokens);
    }
  return shape;
}

/// Pools of equal groups are counted for layers that take alike.
void require_alike(const Runtime& runtime, const model::CacheCard& cache, const CacheShape& shape) {
  const bool states = std::any_of(cache.layers.begin(), cache.layers.end(), [](const auto& layer) {
    return layer.kind == model::CachedLayer::Kind::state;
  });
  const bool unlike = std::adjacent_find(shape.values.begin(), shape.values.end(),
                                         std::not_equal_to<>()) != shape.values.end();
  if (runtime.equal_groups && (states || unlike))
    fail(ErrorCode::usage, runtime.title, " has one pool for all layers, and ",
         states ? "some of this model's have no attention"
                : "this model's take unequal bytes a token",
         ": how it is shared out is not known, so leave out --as");
}

SequenceCache in_format(const CacheLoad& load, const model::CacheCard& cache, KvFormat format) {
  Policy policy{.name = "full", .parts = {}};
  if (format != KvFormat::f16) {
    Precision part{.everywhere = {format, format}};
    part.fixed = layer_formats(part, load.shape.layers);
    for (std::int64_t l = 0; l < load.shape.layers && load.runtime; ++l)
      if (spares_layer(load.runtime->formats_taken, format, l, load.shape.layers))
        (*part.fixed)[static_cast<std::size_t>(l)] = {};
    policy.parts = {part};
  }
  SequenceCache out{std::string(format == KvFormat::f16 ? "16 bits" : facts_of(format).word),
                    bits_of(format, load.shape.head_dim)};
  const CacheBytes bytes = cache_bytes(policy, load);
  std::size_t next = 0;
  for (const auto& layer : cache.layers) {
    const LayerBytes of = layer.values_per_token() > 0 ? bytes.layers[next++] : LayerBytes{};
    out.layers.push_back({of.tokens, of.bytes});
  }
  out.bytes = bytes.total();
  return out;
}

std::vector<SequenceCache> cache_in(const model::CacheCard& cache, const std::string& name,
                                    std::int64_t tokens) {
  CacheLoad load{.shape = shape_of(cache), .prompt = tokens};
  if (name.empty()) {
    std::vector<SequenceCache> out = {in_format(load, cache, KvFormat::f16),
                                      in_format(load, cache, KvFormat::fp8)};
    out.back().format = "8 bits";  // whatever they say
    return out;
  }
  const Runtime& runtime = runtime_named(name);
  load.runtime = &runtime;
  require_alike(runtime, cache, load.shape);
  std::vector<SequenceCache> out = {in_format(load, cache, KvFormat::f16)};
  for (const KvFormat format : runtime.formats_taken.formats)
    if (lack_of_format(format, load.shape.head_dim).empty())
      out.push_back(in_format(load, cache, format));
  return out;
}

}  // namespace

CacheOfSequence caches_of_sequences() { return cache_in; }

}  // namespace kvatlas::calibrate
