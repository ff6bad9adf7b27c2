// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/method.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/policy/policy.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "tests/support/places.hpp"
#include "tests/support/text_of.hpp"

namespace kvatlas::calibrate {
namespace {

TEST(Method, TheSchemaHasASectionForEachAndNoOther) {
  const auto schema = nlohmann::json::parse(document_schema());
  std::set<std::string> members, sections;
  for (const auto& [name, of] : schema.at("properties").items()) members.insert(name);
  for (const char* other : {"schema", "model", "provenance", "compose", "kv_bits", "kv_residual",
                            "runtime", "pareto", "search", "compared"})
    EXPECT_EQ(members.erase(other), 1u) << other;
  for (const Method& section : kSections) sections.insert(section.name);
  EXPECT_EQ(members, sections);
}

TEST(Method, ThePythonPackageKnowsEveryMember) {
  const auto package = testing_support::text_of(testing_support::source_folder() /
                                                "export/python/kvatlas_transformers/document.py");
  const auto schema = nlohmann::json::parse(document_schema());
  for (const auto& [name, of] : schema.at("properties").items())
    EXPECT_THAT(package, testing::HasSubstr('"' + name + '"'));
}

TEST(Method, NamesAPartWhoseSettingItIsFoundBy) {
  for (const Method& method : kMethods) {
    const PartName* part = find_part(method.name);
    ASSERT_NE(part, nullptr) << method.name;
    EXPECT_EQ(section_name(part->standard), method.name);
    if (method.setting) {
      EXPECT_EQ(setting_named(method.name, method.setting).key, method.setting);
    }
  }
}

TEST(Method, EveryNameIsThatOfItsStandardPart) {
  for (const PartName& row : part_names()) EXPECT_EQ(name_of(row.standard), row.name);
  EXPECT_EQ(section_name(find_part("local")->standard), "lagkv");
}

TEST(Method, SelectionsAreBaselinesWithABudget) {
  for (const PartName* selection : selections()) {
    EXPECT_EQ(section_name(selection->standard), method::kBaseline.name);
    EXPECT_EQ(setting_named(selection->name, "budget").key, "budget");
    EXPECT_EQ(title_of(selection->name), selection->traits.title);
  }
  EXPECT_EQ(title_of("simlayerkv"), "SimLayerKV");
  EXPECT_EQ(title_of("streaming"), "streaming");
}

TEST(Method, IsFoundByItsName) {
  for (const Method& section : kSections)
    EXPECT_STREQ(find_section(section.name)->title, section.title);
  EXPECT_EQ(find_section("SimLayerKV"), nullptr);
}

}  // namespace
}  // namespace kvatlas::calibrate
