// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/policy_front.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/front_document.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

Document document() {
  return testing_support::front_document({"Tiny", "llama", "0123456789abcdef", 4, 4, 2, 8});
}

TEST(Front, EveryPointIsAPolicyOfItsOwn) {
  const Document before = document();
  const Document composed = with_front_point(before, 1);
  EXPECT_THAT(composed.compose, ElementsAre("simlayerkv", "dynamickv"));
  const auto policies = policies_of(composed);
  ASSERT_EQ(policies.size(), 1u);
  EXPECT_EQ(policies[0].parts.size(), 2u);
  EXPECT_EQ(std::get<DynamicKv>(policies[0].parts[1]).fixed,
            (std::vector<std::int64_t>{80, 60, 40, 12}));
  std::vector<bool> chosen;
  for (const auto& point : composed.pareto) chosen.push_back(point.at("chosen"));
  EXPECT_THAT(chosen, ElementsAre(false, true, false));
  EXPECT_EQ(composed.search, before.search);
  EXPECT_EQ(composed.model.fingerprint, before.model.fingerprint);
  // Chosen again, it is what it was before.
  EXPECT_EQ(document_text(with_front_point(composed, 0)), document_text(before));
}

TEST(Front, WhatWasMeasuredOfThePointGoesWithIt) {
  const Document lag = with_front_point(document(), 2);
  EXPECT_EQ(lag.sections.size(), 1u);
  EXPECT_EQ(lag.sections.at("lagkv").at("measured").at("score").at("mean"), 0.88);
  Document for_runtime = document();
  for_runtime.runtime = "vllm";
  const Document there = with_front_point(for_runtime, 2);
  EXPECT_EQ(there.sections.at("lagkv").count("measured"), 0u);
  EXPECT_EQ(there.sections.at("lagkv").at("runtimes").at("vllm").at("samples"), 8);
}

TEST(Front, RefusesPointsThatAreNoPolicy) {
  EXPECT_THAT(error_of([] { with_front_point(document(), 3); }), HasSubstr("no point 3"));
  const auto broken = [](const char* pointer, const nlohmann::json& value) {
    Document other = document();
    other.pareto[1][nlohmann::json::json_pointer(pointer)] = value;
    try {
      with_front_point(other, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unreadable);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(broken("/sections", "none"), HasSubstr("point 1 of the front"));
  EXPECT_THAT(broken("/sections/foreign", 1), HasSubstr("foreign"));
  EXPECT_THAT(broken("/sections/dynamickv/result/budgets", {1, 2}), HasSubstr("4 layers"));
  EXPECT_THAT(broken("/compose", {"lagkv"}), HasSubstr("compose"));
  EXPECT_THAT(broken("/compose", 7), HasSubstr("point 1"));
  EXPECT_THAT(broken("/kv_bits", 3), HasSubstr("kv_bits"));
  EXPECT_THAT(broken("/measured", {{"score", nullptr}, {"x", "\xff"}}), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace kvatlas::calibrate
