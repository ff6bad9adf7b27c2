// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas {

/// From now on the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once.
/// A SIGHUP, of a terminal that goes away, sets it too.
void catch_interrupts();

/// From now on writing to a pipe that nobody reads fails, and does not end the process: for runs
/// whose work is worth more than what they say.
void outlive_readers();

/// Whether one has come.
bool interrupted();

/// Throws Error(cancelled) if one has come. Long loops call it between steps that may be left
/// unfinished.
void stop_if_interrupted();

}  // namespace kvatlas
