// SPDX-License-Identifier: Apache-2.0
// Continuations that decode together, against what their plans mean, token by token and in double:
// in every layer, for plans that policies make and for plans drawn at random.
#include "calibrate/simulate/continuations.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/property/naive_decode.hpp"
#include "tests/property/simulation_fixture.hpp"

namespace kvatlas::calibrate {
namespace {

using testing_support::Random;

class ContinuationsOf : public OnCheckpoint {
 protected:
  /// Decodes under all plans together, every one with tokens of its own, and under each by the
  /// definition. In the middle each is forked, and the fork goes on with other tokens. If `alike`,
  /// only every fifth plan has tokens of its own, and forks have those of other forks. Of the
  /// continuations `flips` may differ by more: a value in the middle of two codes may be rounded to
  /// the one here and to the other there, which machines decide differently.
  void expect_what_they_mean(const capture::Sequence& prompt, std::int64_t n,
                             const std::vector<Plan>& plans, std::int64_t steps, float slack = 1,
                             std::size_t flips = 0, bool alike = false) {
    Continuations together(engine, prompt, n, steps);
    std::vector<const Plan*> all;
    for (const auto& plan : plans) all.push_back(&plan);
    together.reserve(all, true);
    std::vector<NaiveDecode> naive;
    std::vector<std::size_t> numbers;
    for (const auto& plan : plans) {
      numbers.push_back(together.add(plan));
      naive.emplace_back(engine, prompt, n, plan);
    }
    std::set<std::size_t> flipped;
    Random random(17), of_all(18);
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step == steps / 2)
        for (std::size_t i = 0; i < plans.size(); ++i) {
          numbers.push_back(together.fork(numbers[i]));
          naive.push_back(naive[i]);
        }
      // Those that decide by the first step begin behind it.
      std::vector<std::size_t> rows, which;
      std::vector<std::int64_t> tokens;
      const std::int64_t common[] = {of_all.integer(0, 255), of_all.integer(0, 255)};
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (step < plans[i % plans.size()].delay) continue;
        rows.push_back(i);
        which.push_back(numbers[i]);
        tokens.push_back(alike && i % 5 != 4 ? common[i / plans.size()] : random.integer(0, 255));
      }
      std::vector<std::vector<float>> logits(rows.size());
      OnCheckpoint::step(together, which, tokens, n + step,
                         [&](std::size_t row, std::span<const float> values) {
                           logits[row].assign(values.begin(), values.end());
                         });
      for (std::size_t r = 0; r < rows.size(); ++r) {
        SCOPED_TRACE("plan " + std::to_string(rows[r] % plans.size()) + ", step " +
                     std::to_string(step));
        const auto want = naive[rows[r]].step(tokens[r]);
        ASSERT_EQ(logits[r].size(), want.size());
        float worst = 0;
        for (std::size_t v = 0; v < want.size(); ++v)
          worst = std::max(worst, std::abs(logits[r][v] - want[v]));
        if (worst > slack * logit_error) flipped.insert(rows[r]);
        ASSERT_LE(worst, (flips > 0 ? 10 : 1) * slack * logit_error);
        const Plan& plan = plans[rows[r] % plans.size()];
        if (plan.quest) continue;  // which keeps everything
        ASSERT_EQ(together.lengths(which[r]), naive[rows[r]].lengths());
        if (plan.pod || plan.minicache || plan.shared_values) continue;
        ASSERT_DOUBLE_EQ(together.stored_bytes(which[r]), naive[rows[r]].stored_bytes());
      }
    }
    EXPECT_LE(flipped.size(), flips);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (naive[i].gates == 0) {
        EXPECT_TRUE(std::isnan(together.skipped(numbers[i]))) << "plan " << i;
      } else {
        EXPECT_NEAR(together.skipped(numbers[i]),
                    static_cast<double>(naive[i].skipped) / static_cast<double>(naive[i].gates),
                    0.02)
            << "plan " << i;
      }
    }
  }

  /// The same of the plans that policies make of a prompt.
  void expect_policies(const std::vector<Policy>& asked, const std::vector<std::int64_t>& ids,
                       std::int64_t steps, float slack = 1, std::size_t flips = 0) {
    const Prefilled prompt = prefill(ids, asked);
    std::vector<Plan> plans;
    for (const auto& policy : asked)
      plans.push_back(make_plan(policy, prompt.facts, prompt.sequence, config));
    expect_what_they_mean(prompt.sequence, std::ssize(ids), plans, steps, slack, flips);
  }

  /// The same number of tokens in each KV head, but others: ranges of the prompt, or single ones.
  Plan random_plan(std::int64_t n, Random& random, bool ranges) const {
    Plan plan;
    plan.heads.resize(static_cast<std::size_t>(config.n_layers));
    for (auto& layer : plan.heads)
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        HeadCut cut;
        if (ranges) {
          const std::int64_t a = random.integer(0, n / 2), b = random.integer(a + 1, n);
          cut.ranges = {{0, a}, {b, n}};
          if (a == 0) cut.ranges.erase(cut.ranges.begin());
          if (b == n) cut.ranges = {{0, n}};
        } else {
          for (std::int64_t j = 0; j < n; ++j)
            if (j == n - 1 || random.integer(0, 2) == 0) cut.tokens.push_back(j);
        }
        layer.push_back(cut);
      }
    return plan;
  }

  Pod random_blocks(Random& random, double tau) const {
    Pod pod;
    pod.proximal = {4, 24};
    pod.tau = tau;
    for (std::int64_t h = 0; h < config.n_heads; ++h) {
      std::vector<std::int64_t> lowest{0};
      for (std::int64_t layer = 1; layer < config.n_layers; ++layer)
        lowest.push_back(random.integer(0, 2) == 0 ? layer : lowest.back());
      pod.lowest.push_back(lowest);
    }
    return pod;
  }
};

