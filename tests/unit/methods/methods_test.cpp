// SPDX-License-Identifier: Apache-2.0
// The calibrations on a profile whose statistics are known, with trials answered from rules
// instead of a model.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/methods/dynamickv.hpp"
#include "calibrate/methods/failed_tasks.hpp"
#include "calibrate/methods/headkv.hpp"
#include "calibrate/methods/lagkv.hpp"
#include "calibrate/methods/pod.hpp"
#include "calibrate/methods/precision.hpp"
#include "calibrate/methods/simlayerkv.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::refusal;
using namespace testing_profile;

using Calls = std::vector<std::pair<std::vector<Policy>, std::vector<std::size_t>>>;

/// Trials whose score is a function of the policy; calls that try policies beside the full cache
/// are kept.
template <class Score>
RunTrials trials_by(Calls& calls, Score score) {
  return [&calls, score](std::span<const Policy> policies, std::span<const std::size_t> samples,
                         Measure) {
    if (policies.size() > 1)
      calls.emplace_back(std::vector<Policy>(policies.begin(), policies.end()),
                         std::vector<std::size_t>(samples.begin(), samples.end()));
    std::vector<std::vector<Trial>> out;
    for (const Policy& policy : policies)
      for (auto& row = out.emplace_back(); row.size() < samples.size();) {
        Trial trial;
        trial.score = score(policy, samples[row.size()]);
        // A wrong answer has its third digit of four wrong.
        trial.digits = trial.score > 0.5 ? data::DigitScores{1, 1} : data::DigitScores{0.5, 0.75};
        trial.kept_share = policy.parts.empty() ? 1 : 0.5;
        row.push_back(trial);
      }
    return out;
  };
}

/// The same trials where every policy keeps this share of the bytes.
RunTrials keeping(double share, RunTrials run) {
  return [share, run = std::move(run)](std::span<const Policy> policies,
                                       std::span<const std::size_t> samples, Measure measure) {
    auto out = run(policies, samples, measure);
    for (std::size_t p = 0; p < policies.size(); ++p)
      for (Trial& trial : out[p]) trial.kept_share = policies[p].parts.empty() ? 1 : share;
    return out;
  };
}

template <class T>
const T* part_of_policy(const Policy& policy) {
  return policy.parts.empty() ? nullptr : std::get_if<T>(&policy.parts.front());
}

class Methods : public testing::Test {
 protected:
  const profile::Reader& profile(const Shape& shape = {}) {
    reader_.reset();
    const auto path = folder_.path() / ("p" + std::to_string(++files_) + ".h5");
    write_profile(path, shape);
    reader_ = std::make_unique<profile::Reader>(path);
    return *reader_;
  }
  /// The section is one that a document takes.
  void expect_valid(const char* method, const Calibrated& found) {
    Document document;
    document.model = model_info(reader_->header());
    document.sections[method] = found.section;
    const Document read = parse_document(document_text(document));
    EXPECT_EQ(policies_of(read).size(), 1u);
    for (const auto& table : found.tables) {
      EXPECT_FALSE(table.rows.empty()) << table.title;
      for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.title;
    }
  }
  Calls calls_;

 private:
  testing_support::TemporaryFolder folder_;
  std::unique_ptr<profile::Reader> reader_;
  int files_ = 0;
};

SimLayerRequest lazy_request() {
  SimLayerRequest request;
  request.policy.keep = {4, 64};
  return request;
}

/// The answer is lost where layer 2 is trimmed.
double without_layer_2(const Policy& policy, std::size_t sample) {
  const auto* part = part_of_policy<SimLayerKv>(policy);
  if (!part) return 1;
  if (part->opposite) return 0;
  if (part->fixed) return (*part->fixed)[2][0] ? 0 : 1;
  return part->threshold >= kMasses[2] + mass_noise(static_cast<std::int64_t>(sample)) ? 1 : 0;
}

TEST_F(Methods, TasksThatTheFullCacheFailsAreNamed) {
  const Evidence evidence(profile(), {});
  const auto failing = [&](double needle, double passkey) {
    return failed_tasks(evidence,
                        trials_by(calls_, [&, needle, passkey](const Policy&, std::size_t sample) {
                          return evidence.sample(sample).task == "needle" ? needle : passkey;
                        }));
  };
  const FailedTasks failed = failing(1, 0.25);
  EXPECT_THAT(failed.names, ElementsAre("passkey:digits=4"));
  EXPECT_THAT(failed.said,
              ElementsAre(HasSubstr("the task passkey:digits=4, on which the full cache "
                                    "scores 0.25")));
  EXPECT_THAT(failing(1, 0.5).names, testing::IsEmpty());
  EXPECT_THAT(failing(0, 0.25).names, testing::IsEmpty());  // that is refused as a whole
  Request request;
  request.without = failed.names;
  EXPECT_EQ(Evidence(evidence.profile(), request).positions().size(), 4u);
}

