// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/describe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/header_impl.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

constexpr const char* kShape = "layers=3,heads=4,kv_heads=2,head_dim=16,vocab=100";

TEST(Describe, SaysWhatTheFileWouldSay) {
  const CaptureSettings settings;
  const model::Config shape = shape_from(kShape);
  const auto out = nlohmann::json::parse(description_json(settings, shape, "0.1.0"));
  EXPECT_EQ(out["capture"], nlohmann::json::parse(settings.json()));
  EXPECT_EQ(out["arrays"], nlohmann::json::parse(descriptions_text(descriptions(settings, shape))));
  const auto selections = settings.selections();
  ASSERT_EQ(out["numbers"]["selections"].size(), selections.size());
  for (std::size_t i = 0; i < selections.size(); ++i)
    EXPECT_EQ(out["numbers"]["selections"][i]["label"], selections[i].label);
  const auto tables = axis_tables(settings);
  ASSERT_EQ(out["axes"].size(), tables.size());
  EXPECT_EQ(out["axes"][0]["values"].size(), settings.proximities.size());
  EXPECT_EQ(out["axes"][0]["values"][1], (std::vector<std::int64_t>{4, 240}));
}

TEST(Describe, RefusesShapesByName) {
  const auto refusal = [](const std::string& text) { return error_of([&] { shape_from(text); }); };
  EXPECT_EQ(shape_from(std::string(kShape) + ",rotary=4").rotary_dim, 4);
  EXPECT_THAT(refusal(""), HasSubstr("expected NAME=NUMBER"));
  EXPECT_THAT(refusal("layers=3"), HasSubstr("lacks heads=NUMBER"));
  EXPECT_THAT(refusal("layers=3x"), HasSubstr("expected a whole number from 1 to 4096"));
  EXPECT_THAT(refusal("layers=99999999999999999999"), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(refusal("depth=3"), HasSubstr("of layers, heads, kv_heads"));
  EXPECT_THAT(refusal("layers=3,heads=4,kv_heads=3,head_dim=16,vocab=100"),
              HasSubstr("a multiple of kv_heads"));
}

TEST(Describe, WordsAndTokenizersDoNotSetProfilesApart) {
  const Header there = testing_samples::make_header(2);
  Header here = there;
  here.arrays[0].meaning = "The same in other words.";
  here.tokenizer_fingerprint = "0123";
  EXPECT_TRUE(differences(there, here, false).empty());
  here.arrays[0].unit = "another";
  EXPECT_FALSE(differences(there, here, false).empty());
  here = there;
  Header named = there;
  named.tokenizer_fingerprint = "0124";
  here.tokenizer_fingerprint = "0123";
  EXPECT_FALSE(differences(named, here, false).empty());
}

}  // namespace
}  // namespace kvatlas::profile