TEST_P(ContinuationsOf, FollowPlansDrawnAtRandom) {
  const std::int64_t n = 90;
  const Prefilled prompt = prefill(random_ids(n, 1), {});
  Random random(5);
  std::vector<Plan> plans;
  for (const bool ranges : {true, false}) {
    plans.push_back(random_plan(n, random, ranges));
    for (const double tau : {1.0, 0.5, 0.0}) {
      Plan plan = random_plan(n, random, ranges);
      plan.pod = random_blocks(random, tau);
      plans.push_back(plan);
    }
  }
  expect_what_they_mean(prompt.sequence, n, plans, 8);
}

TEST_P(ContinuationsOf, FollowWhatPoliciesPlan) {
  const std::int64_t n = 100;
  const auto asked = policies({
      "streaming:initial=4,recent=20",
      "streaming:initial=4,recent=20+rolling",
      "window:recent=12+rolling",
      "streaming:initial=2,recent=20+kv4",
      "streaming:initial=2,recent=20+kv2+rolling",
      "simlayerkv:threshold=0.4,initial=4,recent=24",
      "simlayerkv:threshold=0.4,initial=4,recent=24,granularity=head",
      "simlayerkv:threshold=0.4,initial=4,recent=24,opposite=1+rolling",
      "simlayerkv:threshold=0.4,initial=4,recent=24,identify=prefill,w_last=8",
      "simlayerkv:threshold=0.4,initial=4,recent=24,granularity=head+lagkv:sink=4,lag=16,ratio=1/4",
      "simlayerkv:threshold=0.4,initial=4,recent=24+snapkv:window=8,budget=20+kv4",
      "random-layers:layers=2,initial=4,recent=24+pod:delta=0.3,initial=4,recent=24",
      "random-layers:layers=2,initial=4,recent=24+pod:delta=0.3,initial=4,recent=24+kv4",
      "dynamickv:window=8,budget=24",
      "pyramidkv:window=8,budget=24+pod:delta=0.3,initial=4,recent=24,granularity=head,tau=0.6",
      "dynamickv:window=8,budget=24,heads=query",
      "simlayerkv:threshold=0.4,recent=24,granularity=head+snapkv:window=8,budget=20,heads=query",
      "h2o:budget=31",
      "lagkv:sink=4,lag=16,ratio=1/4",
      "lagkv:sink=4,lag=8,ratio=0.5,variant=local+kv4",
      "lagkv:sink=4,lag=8,ratio=0.5+pod:delta=0.3,initial=4,recent=24",
      "lagkv:sink=4,lag=16,ratio=1/4+pod:delta=0.1,initial=4,recent=24,granularity=head",
      "l2:sink=4,lag=8,ratio=0.5",
      "minicache:retain=30",
      "minicache:retain=30+kv4",
      "share-values:delta=0,recent=30",
      "share-values:delta=0,recent=30+kv4",
      "quest:page=8,budget=32",
      "quest:page=16,budget=16",
      "pod:delta=0.3,initial=4,recent=24",
      "pod:delta=0.3,initial=4,recent=24+kv4",
      "kv2",
  });
  expect_policies(asked, random_ids(n, 2), 20);
}