TEST_F(Methods, SimLayerKvFindsTheThreshold) {
  const Evidence evidence(profile(), {});
  const Calibrated found =
      calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, without_layer_2));
  expect_valid("simlayerkv", found);
  // All candidates in one call on the choice, and one on what was held out.
  ASSERT_EQ(calls_.size(), 2u);
  EXPECT_TRUE(calls_[0].first.front().parts.empty());
  EXPECT_EQ(calls_[0].second.size(), 7u);
  EXPECT_EQ(calls_[1].second.size(), 5u);
  for (const auto sample : calls_[1].second) EXPECT_THAT(calls_[0].second, Not(Contains(sample)));

  const double threshold = found.section["settings"]["threshold"];
  // No sample of the choice is lost, that of the greatest mass neither.
  auto choice = calls_[0].second;
  std::sort(choice.begin(), choice.end());
  const auto of_choice = [&](std::size_t place) {
    return kMasses[2] + mass_noise(static_cast<std::int64_t>(choice[place]));
  };
  EXPECT_NEAR(threshold, of_choice(6), 1.1e-5);
  SimLayerRequest allows_one = lazy_request();
  allows_one.tolerance = 1.0 / 7;
  const auto looser =
      calibrate_simlayerkv(evidence, allows_one, trials_by(calls_, without_layer_2));
  EXPECT_NEAR(looser.section["settings"]["threshold"], of_choice(5), 1.1e-5);
  EXPECT_THAT(found.section["lazy_rates"].get<std::vector<double>>(),
              ElementsAre(0, 1, testing::Le(0.5), 1));
  double before = 0;
  for (const auto& point : found.section["curve"]) {
    EXPECT_GT(point["threshold"].get<double>(), before);
    before = point["threshold"];
    EXPECT_LE(point["low"].get<double>(), point["score"].get<double>());
  }
  EXPECT_EQ(found.section["static"]["lazy_layers"], json({false, true, false, true}));
  EXPECT_EQ(found.section["measured"]["held_out"], true);
  EXPECT_EQ(found.section["measured"]["samples"], 5);
  EXPECT_DOUBLE_EQ(found.section["opposite"]["measured"]["score"]["mean"], 0);
  // The second of two later tokens has a low mass: it is of another class in the lazy layers.
  EXPECT_DOUBLE_EQ(found.section["consistency"][1], 0.5);
  EXPECT_DOUBLE_EQ(found.section["consistency"][0], 1);
  EXPECT_FALSE(found.section.contains("forced"));
}

TEST_F(Methods, SimLayerKvIsTheSameTwice) {
  const Evidence evidence(profile(), {});
  const auto once = [&] {
    return calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, without_layer_2))
        .section;
  };
  EXPECT_EQ(once(), once());
}

TEST_F(Methods, SimLayerKvWithoutAModelTakesAThreshold) {
  const Evidence evidence(profile(), {});
  SimLayerRequest request = lazy_request();
  // The published one, if none is given.
  EXPECT_EQ(calibrate_simlayerkv(evidence, request, nullptr).section["settings"]["threshold"], 0.9);
  request.threshold = 0.7;
  const Calibrated found = calibrate_simlayerkv(evidence, request, nullptr);
  expect_valid("simlayerkv", found);
  EXPECT_THAT(found.section["lazy_rates"].get<std::vector<double>>(), ElementsAre(0, 1, 0, 1));
  const auto& savings = found.section["savings"].at(0);
  EXPECT_EQ(savings["length"], kTokens);
  EXPECT_DOUBLE_EQ(savings["layer_ratio"], 2);
  EXPECT_NEAR(savings["kv_ratio"], 300.0 / (150 + 34), 1e-9);
  EXPECT_FALSE(found.section.contains("measured"));
}

TEST_F(Methods, SimLayerKvFixesLayersOnRequest) {
  const Evidence evidence(profile(), {});
  SimLayerRequest request = lazy_request();
  request.threshold = 0.7;
  request.fixed = true;
  EXPECT_EQ(calibrate_simlayerkv(evidence, request, nullptr).section["result"]["lazy_layers"],
            json({false, true, false, true}));
  request.policy.per_head = true;
  const json section = calibrate_simlayerkv(evidence, request, nullptr).section;
  EXPECT_EQ(section["result"]["lazy_heads"].at(1), json({true, true}));
}

TEST_F(Methods, SimLayerKvByTheLastPromptRows) {
  const Evidence evidence(profile(), {});
  SimLayerRequest request = lazy_request();
  request.threshold = 0.7;
  request.policy.identify = SimLayerKv::Identify::prefill;
  request.policy.w_last = 2;
  EXPECT_EQ(calibrate_simlayerkv(evidence, request, nullptr).section["lazy_rates"].at(0), 1);
  request.policy.w_last = 8;
  EXPECT_EQ(calibrate_simlayerkv(evidence, request, nullptr).section["lazy_rates"].at(0), 0);
  request.policy.w_last = 32;
  EXPECT_THAT(refusal([&] { calibrate_simlayerkv(evidence, request, nullptr); }),
              HasSubstr("--last-rows 32"));
}

TEST_F(Methods, SimLayerKvLeavesShortPromptsOut) {
  const Evidence evidence(profile({.samples = 6, .short_samples = 3}), {});
  SimLayerRequest request = lazy_request();
  request.threshold = 0.7;
  const Calibrated found = calibrate_simlayerkv(evidence, request, nullptr);
  EXPECT_EQ(found.section["samples"], 6);
  EXPECT_THAT(found.notes, Contains(HasSubstr("3 of 9 prompts")));
  EXPECT_THAT(refusal([&] {
                const Evidence shorts(profile({.samples = 0, .short_samples = 6}), {});
                calibrate_simlayerkv(shorts, request, nullptr);
              }),
              HasSubstr("smaller --recent"));
}

TEST_F(Methods, FewSamplesOrAFailingModelAreRefused) {
  const auto& few = profile({.samples = 4});
  SimLayerRequest request = lazy_request();
  request.threshold = 0.7;
  EXPECT_THAT(refusal([&] { calibrate_simlayerkv(Evidence(few, {}), request, nullptr); }),
              AllOf(HasSubstr("4 samples"), HasSubstr("5 at least"), HasSubstr("--force")));
  const Calibrated forced = calibrate_simlayerkv(Evidence(few, {.force = true}), request, nullptr);
  EXPECT_EQ(forced.section["forced"], true);

  const auto& full = profile();
  const auto poor = trials_by(calls_, [](const Policy&, std::size_t) { return 0.4; });
  const LagRequest lag{.lags = {32}};
  EXPECT_THAT(refusal([&] { calibrate_simlayerkv(Evidence(full, {}), lazy_request(), poor); }),
              HasSubstr("scores 0.400"));
  EXPECT_THAT(refusal([&] { calibrate_lagkv(Evidence(full, {}), lag, poor); }),
              HasSubstr("scores 0.400"));
  EXPECT_THAT(refusal([&] { calibrate_precision(Evidence(full, {}), {}, poor); }),
              HasSubstr("scores 0.400"));
  EXPECT_TRUE(calls_.empty());  // no policy was tried yet
  EXPECT_EQ(calibrate_lagkv(Evidence(full, {.force = true}), lag, poor).section["forced"], true);
}

