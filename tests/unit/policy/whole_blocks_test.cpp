// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "calibrate/policy/policy.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

/// Block by block: a block is kept if one of its tokens is among the first or the last ones.
TEST(WholeBlocks, AreThoseThatHoldAKeptToken) {
  testing_support::Random random(17);
  for (int trial = 0; trial < 500; ++trial) {
    const auto tokens = random.integer(1, 400), block = random.integer(2, 64);
    const Proximity keep{random.integer(0, 90), random.integer(1, 450)};
    const auto kept = in_whole_blocks(keep, tokens, block);
    for (std::int64_t token = 0; token < tokens; ++token) {
      bool expected = false;
      for (std::int64_t t = token / block * block; t < (token / block + 1) * block; ++t)
        expected |= t < keep.initial || (t >= tokens - keep.recent && t < tokens);
      EXPECT_EQ(token < kept.initial || token >= tokens - kept.recent, expected)
          << token << " of " << tokens << " in blocks of " << block;
    }
  }
}

}  // namespace
}  // namespace kvatlas::calibrate
