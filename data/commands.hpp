// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// Adds `kvatlas tasks`, which lists the tasks, or makes prompts of one task.
void add_tasks_command(CLI::App& app);

}  // namespace kvatlas