TEST_F(Methods, FewSamplesAreAllUsedAndSaySo) {
  const Evidence evidence(profile({.samples = 8}), {});
  const Calibrated found =
      calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, without_layer_2));
  EXPECT_EQ(calls_[1].second.size(), 8u);
  EXPECT_EQ(found.section["measured"]["held_out"], false);
  EXPECT_THAT(found.notes, AllOf(Contains(HasSubstr("nothing was held out")),
                                 Contains(HasSubstr("+-5 points"))));
}

TEST_F(Methods, SamplesOfOneTextAreOnOneSideOfTheSplit) {
  // Texts of two samples of one task, and of four of the other.
  const Evidence evidence(profile({.samples = 36, .text_every = 6}), {});
  const Calibrated found =
      calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, without_layer_2));
  ASSERT_EQ(calls_.size(), 2u);
  std::set<std::string> chosen_by, held_out;
  for (const auto sample : calls_[0].second) chosen_by.insert(evidence.sample(sample).group);
  for (const auto sample : calls_[1].second) held_out.insert(evidence.sample(sample).group);
  EXPECT_EQ(chosen_by.size(), 7u);
  EXPECT_EQ(held_out.size(), 5u);
  for (const auto& group : held_out) EXPECT_FALSE(chosen_by.contains(group)) << group;
  const auto& measured = found.section["measured"];
  EXPECT_EQ(measured["texts"], 5);
  EXPECT_EQ(measured["samples"], calls_[1].second.size());
  const std::string samples = std::to_string(calls_[0].second.size());
  EXPECT_THAT(found.tables[0].title, HasSubstr(samples + " samples of 7 texts"));
  EXPECT_THAT(found.tables[1].rows.back()[1],
              std::to_string(calls_[1].second.size()) + " of 5 texts");
  EXPECT_THAT(found.notes, Contains(HasSubstr(" samples of 5 texts; ")));
}

/// The policies of all calls as a document holds them.
json tried_in(const Calls& calls) {
  json out = json::array();
  for (const auto& [policies, samples] : calls)
    for (const auto& policy : policies)
      for (const auto& part : policy.parts)
        out.push_back({{"name", policy_text(policy)}, {"part", section_of(part)}});
  return out;
}

/// What is chosen and tried is the same whatever the held-out samples say.
TEST_F(Methods, DecisionsLookAtNoHeldOutSample) {
  const auto any = [](const Policy&, std::size_t) { return 1.0; };
  const std::vector<std::function<Calibrated(const Evidence&)>> methods = {
      [&](const Evidence& evidence) {
        SimLayerRequest request = lazy_request();
        request.fixed = true;
        request.threshold = 0.55;
        return calibrate_simlayerkv(evidence, request, trials_by(calls_, any));
      },
      [&](const Evidence& evidence) {
        return calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, any));
      },
      [&](const Evidence& evidence) {
        PodRequest request;
        request.policy.proximal = {16, 112};
        request.deltas = {0.5, 0.9};
        return calibrate_pod(evidence, request, trials_by(calls_, any));
      },
      [&](const Evidence& evidence) {
        return calibrate_dynamickv(evidence, {}, trials_by(calls_, any));
      }};
  for (const auto& calibrate : methods) {
    Shape shape{.samples = 36, .text_every = 6};
    const auto run = [&] {
      calls_.clear();
      const Evidence evidence(profile(shape), {});
      shape.odd = evidence.split(evidence.positions()).held_out;
      return calibrate(evidence).section;
    };
    const json first = run();
    const json tried = tried_in(calls_);
    ASSERT_FALSE(shape.odd.empty());
    const json again = run();
    EXPECT_EQ(tried_in(calls_), tried);
    for (const char* member : {"settings", "result", "static", "lazy_rates", "sweep"})
      EXPECT_EQ(again.value(member, json()), first.value(member, json())) << member;
  }
}

TEST_F(Methods, ManySamplesOfFewTextsAreFew) {
  const Evidence evidence(profile({.samples = 24, .text_every = 12}), {});
  EXPECT_THAT(refusal([&] {
                calibrate_simlayerkv(evidence, lazy_request(), trials_by(calls_, without_layer_2));
              }),
              AllOf(HasSubstr("24 samples of 4 texts"), HasSubstr("5 at least"),
                    HasSubstr("different texts")));
}

TEST_F(Methods, FewTextsAreNotSplitHoweverManySamplesTheyMake) {
  const Evidence evidence(profile({.samples = 48, .text_every = 12}), {});  // 8 texts
  const Split split = evidence.split(evidence.positions());
  EXPECT_EQ(split.choice, evidence.positions());
  EXPECT_TRUE(split.held_out.empty());
}

TEST_F(Methods, WhatTheProfileLacksIsNamed) {
  const Evidence evidence(profile(), {});
  SimLayerRequest request = lazy_request();
  request.policy.keep = {4, 256};
  EXPECT_THAT(refusal([&] { calibrate_simlayerkv(evidence, request, nullptr); }),
              AllOf(HasSubstr("initial=16,recent=112"),
                    HasSubstr("kvatlas profile --initial 4 --recent 256")));
  DynamicRequest budgets;
  EXPECT_THAT(
      refusal([&] { calibrate_dynamickv(evidence, budgets, nullptr); }),
      AllOf(HasSubstr("budget=64; budget=32 (the nearest first)"), HasSubstr("--budgets 128")));
  budgets.policy.select = {.window = 8, .budget = 64};
  EXPECT_THAT(refusal([&] { calibrate_dynamickv(evidence, budgets, nullptr); }),
              HasSubstr("--windows 8"));
  LagRequest lag{.lags = {40}};
  EXPECT_THAT(refusal([&] { calibrate_lagkv(evidence, lag, nullptr); }), HasSubstr("--lags 40"));
  lag.lags = {512};
  EXPECT_THAT(refusal([&] { calibrate_lagkv(evidence, lag, nullptr); }), HasSubstr("long enough"));
  EXPECT_THAT(refusal([&] { Evidence(evidence.profile(), {.tasks = {"qa"}}); }),
              AllOf(HasSubstr("'qa'"), HasSubstr("'needle'")));

  const Evidence bare(profile({.lazy = false, .js = false, .scores = false, .kept = false}), {});
  EXPECT_THAT(refusal([&] { calibrate_simlayerkv(bare, lazy_request(), nullptr); }),
              AllOf(HasSubstr("--capture lazy")));
  EXPECT_THAT(refusal([&] { calibrate_pod(bare, {}, nullptr); }), HasSubstr("--capture js"));
  EXPECT_THAT(refusal([&] { calibrate_dynamickv(bare, {}, nullptr); }),
              HasSubstr("--capture scores"));
  EXPECT_THAT(refusal([&] { calibrate_lagkv(bare, {.lags = {32}}, nullptr); }),
              HasSubstr("--capture kept"));
}

