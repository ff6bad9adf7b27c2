// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/read_apart.hpp"

#include <algorithm>

#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {

bool is_full(const Policy& policy) { return policy.parts.empty() && policy.kv_bits == 16; }

bool rounds_prefill(const Policy& policy) {
  const auto* precision = part_of_type<Precision>(policy);
  return precision && (precision->rounded_prefill || precision->fp8_queries);
}

const VerticalSlash* sparse_reading(const Policy& policy) {
  return part_of_type<VerticalSlash>(policy);
}

bool reads_prompt_apart(const Policy& policy) {
  const auto* pod = part_of_type<Pod>(policy);
  return policy.masks_prefill || rounds_prefill(policy) || sparse_reading(policy) ||
         (pod && pod->shared_prefill);
}

bool reads_in_place(const Policy& policy) {
  return policy.kv_bits == 16 &&
         std::all_of(policy.parts.begin(), policy.parts.end(),
                     [](const Part& part) { return traits_of(part).in_place; });
}

std::optional<Repetition> repetition_of(const Policy& policy) {
  const auto* kvzip = part_of_type<KvZip>(policy);
  return kvzip ? std::optional(kvzip->repetition) : std::nullopt;
}

}  // namespace kvatlas::calibrate
