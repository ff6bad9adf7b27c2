// SPDX-License-Identifier: Apache-2.0
// The likeness of two texts as fuzzywuzzy's ratio has it, which is that of Python's difflib: the
// longest block that both have, then the same to its left and to its right.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "data/characters.hpp"
#include "data/metrics.hpp"

namespace kvatlas::data {
namespace {

constexpr std::size_t kMostCharacters = 4096;

struct Block {
  std::size_t a, b, size;
};

struct Region {
  std::size_t a, a_end, b, b_end;
};

class Matcher {
 public:
  Matcher(std::u32string_view a, std::u32string_view b)
      : a_(a), b_(b), run_(b.size() + 1), above_(b.size() + 1) {
    for (std::size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
    // difflib's rule: in a text of 200 characters or more, those that make up more than a hundredth
    // of it begin no block.
    if (b.size() >= 200)
      std::erase_if(places_, [&](const auto& of) { return of.second.size() > b.size() / 100 + 1; });
  }

  /// The characters in all blocks.
  std::size_t matches() {
    std::size_t sum = 0;
    std::vector<Region> open = {{0, a_.size(), 0, b_.size()}};
    while (!open.empty()) {
      const Region region = open.back();
      open.pop_back();
      const Block block = longest(region);
      if (block.size == 0) continue;
      sum += block.size;
      if (region.a < block.a && region.b < block.b)
        open.push_back({region.a, block.a, region.b, block.b});
      if (block.a + block.size < region.a_end && block.b + block.size < region.b_end)
        open.push_back({block.a + block.size, region.a_end, block.b + block.size, region.b_end});
    }
    return sum;
  }

 private:
  const std::vector<std::size_t>& places(char32_t c) const {
    static const std::vector<std::size_t> kNone;
    const auto found = places_.find(c);
    return found == places_.end() ? kNone : found->second;
  }

  /// The longest block of the region; the first of several in a, and then in b.
  Block longest(const Region& region) {
    Block best = {region.a, region.b, 0};
    std::fill(above_.begin(), above_.end(), 0);
    std::fill(run_.begin(), run_.end(), 0);
    for (std::size_t i = region.a; i < region.a_end; ++i) {
      // run_[j + 1]: how long the block that ends at i and j is.
      for (const std::size_t j : places(a_[i])) {
        if (j < region.b || j >= region.b_end) continue;
        const std::size_t size = run_[j + 1] = above_[j] + 1;
        if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
      }
      if (i > region.a)
        for (const std::size_t j : places(a_[i - 1])) above_[j + 1] = 0;
      std::swap(above_, run_);
    }
    while (best.a > region.a && best.b > region.b && a_[best.a - 1] == b_[best.b - 1])
      best = {best.a - 1, best.b - 1, best.size + 1};
    while (best.a + best.size < region.a_end && best.b + best.size < region.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size])
      ++best.size;
    return best;
  }

  std::u32string_view a_, b_;
  std::unordered_map<char32_t, std::vector<std::size_t>> places_;  // in b, ascending
  std::vector<std::size_t> run_, above_;
};

}  // namespace

double edit_similarity(std::string_view generated, std::string_view answer) {
  if (generated == answer) return 1;
  const std::u32string a = characters(generated).substr(0, kMostCharacters);
  const std::u32string b = characters(answer).substr(0, kMostCharacters);
  if (a.empty() || b.empty()) return 0;
  const double ratio =
      2.0 * static_cast<double>(Matcher(a, b).matches()) / static_cast<double>(a.size() + b.size());
  return std::nearbyint(100 * ratio) / 100;
}

}  // namespace kvatlas::data