TEST_F(Methods, OnlySamplesOfTheTasks) {
  const auto& reader = profile();
  EXPECT_EQ(Evidence(reader, {.tasks = {"needle"}}).positions().size(), 4u);
  EXPECT_EQ(Evidence(reader, {.tasks = {"passkey"}}).positions().size(), 8u);
  EXPECT_THAT(provenance(Evidence(reader, {.tasks = {"needle"}})).tasks, ElementsAre("needle"));
}

PodRequest pod_request() {
  PodRequest request;
  request.policy.proximal = {16, 112};
  return request;
}

TEST_F(Methods, PodGroupsAndCounts) {
  const Evidence evidence(profile(), {});
  const Calibrated found = calibrate_pod(evidence, pod_request(), nullptr);
  expect_valid("pod", found);
  EXPECT_EQ(found.section["settings"]["delta"], 0.5);
  EXPECT_EQ(found.section["result"]["lowest"].at(3), json({0, 1, 1, 3}));
  EXPECT_DOUBLE_EQ(found.section["keys_dropped"], 0.25);
  EXPECT_NEAR(found.section["savings"].at(0)["saved"], 0.125 * 172 / 300, 1e-9);
  // A quarter of the layers is not the lowest, and its gates are 1/2.
  for (const auto& point : found.section["gate"]["skipped"])
    EXPECT_DOUBLE_EQ(point["skipped"], point["tau"] <= 0.5 ? 0.25 : 0) << point;
  EXPECT_THAT(found.notes, Contains(HasSubstr("--capture default,agreement")));
}

TEST_F(Methods, PodReportsProximalAgreement) {
  const Evidence evidence(profile({.agreement = true}), {});
  const Calibrated found = calibrate_pod(evidence, pod_request(), nullptr);
  expect_valid("pod", found);
  EXPECT_EQ(found.section["agreement"],
            (json{{{"tokens", 16}, {"agreement", 0.5}}, {{"tokens", 32}, {"agreement", 1.0}}}));
  EXPECT_THAT(found.notes, Not(Contains(HasSubstr("agreement"))));
}

TEST_F(Methods, PodReportsHowAlikeValuesAre) {
  const Evidence evidence(profile({.values = true}), {});
  const Calibrated found = calibrate_pod(evidence, pod_request(), nullptr);
  EXPECT_THAT(found.notes, Contains(HasSubstr("a mean cosine of more than 0.62")));
  const auto table = std::find_if(found.tables.begin(), found.tables.end(), [](const Table& one) {
    return one.title.starts_with("PoD: values that layers could share");
  });
  ASSERT_NE(table, found.tables.end());
  // Of two KV heads of four layers: one block a head, then layers 1 and 2 together, then none.
  const Table::Row none{"0.1", "2", "75.0 %"}, two{"0.5", "6", "25.0 %"}, all{"0.7", "8", "0.0 %"};
  EXPECT_EQ(table->rows.at(0), none);
  EXPECT_EQ(table->rows.at(4), two);
  EXPECT_EQ(table->rows.at(6), all);
}

TEST_F(Methods, PodTriesDeltas) {
  const Evidence evidence(profile(), {});
  // Sharing costs the answer.
  const auto strict = trials_by(calls_, [](const Policy& policy, std::size_t) {
    const auto* part = part_of_policy<Pod>(policy);
    return !part || count_blocks(part->lowest) == kHeads * kLayers ? 1.0 : 0.0;
  });
  const Calibrated found = calibrate_pod(evidence, pod_request(), strict);
  expect_valid("pod", found);
  EXPECT_EQ(found.section["settings"]["delta"], 0.9);
  EXPECT_EQ(found.section["measured"]["score"]["mean"], 1);
  ASSERT_EQ(calls_.size(), 2u);
  EXPECT_EQ(calls_[0].first.size(), 20u);
  EXPECT_EQ(found.section["gate"]["curve"].size(), 11u);
  EXPECT_THAT(found.section["proximal"].at(0)["tokens"], 64);
}

TEST_F(Methods, PodOfAWantedSaving) {
  const Evidence evidence(profile(), {});
  PodRequest request = pod_request();
  request.wanted_saving = 0.05;
  EXPECT_DOUBLE_EQ(calibrate_pod(evidence, request, nullptr).section["settings"]["delta"], 0.87);
  request.wanted_saving = 0.4;
  EXPECT_THAT(refusal([&] { calibrate_pod(evidence, request, nullptr); }),
              HasSubstr("is the most"));
}

