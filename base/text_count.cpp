// SPDX-License-Identifier: Apache-2.0
#include "base/text_count.hpp"

#include <algorithm>
#include <set>

#include "base/str.hpp"

namespace kvatlas {

std::string count_of(std::int64_t count, const char* one, const char* many) {
  return str(count, ' ', count == 1 ? one : many);
}

std::size_t count_texts(std::span<const std::string> groups) {
  const auto alone = static_cast<std::size_t>(std::count(groups.begin(), groups.end(), ""));
  const std::set<std::string> named(groups.begin(), groups.end());
  return named.size() - named.count("") + alone;
}

std::string of_texts(std::size_t prompts, std::size_t texts) {
  return texts == 0 || prompts == texts ? "" : str(" of ", texts, texts == 1 ? " text" : " texts");
}

}  // namespace kvatlas
