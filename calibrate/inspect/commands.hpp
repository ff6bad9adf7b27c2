// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "analyzer/profile/commands.hpp"

namespace CLI {
class App;
}

namespace kvatlas {

/// Adds `kvatlas diff`, which compares two profiles or two policy documents.
void add_diff_command(CLI::App& app);

}  // namespace kvatlas

namespace kvatlas::calibrate {

/// What `kvatlas inspect` does with policy documents: it prints what they say, or the document
/// itself, and the memory that their policies take.
InspectedKind inspected_policies();

/// What `kvatlas inspect MODEL` counts, with --as RUNTIME or without.
CacheOfSequence caches_of_sequences();

}  // namespace kvatlas::calibrate
