// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/text_diff.hpp"

#include <gtest/gtest.h>

namespace kvatlas::viewer {
namespace {

TEST(TextDiff, MarksLinesOfOneTextAlone) {
  EXPECT_EQ(line_diff("a\nb\nc\n", "a\nx\nc\nd\n"), "  a\n- b\n+ x\n  c\n+ d\n");
  EXPECT_EQ(line_diff("", "a\n"), "+ a\n");
  EXPECT_EQ(line_diff("a\n", ""), "- a\n");
  EXPECT_EQ(line_diff("a\n", "a\n"), "");
}

TEST(TextDiff, LongTextsAreComparedAsAWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "x\n";
  const auto diff = line_diff(text, text + "y\n");
  EXPECT_EQ(diff.substr(0, 4), "- x\n");
  EXPECT_EQ(diff.substr(diff.size() - 4), "+ y\n");
}

}  // namespace
}  // namespace kvatlas::viewer
