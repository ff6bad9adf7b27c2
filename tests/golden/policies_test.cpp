// SPDX-License-Identifier: Apache-2.0
// `kvatlas evaluate` on the real model: what it generates, keeps and decides under every policy,
// against what transformers and kvpress did.
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
using nlohmann::json;

json read_json(const std::string& name) {
  std::ifstream file(golden_path(name));
  return json::parse(file);
}

/// {"name": "lagkv", "lag": 128} as the command line has it: lagkv:lag=128.
std::string policy_text(const json& policy) {
  std::string text = policy.at("name");
  char separator = ':';
  for (const auto& [key, value] : policy.items()) {
    if (key == "name") continue;
    text += separator + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    separator = ',';
  }
  return text;
}

std::string id_of(const json& entry) { return "p" + std::to_string(entry.at("prompt").get<int>()); }

/// What was printed of each prompt and policy.
using Lines = std::map<std::pair<std::string, std::string>, json>;

Lines evaluate(const std::string& prompts, const std::set<std::string>& policies, int count) {
  std::vector<std::string> words{
      "evaluate",       "--model",       demo_model(),          "--prompts",
      prompts,          "--new",         std::to_string(count), "--ignore-eos",
      "--json",         "--generations", "--time-steps",        "0",
      "--no-comparison"};
  for (const auto& policy : policies)
    if (policy != "full") words.insert(words.end(), {"--policy", policy});
  const Finished finished = run_kvatlas(words);
  EXPECT_EQ(finished.status, 0) << finished.err;
  Lines lines;
  std::istringstream out(finished.out);
  for (std::string line; std::getline(out, line);) {
    json one = json::parse(line);
    const std::pair<std::string, std::string> of{one.at("id"), one.at("policy")};
    lines[of] = std::move(one);
  }
  return lines;
}

class GoldenPolicies : public testing::Test {
 protected:
  /// The prompts that these entries are of.
  std::string prompts_of(const std::vector<json>& entries) const {
    std::map<std::string, json> tokens;
    for (const auto& entry : read_json("policies_smollm2.json"))
      if (entry.contains("tokens")) tokens[id_of(entry)] = entry.at("tokens");
    std::set<std::string> wanted;
    for (const auto& entry : entries) wanted.insert(id_of(entry));
    std::string lines;
    for (const auto& id : wanted)
      lines += json{{"id", id}, {"tokens", tokens.at(id)}}.dump() + "\n";
    return folder_.write("prompts.jsonl", lines).string();
  }

  TemporaryFolder folder_;
};

TEST_F(GoldenPolicies, GenerateAndKeepWhatTheyShould) {
  std::map<int, std::vector<json>> by_count;
  for (auto& entry : read_json("policies_smollm2.json"))
    by_count[entry.at("new").get<int>()].push_back(entry);
  ASSERT_EQ(by_count.size(), 2u);
  for (const auto& [count, entries] : by_count) {
    std::set<std::string> policies;
    for (const auto& entry : entries) policies.insert(policy_text(entry.at("policy")));
    EXPECT_EQ(policies.size(), count == 12 ? 15u : 3u);
    const Lines lines = evaluate(prompts_of(entries), policies, count);
    for (const auto& want : entries) {
      const std::string policy = policy_text(want.at("policy"));
      SCOPED_TRACE(id_of(want) + ", " + policy);
      const auto found = lines.find({id_of(want), policy});
      ASSERT_NE(found, lines.end());
      const json& got = found->second;
      EXPECT_EQ(got.at("tokens"), want.at("generated"));
      EXPECT_EQ(got.at("cache_lengths"), want.at("cache_lengths"));
      for (const char* decided : {"lazy", "budgets"}) {
        if (want.contains(decided)) {
          EXPECT_EQ(got.value(decided, json()), want.at(decided));
        }
      }
      if (!want.contains("mass")) continue;
      const auto mass = got.at("mass").get<std::vector<double>>();
      const auto want_mass = want.at("mass").get<std::vector<double>>();
      ASSERT_EQ(mass.size(), want_mass.size());
      for (std::size_t layer = 0; layer < mass.size(); ++layer)
        EXPECT_NEAR(mass[layer], want_mass[layer], 1e-5) << "layer " << layer;
    }
  }
}

TEST_F(GoldenPolicies, PodSharesKeysAsItShould) {
  const auto tokens = read_golden(golden_path("smollm2.h5"), "prose/tokens").integers();
  const auto prose =
      folder_.write("prose.jsonl", json{{"id", "prose"}, {"tokens", tokens}}.dump() + "\n");
  const std::string blocks = (folder_.path() / "prose.h5").string();
  const Finished profiled = run_kvatlas(
      {"profile", "--model", demo_model(), "--prompts", prose, "--capture", "js", "-o", blocks});
  ASSERT_EQ(profiled.status, 0) << profiled.err;

  std::vector<json> entries;
  std::set<std::string> policies;
  for (auto& entry : read_json("pod_smollm2.json")) {
    entry["policy"]["blocks"] = blocks;
    policies.insert(policy_text(entry["policy"]));
    entries.push_back(entry);
  }
  ASSERT_EQ(policies.size(), 3u);
  const Lines lines = evaluate(prompts_of(entries), policies, 12);
  for (const auto& want : entries) {
    const std::string policy = policy_text(want.at("policy"));
    SCOPED_TRACE(id_of(want) + ", " + policy);
    const auto found = lines.find({id_of(want), policy});
    ASSERT_NE(found, lines.end());
    const json& got = found->second;
    EXPECT_EQ(got.at("lowest_layer"), want.at("lowest_layer"));
    EXPECT_EQ(got.at("tokens"), want.at("generated"));
    // Half of what the distant tokens take, for the share of keys dropped.
    const double n = got.at("kept").at(0), initial = want.at("policy").at("initial"),
                 recent = want.at("policy").at("recent");
    const json& full = lines.at({id_of(want), "full"});
    const double of_token =
        full.at("kept_bytes").get<double>() / full.at("kept").at(0).get<double>();
    EXPECT_NEAR(got.at("kept_bytes").get<double>() / of_token,
                n - want.at("keys_dropped").get<double>() / 2 * (n - initial - recent), 1e-6 * n);
  }
}

}  // namespace
}  // namespace kvatlas