/// What plans have in common is computed once, whatever they are, and also where some of them go on
/// with other tokens.
TEST_P(ContinuationsOf, AreOneInTheLayersInWhichTheyAreAlike) {
  const std::int64_t n = 100;
  const auto asked = policies({
      "streaming:initial=4,recent=20",
      "window:recent=12+rolling",
      "simlayerkv:threshold=0.4,initial=4,recent=24",
      "snapkv:window=8,budget=24,heads=query",
      "pod:delta=0.3,initial=4,recent=24",
      "pod:delta=0.3,initial=4,recent=24,tau=0.6",
      "quest:page=8,budget=32",
      "share-values:delta=0,recent=30",
      "minicache:retain=30",
      "minicache:retain=10",
      "lagkv:sink=4,lag=8,ratio=0.5+precision",
      "decoding:budget=24,every=8,window=8,kernel=5+precision",
      "decoding:budget=25,every=5,by=h2o+precision",
      "precision",
  });
  const Prefilled prompt = prefill(random_ids(n, 15), asked);
  std::vector<Plan> plans;
  for (const auto& policy : asked) {
    const auto plan_of = [&](const Policy& one) {
      return make_plan(one, prompt.facts, prompt.sequence, config);
    };
    const Plan plan = plan_of(policy);
    plans.push_back(plan);
    if (plan.minicache || plan.shared_values) continue;  // which change layers together
    for (std::int64_t layer = 1; layer < config.n_layers; ++layer) {
      if (std::holds_alternative<Precision>(policy.parts.back())) {
        Policy other = policy;
        auto& formats = std::get<Precision>(other.parts.back()).fixed;
        formats.emplace(static_cast<std::size_t>(config.n_layers));
        (*formats)[layer] = {KvFormat::fp8, KvFormat::q8_0};
        plans.push_back(plan_of(other));
        continue;
      }
      Plan& other = plans.emplace_back(plan);
      if (plan.pod)
        for (auto& lowest : other.pod->lowest) lowest[layer] = layer;
      else
        other.heads[layer] = keep_all(config, n + plan.delay)[layer];
    }
  }
  expect_what_they_mean(prompt.sequence, n, plans, 20, 30, plans.size() / 10, true);
}

/// Formats that round each token by itself do so as soon as it is there; each layer, and keys and
/// values, may have another.
TEST_P(ContinuationsOf, RoundByTheFormatsOfLayers) {
  const std::int64_t n = 100;
  auto asked = policies({
      "precision",
      "precision:keys=q8_0,values=q4_0",
      "precision:keys=16,values=q4_0",
      "precision:keys=int4,values=fp8",
      "precision:keys=int2,values=int4",
      "streaming:initial=4,recent=20+precision:keys=fp8,values=int4+rolling",
      "lagkv:sink=4,lag=8,ratio=0.5+precision:keys=q8_0,values=int4",
      "snapkv:window=8,budget=24,heads=query+precision:keys=q4_0,values=fp8",
      "pod:delta=0.3,initial=4,recent=24+precision:keys=q8_0,values=fp8",
      "simlayerkv:threshold=0.4,initial=4,recent=24+precision:keys=int4,values=int4",
  });
  Random random(23);
  for (std::size_t i = 0, alike = asked.size(); i < alike; ++i) {
    Policy by_layer = asked[i];
    auto& formats = std::get<Precision>(by_layer.parts.back()).fixed.emplace();
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
      formats.push_back({static_cast<KvFormat>(random.integer(0, 5)),
                         static_cast<KvFormat>(random.integer(0, 5))});
    asked.push_back(std::move(by_layer));
  }
  expect_policies(asked, random_ids(n, 9), 40, 30, asked.size() / 2);
}

