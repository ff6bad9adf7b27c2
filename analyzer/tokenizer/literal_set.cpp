// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/literal_set.hpp"

#include <algorithm>

namespace kvatlas::model {

LiteralSet::LiteralSet(std::vector<std::pair<std::string, std::int32_t>> texts)
    : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const auto& entry) { return entry.first.empty(); });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::reverse(texts_.begin(), texts_.end());
  std::stable_sort(texts_.begin(), texts_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  texts_.erase(std::unique(texts_.begin(), texts_.end(), same), texts_.end());
  for (std::uint32_t k = 0; k < texts_.size(); ++k) {
    auto& [low, high] = starts_[static_cast<unsigned char>(texts_[k].first[0])];
    if (low == high) low = k;
    high = k + 1;
  }
}

LiteralSet::Found LiteralSet::longest(std::string_view text, std::size_t at) const {
  Found best;
  for_each(text, at, [&](Found found) { best = found; });
  return best;
}

LiteralSet::Bounds LiteralSet::narrowed(std::uint32_t low, std::uint32_t high, std::size_t depth,
                                        char byte) const {
  const auto byte_at = [depth](const std::pair<std::string, std::int32_t>& entry) {
    return static_cast<unsigned char>(entry.first[depth]);
  };
  const auto wanted = static_cast<unsigned char>(byte);
  const auto first =
      std::partition_point(texts_.begin() + low, texts_.begin() + high,
                           [&](const auto& entry) { return byte_at(entry) < wanted; });
  const auto last = std::partition_point(
      first, texts_.begin() + high, [&](const auto& entry) { return byte_at(entry) == wanted; });
  return {static_cast<std::uint32_t>(first - texts_.begin()),
          static_cast<std::uint32_t>(last - texts_.begin())};
}

}  // namespace kvatlas::model
