// SPDX-License-Identifier: Apache-2.0
// The search of `kvatlas calibrate auto`, with trials answered from a rule instead of a model.
#include "calibrate/search/search.hpp"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/methods/trial_journal.hpp"
#include "calibrate/policy/method.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_support::error_of;
using namespace testing_profile;

class SearchOf : public testing::Test {
 protected:
  SearchOf() {
    write_profile(path_, {.samples = 20});
    reader_.emplace(path_);
    evidence_.emplace(*reader_, Request{});
    split_ = evidence_->split(evidence_->positions());
    load_.shape = evidence_->shape();
    load_.prompt = kTokens;
    full_bytes_ = load_.shape.bytes_per_token() * kTokens;
  }

  Candidates candidates(const SearchSpace& space = {}) const {
    return list_candidates(*evidence_, split_.choice, space, load_);
  }
  /// Scores fall with the share that a policy's bytes are short of `needed`.
  RunTrials trials(double needed) {
    return [this, needed](std::span<const Policy> policies, std::span<const std::size_t> samples,
                          Measure) {
      std::vector<std::vector<Trial>> out;
      for (const auto& policy : policies) {
        CacheLoad load = load_;
        const double kept = cache_bytes(policy, load).total() / full_bytes_;
        out.emplace_back();
        for (const auto sample : samples) {
          ++runs_;
          sampled_.insert(sample);
          Trial trial;
          trial.kl = 1 - kept;
          trial.kept_share = kept;
          trial.score = policy.parts.empty() || kept >= needed ? 1 : 0.5;
          out.back().push_back(trial);
        }
      }
      return out;
    };
  }
  SearchResult run(const Candidates& list, const SearchRequest& request, const RunTrials& trials) {
    return search(*evidence_, split_, list, request, trials,
                  [this](const std::string& line) { said_.push_back(line); });
  }

  testing_support::TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "p.h5").string();
  std::optional<profile::Reader> reader_;
  std::optional<Evidence> evidence_;
  Split split_;
  CacheLoad load_;
  double full_bytes_ = 0;
  std::size_t runs_ = 0;
  std::set<std::size_t> sampled_;
  std::vector<std::string> said_;
};

TEST_F(SearchOf, CandidatesAreWhatTheProfileKnows) {
  const Candidates list = candidates();
  std::map<std::string, std::size_t> families;
  for (const auto& one : list.all) {
    ++families[one.family];
    EXPECT_NO_THROW(check_composition(one.policy)) << one.policy.name;
    EXPECT_GT(one.bytes, 0) << one.policy.name;
    EXPECT_LT(one.kept_share, 1) << one.policy.name;
    EXPECT_GE(one.lost, 0) << one.policy.name;
    EXPECT_LE(one.lost, 1) << one.policy.name;
  }
  // Two budgets and four LagKV settings, each also in 4 bits.
  EXPECT_EQ(families.at("dynamickv"), 4u);
  EXPECT_EQ(families.at("lagkv"), 8u);
  EXPECT_EQ(families.at("kv4"), 1u);
  for (const char* family : {"simlayerkv", "pod", "simlayerkv+lagkv", "simlayerkv+dynamickv"})
    EXPECT_GT(families[family], 0u) << family;
  // The selections of other papers at the same budgets, by what SnapKV loses there.
  for (const PartName* selection : selections())
    EXPECT_EQ(families[selection->name], 4u) << selection->name;
  const auto critical = std::find_if(list.all.begin(), list.all.end(), [](const Candidate& one) {
    return one.family == "criticalkv";
  });
  ASSERT_NE(critical, list.all.end());
  EXPECT_NEAR(critical->lost, 0.5, 1e-6);
  EXPECT_EQ(document_of(*critical, *evidence_, split_.choice).sections.at("baseline").at("name"),
            "criticalkv");
  // The profile says that LagKV keeps 0.9 at lag 32 and ratio 1/2.
  const auto lag = std::find_if(list.all.begin(), list.all.end(), [](const Candidate& one) {
    return one.policy.name == "lagkv:lag=32,ratio=1/2";
  });
  ASSERT_NE(lag, list.all.end());
  EXPECT_NEAR(lag->lost, 0.1, 1e-6);
  // Its fixed budgets are of the samples of the choice alone, and are whole.
  const auto dynamic = std::find_if(list.all.begin(), list.all.end(),
                                    [](const Candidate& one) { return one.family == "dynamickv"; });
  ASSERT_TRUE(std::get<DynamicKv>(dynamic->policy.parts[0]).fixed);
}

TEST_F(SearchOf, AProfileThatContradictsItselfIsRefused) {
  const auto path = folder_.path() / "wide.h5";
  write_profile(path, {.samples = 20, .kept_heads = 2 * kKvHeads});
  const profile::Reader wide(path);
  const Evidence evidence(wide, Request{});
  EXPECT_THAT(error_of([&] { list_candidates(evidence, split_.choice, {}, load_); }),
              HasSubstr("kept/mass has 16 values a selection, expected 4 layers x 2 KV heads"));
}

