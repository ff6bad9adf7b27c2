// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/kv_format.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate::kv_format_tests {
namespace {

using testing::HasSubstr;

TEST(KvFormats, EachWordIsOnesOwn) {
  std::set<std::string_view> words;
  for (std::size_t f = 0; f < kKvFormats.size(); ++f) {
    EXPECT_TRUE(words.insert(kKvFormats[f].word).second) << kKvFormats[f].word;
    EXPECT_EQ(kv_format_called(kKvFormats[f].word), static_cast<KvFormat>(f));
  }
  EXPECT_FALSE(kv_format_called("q6_0"));
  EXPECT_FALSE(kv_format_called(""));
}

/// What rounds tokens by themselves has a kernel, and what a kernel knows is a format's.
TEST(KvFormats, EveryRowFormatIsSomeFormats) {
  std::set<kernels::RowFormat> used;
  for (const KvFormatFacts& facts : kKvFormats)
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const auto& rows = facts.stored(side).rows;
      EXPECT_EQ(rows.has_value(), facts.by_token && facts.word != "16") << facts.word;
      if (rows) used.insert(*rows);
    }
  EXPECT_EQ(used.size(), kernels::kRowFormats.size());
}

/// Bytes of a head of a token, as the engines' own code lays them out.
TEST(KvFormats, Bytes) {
  const auto both = [](KvFormat format, std::int64_t dim) {
    return bytes_of_row(format, KvSide::keys, dim) + bytes_of_row(format, KvSide::values, dim);
  };
  EXPECT_EQ(both(KvFormat::turboquant_k8v4, 128), 196);
  EXPECT_EQ(both(KvFormat::turboquant_4bit_nc, 128), 134);
  EXPECT_EQ(both(KvFormat::turboquant_k3v4_nc, 128), 118);
  EXPECT_EQ(both(KvFormat::turboquant_3bit_nc, 128), 102);
  EXPECT_EQ(both(KvFormat::int8_per_token_head, 128), 2 * 128 + 8);
  EXPECT_EQ(both(KvFormat::int4_per_token_head, 128), 128 + 8);
  EXPECT_EQ(both(KvFormat::nvfp4, 128), 9 * 128 / 8);
  EXPECT_EQ(both(KvFormat::q5_1, 64), 2 * 2 * 24);
  EXPECT_EQ(both(KvFormat::f16, 80), 4 * 80);
  EXPECT_EQ(bits_of(KvFormat::int8_per_token_head, 128), 8.25);
  EXPECT_EQ(bits_of(KvFormat::int4_per_token_head, 64), 4.5);
  EXPECT_EQ(bits_of(KvFormat::int4, 64), 5);
}

TEST(KvFormats, SizesOfHeadsThatAFormatHasNot) {
  EXPECT_EQ(lack_of_format(KvFormat::turboquant_3bit_nc, 128), "");
  EXPECT_THAT(lack_of_format(KvFormat::turboquant_3bit_nc, 80),
              HasSubstr("turboquant_3bit_nc takes heads of a power of two from 16 on, and those of "
                        "the model have 80 numbers"));
  EXPECT_EQ(lack_of_format(KvFormat::turboquant_k8v4, 80), "");
  EXPECT_THAT(lack_of_format(KvFormat::nvfp4, 72), HasSubstr("multiples of 16"));
  for (const KvFormatFacts& facts : kKvFormats)
    EXPECT_EQ(lack_of_format(*kv_format_called(facts.word), 256), "") << facts.word;
}

}  // namespace
}  // namespace kvatlas::calibrate::kv_format_tests