TEST_F(Methods, DynamicKvBudgetsByTaskAndOverall) {
  const Evidence evidence(profile(), {});
  const DynamicRequest request{.budget = 64};
  const Calibrated found = calibrate_dynamickv(
      evidence, request, trials_by(calls_, [](const Policy& policy, std::size_t) {
        const auto* part = part_of_policy<DynamicKv>(policy);
        return part && part->select.budget < 64 ? 0.5 : 1.0;
      }));
  expect_valid("dynamickv", found);
  const auto budgets = found.section["result"]["budgets"].get<std::vector<std::int64_t>>();
  EXPECT_THAT(budgets, ElementsAre(77, 58, 38, 19));  // 48 * 4 tokens by 4 : 3 : 2 : 1
  EXPECT_EQ(found.section["result"]["tasks"].size(), 2u);
  EXPECT_EQ(found.section["result"]["tasks"]["needle"], json(budgets));
  EXPECT_EQ(found.section["sweep"].size(), 2u);
  EXPECT_EQ(found.section["retention"]["needle"], json({0.4, 0.3, 0.2, 0.1}));
  ASSERT_EQ(found.section["curve"].size(), 2u);
  EXPECT_EQ(found.section["curve"].at(0)["score"], 0.5);
  EXPECT_EQ(found.section["measured"]["score"]["mean"], 1);
  // For each task a call on the choice with the full cache and three forms of two budgets, and one
  // on what was held out.
  ASSERT_EQ(calls_.size(), 4u);
  EXPECT_EQ(calls_[0].first.size(), 7u);
  EXPECT_EQ(calls_[3].first.size(), 4u);
  const auto* tried = part_of_policy<DynamicKv>(calls_[0].first[2]);
  ASSERT_TRUE(tried && tried->fixed);
  EXPECT_EQ(*tried->fixed, budgets);
}

/// The columns of a table by their names; the rows' first entries are left out.
std::map<std::string, std::vector<std::string>> columns_of(const Table& table) {
  std::map<std::string, std::vector<std::string>> out;
  for (std::size_t c = 1; c < table.columns.size(); ++c)
    for (const auto& row : table.rows) out[table.columns[c].title].push_back(row[c].text);
  return out;
}

TEST_F(Methods, DynamicKvNeverRecommendsABudgetThatFailsWhereALargerOneWorks) {
  const Evidence evidence(profile(), {});
  const auto by_budget = [&](double at_32, double at_64, const DynamicRequest& request) {
    return calibrate_dynamickv(evidence, request,
                               trials_by(calls_, [=](const Policy& policy, std::size_t) {
                                 const auto* part = part_of_policy<DynamicKv>(policy);
                                 return !part ? 1.0 : part->select.budget < 64 ? at_32 : at_64;
                               }));
  };
  // The smallest that keeps the score there and at every larger one.
  Calibrated found = by_budget(0, 1, {});
  expect_valid("dynamickv", found);
  EXPECT_EQ(found.section["settings"]["budget"], 64);
  EXPECT_EQ(found.section["recommended"], 64);
  EXPECT_EQ(found.section["full"]["mean"], 1);
  EXPECT_EQ(found.section["measured"]["score"]["mean"], 1);
  EXPECT_EQ(by_budget(1, 1, {}).section["settings"]["budget"], 32);
  // A lucky dip is none.
  EXPECT_TRUE(by_budget(1, 0, {}).section.is_null());
  // What is asked for is taken, and what it costs is said.
  found = by_budget(0, 1, {.budget = 32});
  EXPECT_EQ(found.section["settings"]["budget"], 32);
  EXPECT_EQ(found.section["recommended"], 64);
  EXPECT_THAT(found.notes, Contains(AllOf(HasSubstr("asked for, 32,"), HasSubstr("is 64"))));
  EXPECT_EQ(by_budget(0.5, 1, {.tolerance = 0.5}).section["settings"]["budget"], 32);
}

TEST_F(Methods, DynamicKvTriesBudgetsPerPromptPerTaskAndOneForAll) {
  const Shape shape{.odd = {1, 2, 4, 5, 7, 8, 10, 11}};  // all passkeys
  const Evidence evidence(profile(shape), {});
  // Budgets of the sample's own task keep the answer, those of each prompt do so from 64 on.
  const auto own_budgets = trials_by(calls_, [](const Policy& policy, std::size_t sample) {
    const auto* part = part_of_policy<DynamicKv>(policy);
    if (!part) return 1.0;
    if (!part->fixed) return part->select.budget < 64 ? 0.0 : 1.0;
    const auto& budgets = *part->fixed;
    const bool falls = budgets[0] > 3 * budgets[3], rises = budgets[3] > 3 * budgets[0];
    return (sample % 3 == 0 ? falls : rises) ? 1.0 : 0.0;
  });
  const Calibrated found = calibrate_dynamickv(evidence, {.budget = 64}, own_budgets);
  expect_valid("dynamickv", found);
  const json& section = found.section;
  EXPECT_FALSE(section.contains("recommended"));
  EXPECT_TRUE(calibrate_dynamickv(evidence, {}, own_budgets).section.is_null());
  EXPECT_EQ(section["by_task"]["recommended"], 32);
  EXPECT_EQ(section["by_prompt"]["recommended"], 64);
  EXPECT_EQ(section["curve"].at(0)["score"], 0);
  EXPECT_EQ(section["by_task"]["curve"].at(0)["score"], 1);
  EXPECT_EQ(section["by_prompt"]["curve"].at(0)["score"], 0);
  EXPECT_EQ(section["measured"]["score"]["mean"], 0);
  EXPECT_EQ(section["by_task"]["measured"]["score"]["mean"], 1);
  EXPECT_EQ(section["by_prompt"]["measured"]["score"]["mean"], 1);
  const auto curve = std::find_if(found.tables.begin(), found.tables.end(), [](const auto& table) {
    return table.title.find("score against the budget") != std::string::npos;
  });
  ASSERT_NE(curve, found.tables.end());
  const auto columns = columns_of(*curve);
  EXPECT_THAT(columns.at("one for all").back(), Not(testing::EndsWith("*")));
  EXPECT_THAT(columns.at("per task").front(), testing::EndsWith("*"));
  EXPECT_THAT(columns.at("per prompt").back(), testing::EndsWith("*"));

  // Of one task there are no other fixed budgets than those for all of it.
  const Evidence one_task(evidence.profile(), {.tasks = {"passkey:digits=4"}});
  EXPECT_FALSE(
      calibrate_dynamickv(one_task, {.budget = 64}, own_budgets).section.contains("by_task"));
  // A runtime that is given the document's budgets finds none for each prompt.
  EXPECT_FALSE(calibrate_dynamickv(evidence, {.budget = 64, .fixed_alone = true}, own_budgets)
                   .section.contains("by_prompt"));
}

HeadBudgets budgets_in(const Calibrated& found) {
  return found.section["result"]["budgets"].get<HeadBudgets>();
}