/// What is generated joins the codes, and so do the last tokens of the prompt that did not at
/// first.
TEST_P(ContinuationsOf, RoundLaterTokensInGroups) {
  const std::int64_t n = 100;
  const auto asked = policies({
      "kv4",
      "kv2:residual=24",
      "kv4:residual=200",
      "streaming:initial=4,recent=20+kv4:residual=8+rolling",
      "h2o:budget=40+kv2:residual=32",
      "lagkv:sink=4,lag=8,ratio=0.5+kv2:residual=3",
      "lagkv:sink=4,lag=16,ratio=1/4+kv4",
      "simlayerkv:threshold=0.4,initial=4,recent=24+lagkv:sink=4,lag=16,ratio=1/2+kv2:residual=5",
      "minicache:retain=10+kv4:residual=20",
      "pod:delta=0.3,initial=4,recent=24+kv4:residual=12",
      "snapkv:window=8,budget=24,heads=query+kv2",
      "decoding:budget=24,every=8,by=streaming+kv4",
      "decoding:budget=24,every=9,by=streaming,prompt=whole+kv2:residual=12",
      "decoding:budget=20,every=6,by=streaming+precision:keys=q8_0,values=int4",
  });
  expect_policies(asked, random_ids(n, 4), 40, 30, asked.size() / 4);
}

/// Every score, with choices after each token and after several, in heads that other parts have
/// left.
TEST_P(ContinuationsOf, HoldBudgetsWhileDecoding) {
  const auto asked = policies({
      "decoding:budget=24,every=8,window=8,kernel=5",
      "decoding:budget=24,every=9,window=3,prompt=whole",
      "decoding:budget=25,every=5,by=h2o",
      "decoding:budget=24,every=5,by=h2o,prompt=whole",
      "decoding:budget=20,every=1,by=tova",
      "decoding:budget=20,every=6,by=tova,prompt=whole",
      "decoding:budget=24,every=7,by=keydiff",
      "decoding:budget=24,every=3,by=l2",
      "decoding:budget=24,every=8,by=rkv,window=4,kernel=5",
      "decoding:budget=30,every=6,by=rkv,window=2,lambda=0.9,prompt=whole",
      "decoding:budget=16,every=4,by=streaming,initial=3",
      "decoding:budget=90,every=4,by=h2o",
      "decoding:budget=16777216,every=4,by=keydiff",
      "decoding:budget=24,every=16777216,by=h2o",
      "simlayerkv:threshold=0.4,initial=4,recent=24+decoding:budget=24,every=8,window=4",
      "simlayerkv:threshold=0.4,recent=24,granularity=head+decoding:budget=21,every=4,by=tova",
      "random-layers:layers=2,initial=4,recent=24+decoding:budget=24,every=5,by=h2o+rolling",
  });
  expect_policies(asked, random_ids(80, 12), 32);
}

TEST_P(ContinuationsOf, HoldBudgetsByTheMeanQuery) {
  const auto asked = policies({
      "decoding:budget=24,every=5,by=triattention",
      "decoding:budget=30,every=1,by=triattention",
      "decoding:budget=24,every=4,by=triattention,prompt=whole",
      "simlayerkv:threshold=0.4,initial=4,recent=24+decoding:budget=24,every=8,by=triattention",
  });
  expect_policies(asked, random_ids(80, 12), 32);
}

