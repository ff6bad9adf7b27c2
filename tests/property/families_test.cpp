// SPDX-License-Identifier: Apache-2.0
// From the profile to the export through the program, on one tiny model of each kind: windows,
// chunks, sinks, latents, heads of two sizes, layers without attention, experts.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/tokenizer/byte_alphabet.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/text_of.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

/// A tokenizer of the 256 bytes, which the tiny checkpoints lack: answers are scored as text.
std::string byte_tokenizer() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[std::string(
        model::ByteAlphabet::get().character(static_cast<unsigned char>(byte)))] = byte;
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  return json{{"version", "1.0"},
              {"added_tokens", json::array()},
              {"pre_tokenizer", bytes},
              {"decoder", bytes},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}}
      .dump();
}

/// What is expected of a family.
struct Kind {
  const char* name;
  Words methods;        // that calibrate all keeps
  const char* without;  // why others are left out; "" if none is
  Words to;             // runtimes that are given a policy
  const char* not_to;   // why a runtime, or all of them, are given none
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const Words kAll = {"dynamickv", "headkv", "lagkv", "pod", "precision", "simlayerkv"};
const Kind kKinds[] = {
    {"qwen3_moe",
     kAll,
     "",
     {"kvpress", "lagkv", "transformers-cache", "vllm"},
     "minference: nothing: simlayerkv"},
    {"gpt_oss",
     kAll,
     "",
     {"vllm"},
     "transformers-cache: nothing: simlayerkv, pod, dynamickv, headkv, lagkv, precision: kvatlas's "
     "cache "
     "for transformers cannot run the policy on a model of architecture 'gpt_oss': the package's "
     "attention knows no sinks"},
    {"llama4_text", kAll, "", {"vllm"}, "llama4': its windows are chunks"},
    {"gemma3n_text", kAll, "", {"vllm"}, "its last layers read the keys of others"},
    {"gemma4_text",
     {"dynamickv", "headkv", "pod", "precision", "simlayerkv"},
     "'lagkv' does not fit the model, whose layers have heads of different sizes",
     {},
     "its layers cache different numbers of values"},
    {"deepseek_v3",
     {"simlayerkv"},
     "'pod' does not fit the model, which caches one latent for all heads of a layer",
     {},
     "its layers cache one latent for all heads"},
    {"qwen3_next", kAll, "", {}, "layers without attention lie between those that the policy"},
    {"lfm2", kAll, "", {}, "layers without attention lie between those that the policy"},
};

class FamilyRun : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  /// The checkpoint with a tokenizer, and a configuration with these changes.
  std::string model(const std::string& name, const json& changes = json::object()) const {
    const auto to = folder_.path() / "M";
    std::filesystem::copy(golden_path("tiny2/" + name), to);
    json config = json::parse(text_of(to / "config.json"));
    config.update(changes);
    std::ofstream(to / "config.json") << config;
    std::ofstream(to / "tokenizer.json") << byte_tokenizer();
    return to.string();
  }

  std::string prompts(int count) const {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      json ids = json::array();
      for (int j = 0; j < 96 + 17 * i; ++j) ids.push_back((j * j + 3 * j * i + i) % 256);
      lines += json{{"tokens", ids}, {"task", "needle"}, {"answers", {"e"}}}.dump() + '\n';
    }
    return folder_.write("prompts.jsonl", lines).string();
  }

  /// What it printed; it must succeed.
  static Finished run(const Words& words) {
    Finished done = run_kvatlas(words);
    EXPECT_EQ(done.status, 0) << testing::PrintToString(words) << done.err;
    return done;
  }

  void profile(const std::string& of) const {
    run({"profile",    "-m",        of,      "--prompts", prompts(6), "-o",
         path("p.h5"), "--threads", "1",     "--initial", "2,4",      "--recent",
         "16,32",      "--budgets", "32,64", "--lags",    "16",       "--sink",
         "4",          "--ratios",  "1/2",   "--new",     "3"});
  }
  Words calibrate(const std::string& of, const std::string& method) const {
    Words words = {"calibrate", method, "-p",         path("p.h5"),
                   "-m",        of,     "--threads",  "1",
                   "--recent",  "32",   "--held-out", "0",
                   "--new",     "3",    "-o",         path("policy.json"),
                   "--force"};
    if (method == "all")
      words.insert(words.end(), {"--pod-initial",
                                 "4",
                                 "--pod-recent",
                                 "32",
                                 "--delta",
                                 "0.5",
                                 "--threshold",
                                 "0.15",
                                 "--budget",
                                 "32",
                                 "--lags",
                                 "16",
                                 "--ratios",
                                 "1/2",
                                 "--sink",
                                 "4",
                                 "--formats",
                                 "q8_0",
                                 "--sensitivity-texts",
                                 "1"});
    return words;
  }
  TemporaryFolder folder_;
};