TEST_F(SearchOf, OnlyWhatIsAskedFor) {
  const Candidates list = candidates({.methods = {"lagkv"}, .runtime = {}});
  EXPECT_THAT(list.all, SizeIs(4));
  // A runtime that takes fixed layers alone, and no 4 bits.
  const Candidates sglang = candidates({.runtime = "sglang"});
  EXPECT_THAT(sglang.all, Not(IsEmpty()));
  EXPECT_THAT(sglang.refused, Not(IsEmpty()));
  EXPECT_THAT(sglang.refused_families, Contains("h2o"));
  const auto lines = refused_lines(sglang, "sglang");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr(str(" candidates of ", sglang.refused_families.size(),
                                      " families are left out: SGLang takes none of them")));
  // vLLM takes selections too.
  const Candidates vllm = candidates({.runtime = "vllm"});
  EXPECT_THAT(vllm.refused_families, Not(Contains("h2o")));
  EXPECT_GT(vllm.all.size(), sglang.all.size());
  for (const auto& one : sglang.all) {
    EXPECT_EQ(one.family, "simlayerkv") << one.policy.name;
    EXPECT_TRUE(std::get<SimLayerKv>(one.policy.parts.at(0)).fixed);
    EXPECT_EQ(one.policy.kv_bits, 16);
  }
}

TEST_F(SearchOf, NumberFormatsAreToldApart) {
  SearchSpace space{.methods = {"precision"}, .runtime = {}};
  for (const KvFormat format : {KvFormat::q8_0, KvFormat::int4}) {
    Precision part;
    part.fixed.emplace(kLayers, KvFormats{format, format});
    space.formats.push_back({part, 0, 0});
  }
  const Candidates list = candidates(space);
  ASSERT_THAT(list.all, SizeIs(2));
  EXPECT_EQ(list.all[0].policy.name, "precision (by layer, 53.1 % of the cache)");
  EXPECT_NE(list.all[0].policy.name, list.all[1].policy.name);
}

TEST_F(SearchOf, FindsThePolicyThatFitsAndKeepsTheScore) {
  const Candidates list = candidates();
  SearchRequest request;
  request.most_bytes = 0.8 * full_bytes_;
  const SearchResult result = run(list, request, trials(0.3));
  EXPECT_TRUE(result.met);
  const Tried& chosen = result.tried[result.chosen];
  const Candidate& policy = list.all[chosen.candidate];
  EXPECT_LE(policy.bytes, request.most_bytes);
  ASSERT_TRUE(chosen.measured);
  EXPECT_EQ(chosen.measured->loss.mean, 0);
  EXPECT_EQ(chosen.measured->held_out, true);
  EXPECT_EQ(chosen.measured->samples, std::ssize(split_.held_out));
  // Its cost: fewer trials than every policy on every sample.
  std::size_t counted = result.final_trials;
  for (const auto& stage : result.stages) counted += stage.trials;
  EXPECT_LT(counted, result.fitting * split_.choice.size() / 2);
  EXPECT_EQ(result.stages.back().samples, split_.choice.size());
  for (std::size_t i = 1; i < result.stages.size(); ++i)
    EXPECT_LT(result.stages[i].candidates, result.stages[i - 1].candidates);
  // By KL, which grows with what is lost, the proxy's order is about right.
  EXPECT_GT(result.proxy_kl, 0.2);
  // The document of the choice can be read and holds it.
  Document document = document_of(policy, *evidence_, split_.choice);
  document.pareto = front_json(result, list, *evidence_, split_.choice);
  document.search = search_json(result, request);
  const Document read = parse_document(document_text(document));
  ASSERT_THAT(policies_of(read), SizeIs(1));
  EXPECT_EQ(policy_text(policies_of(read)[0]), policy.policy.name);
  EXPECT_EQ(read.search.at("trials"), counted);
  std::size_t marked = 0;
  for (const auto& entry : read.pareto) marked += entry.at("chosen").get<bool>() ? 1 : 0;
  EXPECT_EQ(marked, 1u);
}

