// SPDX-License-Identifier: Apache-2.0
// What a build is made of, and `kvatlas doctor`, which looks at the machine too.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace kvatlas::reference {

/// What is empty is not there, or not known.
struct Build {
  std::string version, commit, torch, cuda;
};

/// "kvatlas 0.1.0 (commit 0123456789, LibTorch 2.15.0, CUDA 12.4.0)"
std::string version_text(const Build& build);

void add_doctor_command(CLI::App& app, const Build& build);

}  // namespace kvatlas::reference