TEST_F(Methods, HeadKvWithoutAModel) {
  const Evidence evidence(profile(), {});
  HeadRequest request{.rule = HeadRule::distance, .budget = 64};
  request.policy.safeguard = 0.5;
  Calibrated found = calibrate_headkv(evidence, request, nullptr);
  expect_valid("headkv", found);
  // Each head has 16 of its 48 tokens; the other 256 are shared by the distant attention, which is
  // 0.7, 0.1, 0.4 and 0.2 less the samples' mean noise of 0.0055.
  EXPECT_EQ(budgets_in(found), (HeadBudgets{{80, 80}, {25, 25}, {53, 53}, {34, 34}}));
  EXPECT_EQ(found.section["rule"], "distance");
  EXPECT_NEAR(found.section["distant"][0][0], 0.7 - 0.0055, 1e-6);
  EXPECT_THAT(found.notes, Contains(HasSubstr("nothing was tried")));
  // The heads keep 0.5 of 16 tokens, and no more of 48: no head is better than others.
  found = calibrate_headkv(evidence, {.budget = 32}, nullptr);
  EXPECT_EQ(found.section["rule"], "gain");
  EXPECT_EQ(budgets_in(found), HeadBudgets(4, {16, 16}));
  EXPECT_THAT(refusal([&] { calibrate_headkv(evidence, {.budget = 65}, nullptr); }),
              HasSubstr("at most 64"));
}

TEST_F(Methods, HeadKvTakesTheRuleThatKeepsTheScoreWithLess) {
  const Evidence evidence(profile(), {});
  // Heads of layer 0 need 20 tokens; shared evenly, that takes the larger budget.
  const auto needs_20 = [](const Policy& policy, std::size_t) {
    if (policy.parts.empty()) return 1.0;
    if (const auto* even = part_of_policy<SnapKv>(policy))
      return even->select.budget - 16 >= 20 ? 1.0 : 0.0;
    return part_of_policy<HeadKv>(policy)->fixed->front().front() >= 20 ? 1.0 : 0.0;
  };
  Calibrated found = calibrate_headkv(evidence, {}, trials_by(calls_, needs_20));
  expect_valid("headkv", found);
  EXPECT_EQ(found.section["rule"], "distance");
  EXPECT_EQ(found.section["settings"]["budget"], 32);
  EXPECT_EQ(found.section["recommended"], 32);
  EXPECT_EQ(found.section["even"]["recommended"], 64);
  EXPECT_EQ(found.section["other"]["recommended"], 64);
  EXPECT_EQ(found.section["full"]["mean"], 1);
  EXPECT_EQ(found.section["measured"]["score"]["mean"], 1);
  EXPECT_EQ(found.section["even"]["measured"]["score"]["mean"], 0);
  EXPECT_GE(budgets_in(found)[0][0], 20);
  // The choice and what is held out, each in one call for a task.
  ASSERT_EQ(calls_.size(), 4u);
  EXPECT_EQ(calls_[0].first.size(), 7u);
  EXPECT_EQ(calls_[3].first.size(), 4u);
  // A rule that is asked for is taken.
  found = calibrate_headkv(evidence, {.rule = HeadRule::gain}, trials_by(calls_, needs_20));
  EXPECT_EQ(found.section["rule"], "gain");
  EXPECT_EQ(found.section["settings"]["budget"], 64);
  EXPECT_EQ(found.section["other"]["recommended"], 32);
  // Where sharing evenly does as well with less, the output says so.
  const auto even_works = [](const Policy& policy, std::size_t) {
    return policy.parts.empty() || part_of_policy<SnapKv>(policy) ? 1.0 : 0.0;
  };
  found = calibrate_headkv(evidence, {}, trials_by(calls_, even_works));
  EXPECT_THAT(found.notes, Contains(HasSubstr("a budget of 32 keeps the score")));
}

TEST_F(Methods, LagKvByAttentionKept) {
  const Evidence evidence(profile(), {});
  const LagRequest request{.lags = {32, 64}, .ratios = {"0.5", "1/4"}, .compression = 0.4};
  const Calibrated found = calibrate_lagkv(evidence, request, nullptr);
  expect_valid("lagkv", found);
  EXPECT_EQ(found.section["sweep"].size(), 12u);
  for (const auto& entry : found.section["sweep"]) {
    EXPECT_NEAR(entry["attention"],
                (entry["lag"] == 32 ? 0.9 : 0.8) - (entry["ratio"] == "1/4" ? 0.1 : 0), 1e-6);
    const double cut = entry["variant"] == "l2" ? 0.5 : 1;  // two of four layers
    const LagShape shape{16, entry["lag"], entry["keep"]};
    EXPECT_NEAR(entry["compression"], cut * lag_compression(300, shape), 1e-12);
  }
  // 300 tokens: 7 partitions of 32 are cut to 16 at 1/2 (37 %), to 8 at 1/4 (56 %).
  EXPECT_EQ(found.section["settings"]["lag"], 32);
  EXPECT_EQ(found.section["settings"]["ratio"], "1/4");
  EXPECT_THAT(found.tables.front().title, HasSubstr("no model was run"));
}

TEST_F(Methods, LagKvTriesTheSweep) {
  const Evidence evidence(profile(), {});
  const LagRequest request{.lags = {32, 64}, .ratios = {"1/2", "1/4"}, .compression = 0.3};
  const auto half_works = trials_by(calls_, [](const Policy& policy, std::size_t) {
    const auto* part = part_of_policy<LagKv>(policy);
    return !part || (part->variant == LagVariant::lag && part->ratio == "1/2") ? 1.0 : 0.25;
  });
  const Calibrated found = calibrate_lagkv(evidence, request, half_works);
  expect_valid("lagkv", found);
  EXPECT_EQ(found.section["settings"]["ratio"], "1/2");
  EXPECT_EQ(found.section["measured"]["score"]["mean"], 1);
  EXPECT_EQ(found.section["local"]["measured"]["score"]["mean"], 0.25);
  ASSERT_EQ(calls_.size(), 2u);
  EXPECT_EQ(calls_[0].first.size(), 13u);
  const auto& wrong = found.section["sweep"].back();
  EXPECT_DOUBLE_EQ(wrong["digits_prefix"], 0.5);
  EXPECT_DOUBLE_EQ(wrong["digits_in_place"], 0.75);
  for (const auto& number : found.section["front"]["compression"])
    EXPECT_EQ(found.section["sweep"].at(number.get<std::size_t>())["variant"], "lag");
}

