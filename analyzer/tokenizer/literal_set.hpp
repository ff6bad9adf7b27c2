// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kvatlas::model {

/// A set of texts, each with a number, that answers which of them begin at a place of another text.
class LiteralSet {
 public:
  /// Empty texts are left out. If a text occurs more than once, the last one counts.
  explicit LiteralSet(std::vector<std::pair<std::string, std::int32_t>> texts = {});

  struct Found {
    std::size_t length = 0;  // 0 if none begins there
    std::int32_t number = -1;
  };
  Found longest(std::string_view text, std::size_t at) const;

  /// Calls found(Found) for each text that begins at `at`, shortest first.
  template <class Callback>
  void for_each(std::string_view text, std::size_t at, Callback found) const {
    auto [low, high] = starts_[static_cast<unsigned char>(text[at])];
    for (std::size_t depth = 1; low < high; ++depth) {
      if (texts_[low].first.size() == depth) found(Found{depth, texts_[low++].second});
      if (at + depth >= text.size() || low == high) return;
      std::tie(low, high) = narrowed(low, high, depth, text[at + depth]);
    }
  }

  bool empty() const { return texts_.empty(); }

 private:
  using Bounds = std::pair<std::uint32_t, std::uint32_t>;
  /// Narrows texts_[low, high) to those whose byte at `depth` is `byte`.
  Bounds narrowed(std::uint32_t low, std::uint32_t high, std::size_t depth, char byte) const;

  std::vector<std::pair<std::string, std::int32_t>> texts_;  // sorted
  std::array<Bounds, 256> starts_{};                         // by first byte
};

}  // namespace kvatlas::model
