// SPDX-License-Identifier: Apache-2.0
// What the main functions of kvatlas and of kvatlas-viewer share.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace kvatlas {

/// Runs the command line: `add_commands` adds the commands, and each runs in its callback. Every
/// failure is told in one sentence on standard error and becomes the exit code that is returned.
/// `version` is what --version prints.
int run_program(int argc, char** argv, const std::string& version,
                const std::function<void(CLI::App&)>& add_commands);

}  // namespace kvatlas