TEST_F(Methods, LagKvCompressesAsMuchAsKeepsTheScore) {
  const Evidence evidence(profile(), {});
  LagRequest request{.lags = {32, 64}, .ratios = {"1/2", "1/4"}};
  const auto keeps = [&](std::int64_t lag, const char* ratio) {
    return trials_by(calls_, [=](const Policy& policy, std::size_t) {
      const auto* part = part_of_policy<LagKv>(policy);
      return !part || part->lag == lag || part->ratio == ratio ? 1.0 : 0.75;
    });
  };
  // 300 tokens: lag 32 saves 37 % at 1/2 and 56 % at 1/4, lag 64 saves 32 % at 1/2.
  auto found = calibrate_lagkv(evidence, request, keeps(0, "1/2"));
  expect_valid("lagkv", found);
  EXPECT_EQ(found.section["settings"]["lag"], 32);
  EXPECT_EQ(found.section["settings"]["ratio"], "1/2");
  found = calibrate_lagkv(evidence, request, keeps(64, ""));
  EXPECT_EQ(found.section["settings"]["lag"], 64);
  EXPECT_EQ(found.section["settings"]["ratio"], "1/4");
  EXPECT_TRUE(calibrate_lagkv(evidence, request, keeps(0, "1/4")).section.is_null());
  request.tolerance = 0.25;
  found = calibrate_lagkv(evidence, request, keeps(0, ""));
  EXPECT_EQ(found.section["settings"]["lag"], 32);
  EXPECT_EQ(found.section["settings"]["ratio"], "1/4");
}

TEST_F(Methods, WhatSavesNothingOrLosesIsNoPolicy) {
  const Evidence evidence(profile(), {});
  SimLayerRequest lazy = lazy_request();
  PodRequest pod;
  pod.policy.proximal = {16, 112};
  DynamicRequest dynamic;
  HeadRequest head;
  LagRequest lag{.lags = {32}};
  PrecisionRequest precision;
  const std::map<std::string, std::function<Calibrated(const RunTrials&)>> methods = {
      {"SimLayerKV: found no threshold",
       [&](const RunTrials& run) { return calibrate_simlayerkv(evidence, lazy, run); }},
      {"PoD: found no delta",
       [&](const RunTrials& run) { return calibrate_pod(evidence, pod, run); }},
      {"DynamicKV: found no budget",
       [&](const RunTrials& run) { return calibrate_dynamickv(evidence, dynamic, run); }},
      {"HeadKV: found no budget",
       [&](const RunTrials& run) { return calibrate_headkv(evidence, head, run); }},
      {"LagKV: found no setting",
       [&](const RunTrials& run) { return calibrate_lagkv(evidence, lag, run); }},
      {"Precision by layer: found no setting",
       [&](const RunTrials& run) { return calibrate_precision(evidence, precision, run); }}};
  const auto trials = [&](double score) {
    return trials_by(calls_, [=](const Policy& policy, std::size_t) {
      return policy.parts.empty() ? 1 : score;
    });
  };
  const auto says = [](const std::string& words) {
    return Contains(testing::Field(&Table::title, words + " that saves and keeps the score"));
  };
  for (const auto& [words, calibrate] : methods) {
    const Calibrated loses = calibrate(trials(0.99));
    EXPECT_TRUE(loses.section.is_null()) << words;
    EXPECT_THAT(loses.tables, says(words));
    const Calibrated found = calibrate(trials(1));
    EXPECT_FALSE(found.section.is_null()) << words;
    EXPECT_THAT(found.tables, Not(says(words)));
    if (words[0] == 'L') continue;  // whose compression is known without a trial
    const Calibrated saves_nothing = calibrate(keeping(0.999, trials(1)));
    EXPECT_TRUE(saves_nothing.section.is_null()) << words;
    EXPECT_THAT(saves_nothing.tables, says(words));
  }
  // What is asked for by name is taken, whatever it costs.
  lazy.threshold = 0.7;
  pod.delta = 0.5;
  dynamic.budget = head.budget = 32;
  lag.compression = precision.size = 0.5;
  for (const auto& [words, calibrate] : methods)
    EXPECT_FALSE(calibrate(trials(0)).section.is_null()) << words;
}

TEST_F(Methods, TrialsThatAnswerTooLittleAreOurMistake) {
  const Evidence evidence(profile(), {});
  const RunTrials none = [](std::span<const Policy>, std::span<const std::size_t>, Measure) {
    return std::vector<std::vector<Trial>>();
  };
  EXPECT_THROW(calibrate_simlayerkv(evidence, lazy_request(), none), Error);
}

/// Costs that add up: those of layer 1's keys are great, the others' small.
double cost_of_formats(const Policy& policy) {
  const auto* part = part_of_policy<Precision>(policy);
  if (!part) return 0;
  double cost = 0;
  for (std::int64_t l = 0; l < kLayers; ++l) {
    const KvFormats formats = formats_of(policy, kLayers)[static_cast<std::size_t>(l)];
    const auto cost_in = [](KvFormat format) {
      return format == KvFormat::f16 ? 0 : format == KvFormat::q8_0 ? 0.001 : 0.01;
    };
    cost += (l == 1 ? 100 : 1) * cost_in(formats.keys) + cost_in(formats.values) / 2;
  }
  return cost;
}

RunTrials trials_of_formats(Calls& calls) {
  const RunTrials scored = trials_by(calls, [](const Policy& policy, std::size_t) {
    return cost_of_formats(policy) > 0.5 ? 0.0 : 1.0;
  });
  return [scored](std::span<const Policy> policies, std::span<const std::size_t> samples,
                  Measure measure) {
    auto out = scored(policies, samples, measure);
    for (std::size_t p = 0; p < policies.size(); ++p)
      for (Trial& trial : out[p]) {
        if (measure != Measure::score) trial.kl = cost_of_formats(policies[p]);
        if (measure == Measure::divergence) trial.score = std::numeric_limits<double>::quiet_NaN();
      }
    return out;
  };
}