/// Searches whose policies lose the answer by chance, each with its own probability.
struct LuckySearches {
  int certified = 0, met = 0, best_eliminated = 0;
};
template <class LossOf>
LuckySearches lucky_searches(const Evidence& evidence, const Candidates& list, double limit,
                             int runs, LossOf true_loss) {
  LuckySearches out;
  const Split split = evidence.split(evidence.positions());
  for (int seed = 0; seed < runs; ++seed) {
    const RunTrials by_chance = [&](std::span<const Policy> policies,
                                    std::span<const std::size_t> samples, Measure) {
      std::vector<std::vector<Trial>> rows(policies.size());
      for (std::size_t i = 0; i < policies.size(); ++i)
        for (const auto sample : samples) {
          Random random(static_cast<std::uint64_t>(seed), str(policies[i].name, "/", sample));
          const bool loses = !policies[i].parts.empty() && random.share() < true_loss(policies[i]);
          rows[i].push_back({.score = loses ? 0.0 : 1.0, .kl = random.share()});
        }
      return rows;
    };
    SearchRequest request;
    request.most_bytes = 1e18;
    request.max_loss = limit;
    const SearchResult found = search(evidence, split, list, request, by_chance, [](auto&) {});
    out.certified += found.certified;
    out.met += found.met;
    for (const auto& stage : found.stages) out.best_eliminated += stage.too_lossy > 0;
  }
  return out;
}

TEST_F(SearchOf, ItsClaimsHoldJointly) {
  const auto path = folder_.path() / "many.h5";
  write_profile(path, {.samples = 100});
  const profile::Reader reader(path);
  const Evidence evidence(reader, Request{});
  const Candidates list = list_candidates(
      evidence, evidence.positions(), {.methods = {"lagkv", "dynamickv"}, .runtime = {}}, load_);
  constexpr int kRuns = 100;
  // Every policy loses just more than the limit: at most 5 % of the searches certify one.
  const auto all_lossy =
      lucky_searches(evidence, list, 20, kRuns, [](const Policy&) { return 0.21; });
  EXPECT_GT(all_lossy.met, kRuns / 3);  // by luck alone
  EXPECT_LE(all_lossy.certified, kRuns * 5 / 100);
  // Every policy keeps to the limit: at most 5 % of the searches eliminate one of them.
  const auto none_lossy =
      lucky_searches(evidence, list, 20, kRuns, [](const Policy&) { return 0.2; });
  EXPECT_LE(none_lossy.best_eliminated, kRuns * 5 / 100);
  // Policies that lose nothing are certified.
  const auto lossless = lucky_searches(evidence, list, 20, 3, [](const Policy&) { return 0.0; });
  EXPECT_EQ(lossless.certified, 3);
}

TEST_F(SearchOf, SaysWhatIsMissingForACertificate) {
  const Candidates list = candidates();
  SearchRequest request;
  request.most_bytes = 0.8 * full_bytes_;
  const SearchResult few = run(list, request, trials(0.3));
  EXPECT_TRUE(few.met);
  EXPECT_FALSE(few.certified);
  EXPECT_THAT(certificate_text(few, request),
              testing::AllOf(HasSubstr("not certified for a loss of at most 1.0 points: 8 unseen"),
                             HasSubstr("about "), HasSubstr("more texts")));
  const auto& certificate = few.tried[few.chosen].certificate;
  ASSERT_TRUE(certificate && certificate->more);
  const auto needed = groups_to_pass(1, jointly_sure(few.finalists.size()));
  EXPECT_EQ(*certificate->more + 8, *needed);  // no text has lost anything
  EXPECT_EQ(search_json(few, request)["certificate"]["more_texts"], *certificate->more);
  request.max_loss = 80;
  const SearchResult sure = run(list, request, trials(0.3));
  EXPECT_TRUE(sure.certified);
  EXPECT_THAT(certificate_text(sure, request), HasSubstr("certified for a loss of at most 80.0"));
}

TEST_F(SearchOf, HeldOutSamplesAreSeenByFinalistsAlone) {
  SearchRequest request;
  request.most_bytes = 0.8 * full_bytes_;
  std::set<std::size_t> before;
  const RunTrials inner = trials(0.3);
  run(candidates(), request, [&](auto policies, auto samples, Measure measure) {
    for (const auto sample : samples)
      if (policies.size() > request.finalists + 1) before.insert(sample);
    return inner(policies, samples, measure);
  });
  for (const auto sample : split_.held_out) EXPECT_FALSE(before.contains(sample)) << sample;
  for (const auto sample : split_.held_out) EXPECT_TRUE(sampled_.contains(sample)) << sample;
}

TEST_F(SearchOf, ExhaustiveTriesEverything) {
  const Candidates list = candidates({.methods = {"lagkv", "dynamickv"}, .runtime = {}});
  SearchRequest request;
  request.most_bytes = full_bytes_;
  request.exhaustive = true;
  const SearchResult result = run(list, request, trials(0.3));
  ASSERT_THAT(result.stages, SizeIs(1));
  EXPECT_EQ(result.stages[0].trials, list.all.size() * split_.choice.size());
  EXPECT_THAT(result.tried, SizeIs(list.all.size()));
}

