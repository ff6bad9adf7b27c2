// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kvatlas {

/// Random numbers that are the same on every platform (splitmix64), which the standard library's
/// distributions are not. Each purpose has a sequence of its own, so that drawing more for one
/// changes no other.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view purpose) : state_(seed) {
    for (const char c : purpose) state_ = next() ^ static_cast<unsigned char>(c);
  }

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// A whole number from 0 to count - 1. The remainder's bias is below count / 2^64.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

  /// A real number from 0 to 1; never 1 itself.
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvatlas
