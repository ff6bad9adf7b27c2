// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json_text.hpp"

namespace kvatlas {
namespace {

TEST(Bytes, AreReadWithTheirUnits) {
  EXPECT_EQ(parse_bytes("24GiB"), 24LL << 30);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000);
  EXPECT_EQ(parse_bytes("512M"), 512LL << 20);
  EXPECT_EQ(parse_bytes("123B"), 123);
  EXPECT_EQ(parse_bytes("1073741824"), 1LL << 30);
  EXPECT_EQ(parse_bytes("1000000"), 1000000);
  EXPECT_EQ(parse_bytes("0"), 0);
  for (const char* wrong :
       {"", "GiB", "-1GiB", "1e30", "nan", "inf", "12 parsecs", "1GiBx", "24", "0.5B", "1e-4K"})
    EXPECT_THROW(parse_bytes(wrong), Error) << wrong;
}

TEST(Bytes, AreWrittenForPeople) {
  EXPECT_EQ(bytes_str(0), "0 bytes");
  EXPECT_EQ(bytes_str(1536), "1.5 KiB");
  EXPECT_EQ(bytes_str(6LL << 30), "6.0 GiB");
  EXPECT_EQ(bytes_str(538LL << 20), "538 MiB");
}

TEST(Bytes, AreEnoughWhereTheyAreRoundedUp) {
  EXPECT_EQ(enough_bytes_str(1536), "1.5 KiB");
  EXPECT_EQ(enough_bytes_str(1537), "1.6 KiB");
  EXPECT_EQ(enough_bytes_str((538LL << 20) + 1), "539 MiB");
  for (const std::int64_t bytes : {1LL << 10, 123456789LL, 99999999999LL, 1234567890123LL})
    EXPECT_GE(parse_bytes(enough_bytes_str(bytes)), bytes);
}

TEST(Bytes, AreWholeNumbersInJson) {
  EXPECT_EQ(count_json(18030028).dump(), "18030028");
  EXPECT_EQ(count_json(5898240 / (1 / 0.3)).dump(), "1769472");  // but for rounding
  EXPECT_EQ(count_json(18030028.75).dump(), "18030028.75");      // a mean
  EXPECT_EQ(count_json(std::nan("")).dump(), "null");
}

}  // namespace
}  // namespace kvatlas