TEST_F(SearchOf, SaysHowCloseOneCanGet) {
  const Candidates list = candidates({.methods = {"lagkv", "dynamickv"}, .runtime = {}});
  SearchRequest request;
  request.most_bytes = 0.5 * full_bytes_;
  const SearchResult result = run(list, request, trials(0.99));
  EXPECT_FALSE(result.met);
  const auto lines = advice(result, list, request);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("which loses 50.0"));
  EXPECT_THAT(lines[1], HasSubstr("--max-loss 50.0"));
  request.most_bytes = 10;
  EXPECT_THAT(error_of([&] { run(list, request, trials(0.3)); }), HasSubstr("the smallest takes"));
}

TEST_F(SearchOf, ALossThatUnseenSamplesDoNotShowIsSaid) {
  const RunTrials unlucky = [this](std::span<const Policy> policies,
                                   std::span<const std::size_t> samples, Measure) {
    std::vector<std::vector<Trial>> out(policies.size());
    for (std::size_t i = 0; i < policies.size(); ++i)
      for (const auto sample : samples) {
        const bool seen = std::count(split_.choice.begin(), split_.choice.end(), sample) > 0;
        const bool loses = seen && !policies[i].parts.empty();
        out[i].push_back({.score = loses ? 0.5 : 1.0, .kl = 0});
      }
    return out;
  };
  const Candidates list = candidates({.methods = {"lagkv", "dynamickv"}, .runtime = {}});
  SearchRequest request;
  request.most_bytes = full_bytes_;
  const SearchResult result = run(list, request, unlucky);
  EXPECT_FALSE(result.met);
  EXPECT_EQ(result.tried[result.chosen].measured.value().loss.mean, 0);
  const auto lines = advice(result, list, request);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("which loses 50.0"));
  EXPECT_THAT(lines[1], HasSubstr("--max-loss 50.0"));
}

TEST_F(SearchOf, ResumesWithoutRunningATrialTwice) {
  const auto journal = folder_.path() / "policy.trials.jsonl";
  const json settings = {{"model", "m"}, {"new", 0}};
  SearchRequest request;
  request.most_bytes = 0.8 * full_bytes_;
  const Candidates list = candidates();
  const auto through = [&](TrialJournal::Open how, std::size_t stop_after) {
    TrialJournal trials_kept(journal, settings, how);
    const RunTrials inner = trials(0.3);
    const RunTrials stopping = [&](auto policies, auto samples, Measure measure) {
      if (runs_ >= stop_after) fail(ErrorCode::cancelled, "interrupted");
      return inner(policies, samples, measure);
    };
    return search_json(run(list, request, trials_kept.around(stopping)), request).dump();
  };
  const std::string whole = through(TrialJournal::Open::fresh, 1u << 30);
  const std::size_t all = runs_;
  std::filesystem::remove(journal);
  runs_ = 0;
  EXPECT_THAT(error_of([&] { through(TrialJournal::Open::fresh, all / 2); }),
              HasSubstr("interrupted"));
  const std::size_t first = runs_;
  EXPECT_LT(first, all);
  // As after a crash while a line was written.
  std::ofstream(journal, std::ios::app) << R"({"policy": "half a li)";
  EXPECT_THAT(error_of([&] { through(TrialJournal::Open::fresh, all); }), HasSubstr("--resume"));
  EXPECT_EQ(through(TrialJournal::Open::resume, 1u << 30), whole);
  EXPECT_EQ(runs_, all);
}

TEST_F(SearchOf, AJournalWithoutTrialsIsNotLeft) {
  const auto path = folder_.path() / "j.jsonl";
  { const TrialJournal failed(path, {{"model", "m"}}, TrialJournal::Open::fresh); }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SearchOf, JournalsOfOtherThingsAreRefused) {
  const auto path = folder_.path() / "j.jsonl";
  const auto open = [&](const json& settings) {
    return error_of([&] { TrialJournal(path, settings, TrialJournal::Open::resume); });
  };
  {
    TrialJournal first(path, {{"model", "m"}}, TrialJournal::Open::fresh);
    const Policy full[] = {{.name = "full", .parts = {}}};
    const std::size_t sample[] = {0};
    first.around(trials(0.3))(full, sample, Measure::both);
    EXPECT_THAT(open({{"model", "m"}}), HasSubstr("another process"));
  }
  EXPECT_THAT(open({{"model", "other"}}),
              HasSubstr("run with model \"m\", and now it is \"other\""));
  std::ofstream(path, std::ios::app) << "{\"policy\": 3}\n";
  EXPECT_THAT(open({{"model", "m"}}), HasSubstr("line 3: no trial"));
  std::ofstream(path) << "[]\n";
  EXPECT_THAT(open({{"model", "m"}}), HasSubstr("no journal"));
  std::ofstream(path) << "not JSON\n";
  EXPECT_THAT(open({{"model", "m"}}), HasSubstr("line 1"));
}

}  // namespace
}  // namespace kvatlas::calibrate
