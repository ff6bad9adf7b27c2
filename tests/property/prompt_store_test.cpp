// SPDX-License-Identifier: Apache-2.0
// Prompts that are kept for later rounds change nothing: not a bit of any outcome.
#include "calibrate/simulate/prompt_store.hpp"

#include <filesystem>

#include <gmock/gmock.h>

#include "analyzer/config/cache_card.hpp"
#include "base/error.hpp"
#include "tests/property/simulation_fixture.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::HasSubstr;

/// Rounds of policies, as methods of calibration ask for them.
const std::vector<std::vector<std::string>> kRounds = {
    {"streaming:initial=2,recent=20", "simlayerkv:threshold=0.4,initial=2,recent=20"},
    {"pod:delta=0.3,initial=4,recent=20", "pod:delta=0.3,initial=4,recent=20,prefill=shared",
     "simlayerkv:threshold=0.3,initial=2,recent=24,identify=prefill,w_last=5"},
    {"dynamickv:window=8,budget=40", "snapkv:window=70,budget=90",
     "simlayerkv:threshold=0.5,initial=3,recent=12"},
    {"adakv:window=8,budget=30", "chunkkv:window=8,budget=30,chunk=7",
     "criticalkv:window=8,budget=30", "tova:budget=30", "keydiff:budget=30"},
    {"decoding:window=8,budget=30,every=8", "decoding:budget=30,every=4,by=tova",
     "decoding:budget=30,every=4,by=h2o", "decoding:budget=30,every=4,by=triattention"},
    {"expected-attention:budget=30", "expected-attention:budget=30,sink=9,future=3"},
    {"kvzip:budget=30", "kvzip:budget=30,sink=2,chunk=33",
     "pod:delta=0.3,initial=4,recent=20,prefill=shared+kvzip:budget=30"},
    {"lagkv:sink=4,lag=16,ratio=1/4", "lagkv:sink=4,lag=16,ratio=1/4+kv4", "h2o:budget=40"},
    {"simlayerkv:threshold=0.4,initial=2,recent=20", "h2o:budget=30", "snapkv:window=8,budget=40"}};

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.cache_lengths, b.cache_lengths);
  EXPECT_EQ(a.kept, b.kept);
  EXPECT_EQ(a.cut.positions, b.cut.positions);
  EXPECT_EQ(a.kept_bytes, b.kept_bytes);
  EXPECT_EQ(a.read_bytes, b.read_bytes);
  EXPECT_EQ(a.held_bytes, b.held_bytes);
  EXPECT_EQ(a.kl, b.kl);
  EXPECT_EQ(a.agreement, b.agreement);
  EXPECT_EQ(a.lazy, b.lazy);
  EXPECT_EQ(a.mass, b.mass);
  EXPECT_EQ(a.budgets, b.budgets);
  EXPECT_EQ(a.lowest, b.lowest);
}

class PromptStoreOf : public OnCheckpoint {
 protected:
  PromptStore::Room on_disk() const { return {0, std::int64_t{1} << 30, folder_.path() / "p.h5"}; }

  /// All rounds on two prompts, in turn.
  std::vector<Simulated> rounds(PromptStore* store, std::int64_t context = 0) {
    SimulateOptions options{.max_new = 6, .context_tokens = context, .positions = true};
    options.store = store;
    std::vector<Simulated> out;
    for (const auto& round : kRounds)
      for (const std::uint64_t seed : {1, 2})
        out.push_back(run(random_ids(100, seed), fitting(round), options));
    return out;
  }

  /// Those of the policies that the model's cache can follow.
  std::vector<Policy> fitting(const std::vector<std::string>& texts) const {
    ModelInfo model;
    model.cached_values = model::cached_values(config);
    model.latent_rank = config.latent.rank;
    auto out = policies(texts);
    std::erase_if(out, [&](const Policy& policy) {
      try {
        check_cache(policy, model);
        return false;
      } catch (const Error&) {
        return true;
      }
    });
    return out;
  }

  void expect_same_rounds(const std::vector<Simulated>& a, const std::vector<Simulated>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(a[i].full, b[i].full);
      for (std::size_t p = 0; p < a[i].policies.size(); ++p)
        expect_same(a[i].policies[p], b[i].policies[p]);
    }
  }
  testing_support::TemporaryFolder folder_;
};

TEST_P(PromptStoreOf, ChangesNotABit) {
  for (const std::int64_t context : {0, 90}) {
    SCOPED_TRACE(context);
    const auto alone = rounds(nullptr, context);
    PromptStore in_memory({std::int64_t{1} << 30, 0, {}});
    expect_same_rounds(rounds(&in_memory, context), alone);
    PromptStore disk(on_disk());
    expect_same_rounds(rounds(&disk, context), alone);
    EXPECT_EQ(disk.trouble(), "");
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  }
}

TEST_P(PromptStoreOf, FindsWhatWasReadUnlessMoreIsNeeded) {
  const auto ids = random_ids(100, 3);
  PromptStore::Key key = ids;
  key.push_back(-1);  // the first step's token is the model's own
  PromptStore store(on_disk());
  SimulateOptions options{.max_new = 2};
  options.store = &store;
  const auto needs = [](const char* policy) {
    const Policy one[] = {parse_policy(policy)};
    return needs_of(one);
  };
  EXPECT_EQ(store.find(engine, key, {}), nullptr);
  run(ids, {}, options);
  EXPECT_NE(store.find(engine, key, {}), nullptr);
  EXPECT_NE(store.find(engine, key, needs("snapkv:window=16")), nullptr);
  EXPECT_EQ(store.find(engine, key, needs("snapkv:window=65")), nullptr);
  EXPECT_EQ(store.find(engine, key, needs("h2o:budget=40")), nullptr);
  EXPECT_EQ(store.find(engine, key, needs("expected-attention")), nullptr);
  EXPECT_EQ(store.find(engine, key, needs("criticalkv")), nullptr);
  EXPECT_EQ(store.find(engine, key, needs("kvzip")), nullptr);
  run(ids, fitting({"snapkv:window=65,budget=80"}), options);
  key.front() += 1;
  EXPECT_EQ(store.find(engine, key, {}), nullptr);
}

TEST_P(PromptStoreOf, KeepsNoMoreThanThereIsRoomFor) {
  PromptStore small({1000, 1000, folder_.path() / "p.h5"});
  PromptStore absent({0, std::int64_t{1} << 30, folder_.path() / "absent" / "p.h5"});
  const auto alone = rounds(nullptr);
  expect_same_rounds(rounds(&small), alone);
  EXPECT_EQ(small.trouble(), "");
  expect_same_rounds(rounds(&absent), alone);
  EXPECT_THAT(absent.trouble(), HasSubstr("No such file or directory"));
  const PromptStore::Key key = [] {
    auto ids = random_ids(100, 1);
    ids.push_back(-1);
    return ids;
  }();
  EXPECT_EQ(small.find(engine, key, {}), nullptr);
  EXPECT_EQ(absent.find(engine, key, {}), nullptr);
}

std::vector<std::string> checkpoints() {
  auto all = kCheckpoints;
  // Layers that read the keys of others, one latent for all heads, a recurrence.
  for (const char* more : {"gemma4_text", "deepseek_v2", "qwen3_next"}) all.emplace_back(more);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, PromptStoreOf, testing::ValuesIn(checkpoints()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace kvatlas::calibrate
