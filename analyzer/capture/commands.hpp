// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas profile`: a model run over prompts, and what its attention does written to a file.
void add_profile_command(CLI::App& app);

/// `kvatlas generate`: greedy continuation of prompts.
void add_generate_command(CLI::App& app);

}  // namespace kvatlas
