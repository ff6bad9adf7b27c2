// SPDX-License-Identifier: Apache-2.0
#include "base/free_memory.hpp"

#include <algorithm>
#include <fstream>
#include <malloc.h>
#include <string>
#include <utility>

namespace kvatlas {

std::int64_t free_memory() {
  std::int64_t free = 0;
  std::ifstream lines("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kibibytes = 0; lines >> name >> kibibytes && std::getline(lines, unit);)
    if (name == "MemAvailable:") free = kibibytes << 10;
  // What a container may take, by the second and by the first version of control groups.
  const std::string folder = "/sys/fs/cgroup/";
  for (const auto& [most_in, taken_in] :
       {std::pair{"memory.max", "memory.current"},
        std::pair{"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"}}) {
    std::int64_t most = 0, taken = 0;
    if (std::ifstream(folder + most_in) >> most && std::ifstream(folder + taken_in) >> taken)
      free = std::min(free, std::max<std::int64_t>(0, most - taken));
  }
  return free;
}

void return_freed_pages() { malloc_trim(0); }

}  // namespace kvatlas