PrecisionRequest two_formats() {
  PrecisionRequest request;
  request.taken.formats = {KvFormat::q8_0, KvFormat::int4};
  return request;
}

TEST_F(Methods, PrecisionSparesTheLayerThatCosts) {
  const Evidence evidence(profile(), {});
  const Calibrated found = calibrate_precision(evidence, two_formats(), trials_of_formats(calls_));
  expect_valid("precision", found);
  ASSERT_EQ(calls_.size(), 3u);  // sensitivity, choice, measurement
  EXPECT_EQ(calls_[0].first.size(), static_cast<std::size_t>(kLayers * 2 * 2));
  EXPECT_EQ(calls_[0].second.size(), 4u);
  for (const auto sample : calls_[2].second) {
    EXPECT_THAT(calls_[0].second, Not(Contains(sample)));
    EXPECT_THAT(calls_[1].second, Not(Contains(sample)));
  }
  const auto keys = found.section["result"]["keys"].get<std::vector<std::string>>();
  for (std::int64_t l = 0; l < kLayers; ++l)
    if (l != 1) {
      EXPECT_EQ(keys[static_cast<std::size_t>(l)], "int4") << l;
    }
  EXPECT_NE(keys[1], "int4");  // that alone would cost 1
  double size = 0;
  for (const auto& point : found.section["curve"]) {
    EXPECT_GT(point["size"].get<double>(), size);
    size = point["size"];
    EXPECT_NEAR(point["kl"].get<double>(), point["expected_kl"].get<double>(), 1e-9);
  }
  EXPECT_EQ(found.section["uniform"].size(), 2u);
  EXPECT_NEAR(found.section["sensitivity"]["items"][2]["kl"][1].get<double>(), 1, 1e-9);
  EXPECT_TRUE(found.section["sensitivity"]["items"][2]["keys"].get<bool>());
}

TEST_F(Methods, PrecisionWithinASize) {
  const Evidence evidence(profile(), {});
  PrecisionRequest request = two_formats();
  request.size = 0.5;
  const Calibrated found = calibrate_precision(evidence, request, trials_of_formats(calls_));
  EXPECT_LE(found.section["size"].get<double>(), 0.5);
  EXPECT_EQ(found.section["curve"].size(), 1u);
  request.size = 0.2;
  EXPECT_THAT(refusal([&] { calibrate_precision(evidence, request, trials_of_formats(calls_)); }),
              HasSubstr("takes 31.2 % of its bytes at least: give a larger --size"));
  EXPECT_THAT(refusal([&] { calibrate_precision(evidence, request, nullptr); }),
              HasSubstr("is measured on the model: give --model"));
}

/// Runtimes that have one format for all layers, or for keys and values.
TEST_F(Methods, PrecisionAsRuntimesTakeIt) {
  const Evidence evidence(profile(), {});
  PrecisionRequest request = two_formats();
  request.taken.by_layer = false;
  const Calibrated apart = calibrate_precision(evidence, request, trials_of_formats(calls_));
  EXPECT_EQ(calls_[0].first.size(), 4u);  // keys and values in two formats
  const auto all_keys = apart.section["result"]["keys"].get<std::set<std::string>>();
  EXPECT_EQ(all_keys.size(), 1u);
  request.taken = {{KvFormat::fp8}, true, false};
  calls_.clear();
  const Calibrated by_layer = calibrate_precision(evidence, request, trials_of_formats(calls_));
  EXPECT_EQ(calls_[0].first.size(), static_cast<std::size_t>(kLayers));
  EXPECT_EQ(by_layer.section["result"]["keys"], by_layer.section["result"]["values"]);
}

/// In vLLM a process has one format, and in some it spares the first and last layers by itself:
/// what these cost there is never tried.
TEST_F(Methods, PrecisionInOneFormatOfVllm) {
  const Evidence evidence(profile({.head_dim = 16}), {});
  PrecisionRequest request;
  request.taken = runtime_named("vllm").formats_taken;
  request.taken.formats = {KvFormat::int8_per_token_head, KvFormat::turboquant_4bit_nc};
  request.taken.ends = 1;
  const Calibrated found = calibrate_precision(evidence, request, trials_of_formats(calls_));
  EXPECT_EQ(calls_[0].first.size(), static_cast<std::size_t>(2 * kLayers - 2));
  for (const auto& point : found.section["curve"]) {
    std::set<std::string> used = point["keys"];
    EXPECT_EQ(point["keys"], point["values"]);
    if (used.contains("turboquant_4bit_nc")) {
      EXPECT_EQ(point["keys"][0], "16");
      EXPECT_EQ(point["keys"][kLayers - 1], "16");
    }
    used.erase("16");
    EXPECT_LE(used.size(), 1u);
  }
  EXPECT_EQ(found.section["sensitivity"]["items"][0]["kl"][1], 0);
  EXPECT_GT(found.section["sensitivity"]["items"][0]["kl"][0], 0);
  EXPECT_EQ(found.section["uniform"].size(), 2u);
}

/// In ik_llama.cpp the first layers have one type, the last ones one, and those between one.
TEST_F(Methods, PrecisionByEnds) {
  const Evidence evidence(profile(), {});
  PrecisionRequest request;
  request.taken = runtime_named("ik_llama.cpp").formats_taken;
  request.taken.formats = {KvFormat::q8_0, KvFormat::q4_0};
  const Calibrated found = calibrate_precision(evidence, request, trials_of_formats(calls_));
  for (const auto& point : found.section["curve"])
    for (const char* side : {"keys", "values"}) {
      std::int64_t changes = 0;
      for (std::size_t l = 1; l < point[side].size(); ++l)
        changes += point[side][l] != point[side][l - 1];
      EXPECT_LE(changes, 2) << side;
    }
}

}  // namespace
}  // namespace kvatlas::calibrate
