// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// Adds `kvatlas profile`, which runs a model over prompts and writes to a file what its attention
/// does.
void add_profile_command(CLI::App& app);

/// Adds `kvatlas generate`, which continues prompts greedily.
void add_generate_command(CLI::App& app);

}  // namespace kvatlas
