// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas {

/// From now on the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once.
/// A SIGHUP, which comes when the terminal is closed, sets it too.
void catch_interrupts();

/// From now on writing to a pipe that nobody reads fails instead of ending the process. This is for
/// runs whose work must go on when nobody reads what they print.
void outlive_readers();

/// Whether one of these signals has come.
bool interrupted();

/// Throws Error(cancelled) if one of these signals has come. Long loops call it at points where
/// they may stop.
void stop_if_interrupted();

}  // namespace kvatlas
