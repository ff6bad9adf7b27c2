// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <array>

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(Error, ContextIsPutInFrontFromTheInsideOut) {
  try {
    in_context("model.gguf", [] {
      in_context("tensor 'a'", [] {
        fail(ErrorCode::unreadable, "shape ", list_str(std::array{4, 8}));
      });
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "model.gguf: tensor 'a': shape [4, 8]");
    EXPECT_EQ(exit_status(error.code()), 3);
  }
}

TEST(Error, ForeignTextIsMadeSafe) {
  EXPECT_EQ(quoted("a\x1b[2Jb\n"), "'a?[2Jb?'");
  EXPECT_EQ(quoted(std::string(100, 'x'), 5), "'xxxxx...'");
  EXPECT_EQ(printable("\xC2\x9B[2J \xC2\xA0\xC3\x9B"), "?[2J \xC2\xA0\xC3\x9B");
  EXPECT_EQ(printable("ab\xE2\x96\x81z", 4), "ab...") << "a character is not torn";
  EXPECT_EQ(printable("ab\xE2\x96\x81z", 5), "ab\xE2\x96\x81...");
  EXPECT_EQ(without_controls("a\tb\nc\x1b", "\n\t"), "a\tb\nc?");
}

}  // namespace
}  // namespace kvatlas
