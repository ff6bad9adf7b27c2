// SPDX-License-Identifier: Apache-2.0
// What avx_scan.sh must find: a weak function with AVX code.
#pragma GCC target("avx2")
#include <vector>

namespace fixture {
template <class T>
[[gnu::noinline]] T sum(const std::vector<T>& values) {
  T total{};
  for (T value : values) total += value;
  return total;
}
template float sum(const std::vector<float>&);
}  // namespace fixture
