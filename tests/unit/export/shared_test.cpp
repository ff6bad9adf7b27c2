// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "export/shared_impl.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::exporting {
namespace {

using nlohmann::json;

/// Python's int(length * (1 - ratio)), in the same doubles.
std::int64_t kept_of(std::int64_t length, double ratio) {
  return static_cast<std::int64_t>(static_cast<double>(length) * (1 - ratio));
}

void expect_kept(std::int64_t keep, std::int64_t length) {
  const double ratio = removed_ratio(keep, length);
  EXPECT_EQ(kept_of(length, ratio), keep) << length;
  // As it is read from a file, which has nine digits of it.
  const auto written = json::parse(calibrate::canonical_json({{"ratio", ratio}})).at("ratio");
  EXPECT_EQ(kept_of(length, written.get<double>()), keep) << length;
  EXPECT_GE(ratio, 0);
  EXPECT_LE(ratio, 1);
}

TEST(RemovedRatio, KeepsTheCount) {
  expect_kept(36, 200);  // without the half token 35
  for (std::int64_t length = 1; length <= 150; ++length)
    for (std::int64_t keep = 0; keep <= length; ++keep) expect_kept(keep, length);
  testing_support::Random random(3);
  for (int i = 0; i < 5000; ++i) {
    const auto length = random.integer(1, 1 << 24);
    expect_kept(random.integer(0, length), length);
  }
}

TEST(RemovedRatio, MoreThanThereIsIsAll) {
  EXPECT_EQ(removed_ratio(300, 200), 0);
  EXPECT_EQ(removed_ratio(200, 200), 0);
}

TEST(YamlText, Shape) {
  EXPECT_EQ(yaml_text({{"b", {{"list", {1, 2}}, {"flag", true}}},
                       {"a-b", "word"},
                       {"none", json::array()},
                       {"empty", json::object()},
                       {"items", {{{"x", 1}}, json::array({json::array({1, 2})})}},
                       {"nothing", nullptr}}),
            "a-b: word\n"
            "b:\n"
            "  flag: true\n"
            "  list: [1, 2]\n"
            "empty: {}\n"
            "items:\n"
            "  - x: 1\n"
            "  -\n"
            "    - [1, 2]\n"
            "none: []\n"
            "nothing: ~\n");
}

TEST(YamlText, WhatIsReadAsSomethingElseIsQuoted) {
  const std::pair<const char*, const char*> cases[] = {
      {"full_attention", "full_attention"},
      {"", R"("")"},
      {"true", R"("true")"},
      {"No", R"("No")"},
      {"OFF", R"("OFF")"},
      {"y", R"("y")"},
      {"Null", R"("Null")"},
      {"~", R"("~")"},
      {"12", R"("12")"},
      {".5", R"(".5")"},
      {"1e3", R"("1e3")"},
      {"a: b", R"("a: b")"},
      {"a #b", R"("a #b")"},
      {"- a", R"("- a")"},
      {"[a", R"("[a")"},
      {"&a", R"("&a")"},
      {"!a", R"("!a")"},
      {"a\nb", R"("a\nb")"},
      {"a\"\\", R"("a\"\\")"},
      {"\\ud83d", R"("\\ud83d")"},
      {"\x01\x7f", R"("\x01\x7f")"},
      {"\xc2\x85 \xe2\x80\xa8", R"("\x85 \u2028")"},  // line breaks to YAML 1.1
      {"\xf0\x9f\x98\x80\xf4\x8f\xbf\xbd", R"("\U0001f600\U0010fffd")"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(yaml_text({{"k", text}}), std::string("k: ") + expected + '\n');
    EXPECT_EQ(yaml_text({{"k", {text}}}), std::string("k: [") + expected + "]\n");
    EXPECT_EQ(yaml_text({{text, 1}}), std::string(expected) + ": 1\n");
  }
}

TEST(YamlText, Numbers) {
  EXPECT_EQ(yaml_text({{"a", 1e-5}, {"b", 1.5e-7}, {"c", 0.25}, {"d", 2.0}, {"e", -3}}),
            "a: 1.0e-05\nb: 1.5e-07\nc: 0.25\nd: 2.0\ne: -3\n");
}

}  // namespace
}  // namespace kvatlas::exporting