/// Prompts shorter than everything that is asked of them.
TEST_P(ContinuationsOf, FollowPlansForShortPrompts) {
  const auto asked = policies(
      {"streaming:initial=4,recent=3+rolling", "h2o:budget=8",
       "simlayerkv:threshold=0.1,initial=4,recent=3+rolling", "dynamickv:window=8,budget=24",
       "lagkv:sink=2,lag=4,ratio=1/2", "quest:page=4,budget=4", "minicache:retain=1+kv4",
       "pod:delta=0.3,initial=1,recent=2", "snapkv:window=2,budget=3",
       "decoding:window=3,budget=4,every=3",
       "decoding:window=3,budget=4,every=3,by=rkv,prompt=whole", "decoding:budget=3,every=2,by=h2o",
       "decoding:budget=2,every=1,by=tova"});
  for (const std::int64_t n : {1, 2, 5}) {
    SCOPED_TRACE(n);
    const Prefilled prompt = prefill(random_ids(n, 3), asked);
    std::vector<Plan> plans;
    for (const auto& policy : asked)
      plans.push_back(make_plan(policy, prompt.facts, prompt.sequence, config));
    expect_what_they_mean(prompt.sequence, n, plans, 10);
  }
}

/// Rows with values of their own, whose weight changes where a continuation leaves another.
class BranchesOf : public OnCheckpoint {};

TEST_P(BranchesOf, AreWhatRowsOfTheirOwnAre) {
  const std::vector<capture::Branch> branches = {{0, 0}, {0, 1}, {1, 2}, {0, 2}, {2, 3}, {4, 99}};
  const std::vector<std::int64_t> tokens(branches.size(), 77);
  // [continuation]: that of the layer, or of what it leaves there.
  const auto weight = [&](std::size_t of, std::int64_t layer) {
    while (branches[of].layer > layer) of = branches[of].of;
    return 1 + 0.25f * static_cast<float>(of);
  };
  using Rows = std::vector<std::vector<float>>;
  const auto run = [&](std::span<const capture::Branch> with, std::vector<std::int64_t>& counts) {
    Rows logits(tokens.size());
    capture::ContinuationStep step{tokens, 3, {with.begin(), with.end()}};
    step.attention = [&](const capture::ContinuationRows& in) {
      const std::int64_t rows = in.query.sizes[0], heads = in.query.sizes[1];
      counts.push_back(rows);
      ASSERT_EQ(in.row_of.size(), tokens.size());
      const auto* values = static_cast<const float*>(in.value.data);
      for (std::int64_t row = 0; row < rows; ++row) {
        EXPECT_EQ(in.row_of[row], row);
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t d = 0; d < in.out.sizes[2]; ++d)
            in.out(row, h, d) = weight(static_cast<std::size_t>(row), in.layer) *
                                values[row * in.value.strides[0] +
                                       h * in.value.sizes[1] / heads * in.value.strides[1] +
                                       d * in.value.strides[2]];
      }
    };
    step.logits = [&](std::int64_t first, View<const float, 2> of) {
      for (std::int64_t row = 0; row < of.sizes[0]; ++row)
        logits[first + row].assign(of.at(row), of.at(row) + of.sizes[1]);
    };
    engine.run_continuations({&step, 1});
    return logits;
  };
  std::vector<std::int64_t> all, fewer;
  const Rows want = run({}, all), got = run(branches, fewer);
  ASSERT_GE(config.n_layers, 4);
  EXPECT_EQ(all, std::vector<std::int64_t>(all.size(), std::ssize(tokens)));
  for (std::size_t layer = 0; layer < fewer.size(); ++layer)
    EXPECT_EQ(fewer[layer],
              std::vector<std::int64_t>({1, 2, 4, 5})[std::min<std::size_t>(layer, 3)]);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(got[i].size(), want[i].size());
    for (std::size_t v = 0; v < want[i].size(); ++v) ASSERT_NEAR(got[i][v], want[i][v], 1e-4f) << v;
  }
  EXPECT_NE(got[3], got[0]);
  EXPECT_EQ(got[5], got[4]);
}

INSTANTIATE_TEST_SUITE_P(Tiny, BranchesOf,
                         testing::Values("llama3_gqa_f32", "gemma3n_text", "gemma4_text"),
                         [](const auto& of) { return of.param; });

INSTANTIATE_TEST_SUITE_P(Tiny, ContinuationsOf, testing::ValuesIn(kCheckpoints),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace kvatlas::calibrate
