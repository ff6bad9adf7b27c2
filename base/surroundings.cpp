// SPDX-License-Identifier: Apache-2.0
#include "base/surroundings.hpp"

#include <cstdlib>

namespace kvatlas {

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

bool let_threads_sleep() {
  if (std::getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return false;
  setenv("GOMP_SPINCOUNT", "1000", 0);
  return true;
}

std::string display_name() {
  for (const char* variable : {"WAYLAND_DISPLAY", "DISPLAY"})
    if (const char* value = std::getenv(variable); value && *value != '\0') return value;
  return {};
}

}  // namespace kvatlas
