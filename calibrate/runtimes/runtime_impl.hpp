// SPDX-License-Identifier: Apache-2.0
// What the files of several runtimes share.
#pragma once

#include <type_traits>
#include <utility>

#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

/// What is lost in runtimes whose windows are made for models with sliding windows.
inline const Losses kWindowLosses = {Loss::first_tokens_lost, Loss::masks_prefill,
                                     Loss::window_rolls, Loss::one_window_size};

/// Sets a value of the policy to what the runtime has, and says so if that changes it.
template <class T>
void set(RuntimePolicy& theirs, T& value, const std::type_identity_t<T>& its,
         const char* sentence) {
  if (std::exchange(value, its) != its) theirs.changes.emplace_back(sentence);
}

/// Error(usage) unless the part, DynamicKv or HeadKv, has the budgets that the runtime is to be
/// given.
void require_budgets(const Part& part);
/// Error(usage) for the variants of LagKV, which no other software has.
void require_plain(const LagKv& part);
/// Whether any layer stays full. For streaming, and for fixed lazy layers.
bool leaves_full_layers(const Part& part);

}  // namespace kvatlas::calibrate
