// SPDX-License-Identifier: Apache-2.0
#include "base/processor.hpp"

#include <fstream>
#include <sstream>

namespace kvatlas {

Processor processor() {
  Processor out;
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    const auto colon = line.find(": ");
    if (colon == line.npos) continue;
    if (line.rfind("model name", 0) == 0) out.name = line.substr(colon + 2);
    std::istringstream words(line.rfind("flags", 0) == 0 ? line.substr(colon + 2) : "");
    for (std::string word; words >> word;) out.flags.insert(word);
  }
  return out;
}

}  // namespace kvatlas
