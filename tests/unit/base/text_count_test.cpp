// SPDX-License-Identifier: Apache-2.0
#include "base/text_count.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(TextCount, GoesByGroups) {
  const std::vector<std::string> none, alone(3), groups = {"a", "b", "", "a", "", "b"};
  EXPECT_EQ(count_texts(none), 0u);
  EXPECT_EQ(count_texts(alone), 3u);
  EXPECT_EQ(count_texts(groups), 4u);
  EXPECT_EQ(of_texts(20, 10), " of 10 texts");
  EXPECT_EQ(of_texts(5, 1), " of 1 text");
  EXPECT_EQ(of_texts(5, 5), "");
  EXPECT_EQ(of_texts(5, 0), "");
}

}  // namespace
}  // namespace kvatlas
