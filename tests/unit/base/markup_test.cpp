// SPDX-License-Identifier: Apache-2.0
#include "base/markup.hpp"

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(Markup, TextStaysText) {
  EXPECT_EQ(markup_text("a < b && c > \"d\" or 'e'"),
            "a &lt; b &amp;&amp; c &gt; &quot;d&quot; or &#39;e&#39;");
  EXPECT_EQ(markup_text("two\nlines\tand a bell\a"), "two\nlines\tand a bell?");
  EXPECT_EQ(markup_text("δ ≥ 0.5"), "δ ≥ 0.5");
}

}  // namespace
}  // namespace kvatlas
