// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas inspect`: a model's card, without loading its weights.
void add_inspect_command(CLI::App& app);

/// `kvatlas generate`: greedy continuation of prompts.
void add_generate_command(CLI::App& app);

}  // namespace kvatlas
