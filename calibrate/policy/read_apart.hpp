// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// Whether the policy keeps the full cache, which is run beside all others anyway.
bool is_full(const Policy& policy);

/// Whether the tokens of the prompt attend to keys and values as the policy stores them.
bool rounds_prefill(const Policy& policy);

/// What the tokens of the prompt attend to, if not to all that the model lets them.
const VerticalSlash* sparse_reading(const Policy& policy);

/// Whether the policy changes how the prompt is read, so that it needs a reading of its own: its
/// windows mask it, its upper layers use a lower one's keys, its tokens attend to rounded keys, or
/// to few of them.
bool reads_prompt_apart(const Policy& policy);

/// Whether continuations read the prompt's cache where it lies: nothing in it is selected one by
/// one or changed.
bool reads_in_place(const Policy& policy);

/// How the policy has the prompt repeated, if it does.
std::optional<Repetition> repetition_of(const Policy& policy);

}  // namespace kvatlas::calibrate