class Families : public FamilyRun, public testing::WithParamInterface<Kind> {};

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_P(Families, AreProfiledCalibratedEvaluatedAndExported) {
  const Kind& kind = GetParam();
  const std::string of = model(kind.name);
  profile(of);

  const Finished calibrated = run(calibrate(of, "all"));
  const json document = json::parse(text_of(path("policy.json")));
  for (const auto& method : kAll) {
    const bool kept =
        std::find(kind.methods.begin(), kind.methods.end(), method) != kind.methods.end();
    EXPECT_EQ(document.contains(method), kept) << method;
  }
  if (*kind.without == 0) {
    EXPECT_THAT(calibrated.err, Not(HasSubstr("left out")));
  } else {
    EXPECT_EQ(count_of(calibrated.err, str("kvatlas: left out: ", kind.without)), 1)
        << calibrated.err;
  }

  const json card = json::parse(run({"inspect", of, "--context", "200", "--json"}).out);
  const json bytes =
      json::parse(run({"inspect", path("policy.json"), "--context", "200", "--json"}).out);
  // The full cache of a policy document is that of the model.
  EXPECT_EQ(bytes.at("policies").at(0).at("sequence_bytes"),
            card.at("memory").at("formats").at(0).at("sequence_bytes"));
  EXPECT_EQ(bytes.at("policies").size(), 1 + kind.methods.size());

  const json judged = json::parse(
      run({"evaluate", "-m", of, "--policy", path("policy.json"), "--against",
           "streaming:initial=2,recent=64,streaming:recent=32", "--prompts", prompts(2), "--new",
           "3", "--threads", "1", "--time-steps", "0", "--ignore-eos", "--json"})
          .out);
  ASSERT_EQ(judged.at("policies").size(), 3 + kind.methods.size());
  for (const auto& policy : judged.at("policies")) {
    const auto divergence = policy.at("kl").at("mean").get<double>();
    EXPECT_TRUE(std::isfinite(divergence) && divergence >= 0 && divergence < 50) << policy;
    if (policy.at("policy") == "full") {
      EXPECT_EQ(divergence, 0);
    } else if (policy.at("policy") == "streaming:recent=32") {
      EXPECT_GT(divergence, 0);
    }
  }

  const std::string every = join(calibrate::runtimes(), ",", &calibrate::Runtime::name);
  const Finished exported =
      run_kvatlas({"export", path("policy.json"), "--to", every, "-o", path("out")});
  EXPECT_EQ(exported.status, kind.to.empty() ? 2 : 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr(kind.not_to));
  for (const auto& runtime : kind.to)
    EXPECT_TRUE(std::filesystem::exists(path("out/" + runtime))) << runtime << exported.err;
  if (kind.to.empty()) {
    EXPECT_EQ(count_of(exported.err, "\n"), 1) << exported.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Families, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

/// What a policy does shows from the second token on. An answer of one token is no reason to think
/// that it does much.
TEST_F(FamilyRun, AnAnswerOfOneTokenIsNoDivergence) {
  json all = json::array();
  for (int token = 0; token < 256; ++token) all.push_back(token);
  const std::string of = model("qwen3_moe", {{"eos_token_id", all}});
  profile(of);
  Words words = calibrate(of, "precision");
  words.erase(std::find(words.begin(), words.end(), "--recent"),
              std::find(words.begin(), words.end(), "--held-out"));
  words.insert(words.end(), {"--formats", "int2", "--sensitivity-texts", "1"});
  run(words);
  const json document = json::parse(text_of(path("policy.json")));
  ASSERT_FALSE(document.at("precision").at("curve").empty());
  for (const auto& point : document.at("precision").at("curve")) EXPECT_EQ(point.at("kl"), 0);
}

TEST_F(FamilyRun, SaysHowManyLayersHaveAttention) {
  const std::string of = model("qwen3_next");
  const Finished planned =
      run({"profile", "-m", of, "--prompts", prompts(1), "-o", path("p.h5"), "--dry-run"});
  EXPECT_THAT(planned.err, HasSubstr(", 1 layer with attention of 4, on"));
  EXPECT_THAT(run({"inspect", of}).out, AllOf(HasSubstr("1 with attention, which are [3] of 4"),
                                              HasSubstr("layers' caches    4: 3 state of "),
                                              HasSubstr("1 full, 2 KV heads of 16")));
}

}  // namespace
}  // namespace kvatlas
