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
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
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
  const auto shown = run_kvatlas({"inspect", path_}).out;
  EXPECT_THAT(shown,
              ContainsRegex("layers' keys +q8_0 \\(8.5 bits a value\\): 0, 3; int4 \\(5 bits "
                            "a value\\): 1-2\n"));
  EXPECT_THAT(shown, ContainsRegex("layers' values +q8_0 \\(8.5 bits a value\\): 0-3\n"));
  // The formats of all layers, which the settings name, are no layer's here.
  EXPECT_THAT(shown, testing::Not(HasSubstr("fp8")));
}

TEST_F(InspectPolicy, LayersThatAreLazyForMostInputsAndThatShare) {
  Document document = full_document();
  document.compose.clear();
  document.sections = {{"simlayerkv", section_of(SimLayerKv{})},
                       {"pod", document.sections.at("pod")}};
  document.sections["simlayerkv"]["static"]["lazy_layers"] = {false, true, true, false};
  write_document(document, path_, false);
  const auto shown = run_kvatlas({"inspect", path_}).out;
  EXPECT_THAT(shown, ContainsRegex("lazy layers +by input; for most inputs 1-2 \\(2 of 4\\)\n"));
  EXPECT_THAT(shown, ContainsRegex("sharing layers +1-3 \\(3 of 4\\); with all heads: none\n"));
}

/// Four layers of two KV heads of 8 channels: 64 bytes a token and layer in 16 bits.
TEST_F(InspectPolicy, MemoryOfSequences) {
  Document document = full_document();
  document.compose.clear();
  document.kv_bits = 16;
  document.runtime.clear();
  DynamicKv budgets;
  budgets.fixed = {100, 100, 80, 168};
  document.sections = {{"dynamickv", section_of(budgets)}};
  write_document(document, path_, false);
  const auto shown = run_kvatlas({"inspect", path_, "--context", "1000", "--batch", "8",
                                  "--weights", "1MiB", "--memory", "10MiB"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ContainsRegex("each layer keeps of one sequence of 1000 tokens"));
  EXPECT_THAT(shown.out, ContainsRegex("full +1000 +62.5 KiB  0-3\n"));
  EXPECT_THAT(shown.out, ContainsRegex("dynamickv.* 116 +7.2 KiB  0-1\n"));
  EXPECT_THAT(shown.out, ContainsRegex("\n +96 +6.0 KiB  2\n"));
  EXPECT_THAT(shown.out, ContainsRegex("\n +184 +11.5 KiB  3\n"));
  EXPECT_THAT(shown.out, HasSubstr("Memory of 8 sequences of so many tokens, weights of 1.0 MiB"));
  // 10 MiB less the weights are 36.9 times 256 000 bytes, and 288 times 64 bytes of
  // the 448 tokens and the window of 16 in each layer.
  EXPECT_THAT(shown.out, ContainsRegex("full +250 KiB +100.0 % +3.0 MiB +36 +4608"));
  EXPECT_THAT(shown.out, ContainsRegex("32.0 KiB +12.8 % +1.2 MiB +288 +any"));
}

TEST_F(InspectPolicy, MemoryOfManyPoliciesFitsATerminal) {
  Document document = full_document();
  document.compose.clear();
  document.kv_bits = 16;
  document.runtime.clear();
  write_document(document, path_, false);
  const auto shown = run_kvatlas({"inspect", path_, "--context", "32768"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  std::istringstream lines(shown.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

/// Of the model that --model names, by its header; vLLM holds a prompt whole until it is cut.
TEST_F(InspectPolicy, PolicyAsText) {
  std::ofstream(path_) << R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 128,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256})";
  const std::string text = "snapkv:budget=64";
  auto shown = run_kvatlas({"inspect", text, "--model", path_, "--context", "960", "--as", "vllm",
                            "--memory", "10MiB", "--weights", "1MiB"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ContainsRegex("policy +while its +a sequence .*\n +prompt is read"));
  // 960 tokens of 1 KiB in four layers; beside such a prompt 9 MiB hold 129 times 64 tokens.
  EXPECT_THAT(shown.out, ContainsRegex("full +960 KiB +960 KiB +100.0 % +1.9 MiB +9 "));
  EXPECT_THAT(shown.out,
              ContainsRegex("snapkv:budget=64 +960 KiB +64.0 KiB +6.7 % +1.1 MiB +130 "));
  EXPECT_THAT(shown.err, HasSubstr("one is being read and the others are at their ends"));
  shown = run_kvatlas({"inspect", text, "--model", path_, "--context", "960"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, Not(HasSubstr("while its prompt is read")));
  for (const auto& given : {std::vector<std::string>{"inspect", text},
                            {"inspect", text, "--context", "960"},
                            {"inspect", text, "--model", path_}}) {
    shown = run_kvatlas(given);
    EXPECT_EQ(shown.status, 2);
    EXPECT_THAT(shown.err, AnyOf(HasSubstr("give the model with --model and the prompt's tokens"),
                                 HasSubstr("memory is of prompts of a length")));
  }
  shown = run_kvatlas({"inspect", text, "--json"});  // a document of any model
  const auto document = nlohmann::json::parse(shown.out);
  EXPECT_FALSE(document.contains("model"));
  EXPECT_EQ(document.at("baseline").at("settings").at("budget"), 64);
  EXPECT_EQ(document.at("baseline").at("settings").at("window"), 16);
  shown = run_kvatlas({"inspect", "snapkv:budget=0", "--model", path_, "--context", "960"});
  EXPECT_EQ(shown.status, 2);
  EXPECT_THAT(shown.err, HasSubstr("budget"));
  EXPECT_THAT(shown.err, Not(HasSubstr("no file")));
  std::ofstream(path_) << R"({"model_type": "deepseek_v3", "num_hidden_layers": 4,
      "hidden_size": 128, "num_attention_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
      "qk_nope_head_dim": 8, "v_head_dim": 8, "vocab_size": 256})";
  shown = run_kvatlas({"inspect", text, "--model", path_, "--context", "960"});
  EXPECT_EQ(shown.status, 2);
  EXPECT_THAT(shown.err, HasSubstr("layers all hold a key and a value"));
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
              AllOf(HasSubstr("DamagedAndForeign-policy.json': "), HasSubstr("newer major")));
  std::ofstream(path_) << R"({"architectures": ["LlamaForCausalLM"]})";
  shown = run_kvatlas({"inspect", path_});
  EXPECT_EQ(shown.status, 3);
  EXPECT_THAT(shown.err, HasSubstr("no policy document"));
}

}  // namespace
}  // namespace kvatlas::calibrate
