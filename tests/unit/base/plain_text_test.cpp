// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.hpp"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(PlainText, PartsAreJoined) {
  EXPECT_EQ(join(std::vector<std::string>{}), "");
  EXPECT_EQ(join(std::vector<std::string>{"", "b", ""}), ", b, ");
  EXPECT_EQ(join(std::vector<double>{0.5, 2}, ","), "0.5,2");
  const std::map<std::string, int> counts = {{"a", 1}, {"b", 2}};
  EXPECT_EQ(join(counts, "+", [](const auto& entry) { return entry.first; }), "a+b");
  struct Named {
    std::string title;
  };
  const Named both[] = {{"one"}, {"two"}};
  EXPECT_EQ(join(both, " or ", &Named::title), "one or two");
}

TEST(PlainText, NumbersAreWrittenWithFixedDigits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(fixed_text(1.25, 1), "1.2");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::quiet_NaN(), 1), "-");
  EXPECT_EQ(fixed_text(kInfinity, 1), "infinite");
  EXPECT_EQ(fixed_text(-kInfinity, 1), "-infinite");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 2).size(), 312u);
  EXPECT_EQ(percent_text(0.375), "37.5 %");
  EXPECT_EQ(percent_text(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(PlainText, NumbersThatFollowEachOtherAreARange) {
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 7, 9, 10}), "0-3, 7, 9-10");
  EXPECT_EQ(ranges_text({}), "none");
}

TEST(PlainText, LongTextsOfARowGoOnBelowThemselves) {
  EXPECT_EQ(row_text({{"a", 3}, {"b", 1}}), "a    b\n");
  EXPECT_EQ(row_text({{"name", 4}, {"one two three", 8}, {"end", 3}}, 2),
            "  name  one two   end\n"
            "        three\n");
  EXPECT_EQ(row_text({{"longer than it", 6}, {"x", 1}}), "longer  x\nthan\nit\n");
  EXPECT_EQ(row_text({{"", 2}, {"unbreakable", 3}}), "    unbreakable\n");
}

}  // namespace
}  // namespace kvatlas
