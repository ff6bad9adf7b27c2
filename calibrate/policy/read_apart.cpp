// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/read_apart.hpp"

#include <algorithm>
#include <variant>

namespace kvatlas::calibrate {

bool is_full(const Policy& policy) { return policy.parts.empty() && policy.kv_bits == 16; }

bool rounds_prefill(const Policy& policy) {
  return std::any_of(policy.parts.begin(), policy.parts.end(), [](const Part& part) {
    const auto* precision = std::get_if<Precision>(&part);
    return precision && precision->rounded_prefill;
  });
}

const VerticalSlash* sparse_reading(const Policy& policy) {
  for (const Part& part : policy.parts)
    if (const auto* sparse = std::get_if<VerticalSlash>(&part)) return sparse;
  return nullptr;
}

bool reads_prompt_apart(const Policy& policy) {
  return policy.masks_prefill || rounds_prefill(policy) || sparse_reading(policy) ||
         std::any_of(policy.parts.begin(), policy.parts.end(), [](const Part& part) {
           const auto* pod = std::get_if<Pod>(&part);
           return pod && pod->shared_prefill;
         });
}

std::optional<Repetition> repetition_of(const Policy& policy) {
  for (const Part& part : policy.parts)
    if (const auto* kvzip = std::get_if<KvZip>(&part)) return kvzip->repetition;
  return std::nullopt;
}

}  // namespace kvatlas::calibrate
