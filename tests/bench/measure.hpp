// SPDX-License-Identifier: Apache-2.0
// A row of bench_kernels: a kernel's time beside a limit and a peer that the same run measures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kvatlas::bench {

/// Some work to be timed; empty if this build cannot do it.
using Work = std::function<void()>;

/// Seconds of one run: the median of at least three, after one to warm up; of a long one, the one.
double seconds_of(const Work& work);

/// What a kernel cannot beat: so much a second, and what that is.
struct Limit {
  double rate = 1;
  std::string name;
};

/// All threads reading, or copying (bytes read and written), that many bytes. Measured once a size.
Limit reading(std::int64_t bytes);
Limit copying(std::int64_t bytes);
/// All threads computing x log2 x of values in the first-level cache, with the kernels' logarithm.
Limit logarithms();
/// All threads multiplying and adding in registers.
Limit multiply_adds();

/// The same results by other means, or a bound on them.
struct Peer {
  std::string name;
  Work work;
};

/// A kernel and what one run of it does: `amount` bytes ("B"), operations ("FLOP") or logarithms
/// ("log2").
struct Row {
  Work kernel;
  std::vector<std::shared_ptr<void>> arrays;  // that the kernel works on
  double amount = 0;
  std::string unit;
  Limit limit;
  std::vector<Peer> peers;
  double operations = 0;  // of float32, if the label is to say their share of multiply_adds() too
  // Goals, 0: none. The label says whether they are met.
  double most_of_peer = 0;    // of the first peer's time
  double least_of_limit = 0;  // of the limit
};

/// Registers a row. `make` is called when its turn comes. The row's label says its rate, the share
/// of the limit, and how many times each peer's time it takes; peer and kernel take turns, so that
/// what else the machine does meets both.
void add(const std::string& name, const std::function<Row()>& make);

/// The fastest of several; empty if there are none.
Work fastest(const std::vector<Work>& works);

template <class T>
using Array = std::shared_ptr<std::vector<T>>;

template <class T>
Array<T> zeros(std::int64_t count) {
  return std::make_shared<std::vector<T>>(static_cast<std::size_t>(count));
}
/// `count` normal numbers, the same in every run.
Array<float> normals(std::int64_t count);

}  // namespace kvatlas::bench
