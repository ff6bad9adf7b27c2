// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas {

/// From now on the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once.
void catch_interrupts();

/// Whether one has come.
bool interrupted();

/// Throws Error(cancelled) if one has come. Long loops call it between steps that may be left
/// unfinished.
void stop_if_interrupted();

}  // namespace kvatlas
