// SPDX-License-Identifier: Apache-2.0
// `kvatlas inspect policy.json`.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/precision_section.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/policy/documents.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::run_kvatlas;

class InspectPolicy : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = testing::TempDir() +
                      testing::UnitTest::GetInstance()->current_test_info()->name() +
                      "-policy.json";
};

TEST_F(InspectPolicy, Card) {
  write_document(full_document(), path_, false);
  const auto shown = run_kvatlas({"inspect", path_});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("policy for Tiny"), HasSubstr("6 samples of needle"),
                    HasSubstr("composed of     lagkv + simlayerkv"), HasSubstr("threshold 0.7"),
                    HasSubstr("1-2 (2 of 4)"), HasSubstr("at 1024 tokens  layer_ratio 2"),
                    HasSubstr("80 to 148 tokens")));
  EXPECT_THAT(shown.out, AllOf(HasSubstr("4 of 8"), HasSubstr("32 of 128 tokens"),
                               HasSubstr("7 of 16 query heads"), HasSubstr("snapkv, budget 128")));
}

TEST_F(InspectPolicy, FormatsByLayer) {
  Document document = full_document();
  document.compose.clear();
  document.kv_bits = 16;
  document.sections = {{"precision", testing_support::precision_section()}};
  write_document(document, path_, false);
  EXPECT_THAT(run_kvatlas({"inspect", path_}).out,
              HasSubstr("keys: 2 layers in q8_0, 2 in int4; values: 4 layers in q8_0"));
}

TEST_F(InspectPolicy, Json) {
  write_document(full_document(), path_, false);
  const auto shown = run_kvatlas({"inspect", path_, "--json"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(shown.out, document_text(full_document()));
}

TEST_F(InspectPolicy, DamagedAndForeign) {
  std::ofstream(path_) << R"({"schema": "kvatlas.policy/9.0"})";
  auto shown = run_kvatlas({"inspect", path_});
  EXPECT_EQ(shown.status, 3);
  EXPECT_THAT(shown.err,
              AllOf(HasSubstr("DamagedAndForeign-policy.json: "), HasSubstr("newer major")));
  std::ofstream(path_) << R"({"architectures": ["LlamaForCausalLM"]})";
  shown = run_kvatlas({"inspect", path_});
  EXPECT_EQ(shown.status, 3);
  EXPECT_THAT(shown.err, HasSubstr("no policy document"));
}

}  // namespace
}  // namespace kvatlas::calibrate
