// SPDX-License-Identifier: Apache-2.0
#include "base/surroundings.hpp"

#include <cstdlib>

namespace kvatlas {

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::string display_name() {
  for (const char* variable : {"WAYLAND_DISPLAY", "DISPLAY"})
    if (const char* value = std::getenv(variable); value && *value != '\0') return value;
  return {};
}

}  // namespace kvatlas
