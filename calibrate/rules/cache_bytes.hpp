// SPDX-License-Identifier: Apache-2.0
// Bytes, not ratios: what a policy's KV cache takes, layer by layer, and how much fits a memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

/// The share of inputs in which a layer (a row of one entry) or its KV heads are trimmed.
using LazyRates = std::vector<std::vector<double>>;

CacheShape cache_shape(const ModelInfo& model);

/// One sequence.
struct CacheLoad {
  CacheShape shape;
  std::int64_t prompt = 0;      // tokens, after which the cache is cut
  std::int64_t new_tokens = 0;  // generated behind them
  /// Of a policy that decides by the input, for the mean; without them nothing counts as trimmed,
  /// which is the most that it can take.
  std::optional<LazyRates> lazy_rates = {};
  /// Of a PoD without blocks: the share of each layer's KV heads whose distant keys are dropped.
  std::vector<double> keys_dropped = {};
  const Runtime* runtime = nullptr;  // whose blocks and pools it lies in; none: as many as needed
  bool before_cut = false;           // the prompt is read, and nothing is dropped yet
};

struct LayerBytes {
  double tokens = 0;  // of the KV head that keeps most; a mean where the input decides
  double bytes = 0;
};
struct CacheBytes {
  std::vector<LayerBytes> layers;
  double padding = 0;     // bytes of a pool's layers that hold nothing
  bool by_input = false;  // figures are a mean, or the most where rates are unknown
  double total() const;
};
/// Error(usage) for fixed layers or budgets of another model.
CacheBytes cache_bytes(const Policy& policy, const CacheLoad& load);

/// Bytes of the full cache of so many prompt tokens / bytes of what the part keeps of it.
double kv_ratio(const Part& part, const CacheShape& shape, std::int64_t prompt);

/// What a document says of how often layers are lazy: of the policy's section. None: nothing, or
/// the policy does not decide by the input.
std::optional<LazyRates> lazy_rates_of(const Document& document, const Policy& policy);

/// What a sequence holds while its prompt is read, in a runtime that holds all of it until then;
/// none in others.
std::optional<double> bytes_while_read(const Policy& policy, CacheLoad load);

/// How much of a policy fits beside the weights. In a runtime that holds whole prompts while they
/// are read, one of the sequences is read and the others are at their ends.
struct Room {
  std::int64_t batch = 0;    // sequences of the load
  std::int64_t context = 0;  // prompt tokens of so many sequences
};
/// The greatest batch at the load's prompt, and the greatest prompt at `batch` sequences, up to
/// kMostContext; 0 if not one fits.
Room greatest(const Policy& policy, const CacheLoad& load, double memory_bytes, std::int64_t batch);
inline constexpr std::int64_t kMostContext = std::int64_t{1} << 27;

}  // namespace kvatlas::calibrate
