// SPDX-License-Identifier: Apache-2.0
// Laws of the simulation: what keeps everything changes nothing, nobody's outcome depends on whom
// it is tried with, and what is measured is what the plans' definition gives.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/search/evaluate.hpp"
#include "tests/property/naive_decode.hpp"
#include "tests/property/round_row.hpp"
#include "tests/property/simulation_fixture.hpp"

namespace kvatlas::calibrate {
namespace {

using Ids = std::vector<std::int64_t>;

/// KL(P || Q) in double.
double divergence(const std::vector<float>& full, const std::vector<float>& other) {
  const auto log_sum = [](const std::vector<float>& logits) {
    double sum = 0;
    for (const float value : logits) sum += std::exp(static_cast<double>(value));
    return std::log(sum);
  };
  const double p_sum = log_sum(full), q_sum = log_sum(other);
  double kl = 0;
  for (std::size_t v = 0; v < full.size(); ++v) {
    const double p = static_cast<double>(full[v]) - p_sum,
                 q = static_cast<double>(other[v]) - q_sum;
    kl += std::exp(p) * (p - q);
  }
  return kl;
}

class SimulationOf : public OnCheckpoint {
 protected:
  /// What the engine generates by itself, and the logits that gave each token.
  Ids generate(const Ids& ids, std::int64_t count, std::vector<std::vector<float>>* all = nullptr) {
    capture::Sequence sequence = engine.sequence();
    Ids input = ids, out;
    for (std::int64_t i = 0; i < count; ++i) {
      const capture::Engine::Step step{&sequence, input};
      engine.run({&step, 1}, capture::Logits::last);
      if (all) all->push_back(sequence.logits());
      out.push_back(capture::argmax(sequence.logits()));
      input = {out.back()};
    }
    return out;
  }

  /// What a policy generates, and its KL divergence along the full model's tokens, are those of a
  /// cache `held` after a prompt whose last logits are these. Returns that divergence.
  double expect_decoded(const Outcome& policy, const Ids& full_tokens,
                        const std::vector<std::vector<float>>& full_logits, const NaiveDecode& held,
                        const std::vector<float>& logits, double of_kl) {
    EXPECT_EQ(full_tokens.size(), full_logits.size());
    NaiveDecode free = held, forced = held;
    double kl = divergence(full_logits[0], logits);
    Ids tokens{capture::argmax(logits)};
    for (std::size_t p = 1; p < full_tokens.size(); ++p) {
      kl += divergence(full_logits[p], forced.step(full_tokens[p - 1]));
      tokens.push_back(capture::argmax(free.step(tokens.back())));
    }
    EXPECT_EQ(policy.tokens, tokens);
    kl /= static_cast<double>(full_tokens.size());
    EXPECT_NEAR(policy.kl, kl, of_kl * kl + 1e-5);
    return kl;
  }
};

TEST_P(SimulationOf, FullIsWhatTheEngineGenerates) {
  const Ids ids = random_ids(120, 1);
  const Ids want = generate(ids, 12);
  EXPECT_EQ(run(ids, {}, {.max_new = 12}).full.tokens, want);
  // Cut before the question is read, and nothing lost by it.
  for (const std::int64_t context : {1, 60, 119}) {
    const auto got = run(ids, policies({"streaming:initial=0,recent=200"}),
                         {.max_new = 12, .context_tokens = context});
    EXPECT_EQ(got.full.tokens, want) << context;
    EXPECT_EQ(got.policies[0].tokens, want) << context;
    EXPECT_LT(got.policies[0].kl, 1e-5) << context;
  }
  // It stops behind an end token.
  const auto ended =
      run(ids, policies({"window:recent=200"}), {.max_new = 12, .end_tokens = {want[4]}});
  const auto first = std::find(want.begin(), want.end(), want[4]);
  EXPECT_EQ(ended.full.tokens, Ids(want.begin(), first + 1));
  EXPECT_EQ(ended.policies[0].tokens, ended.full.tokens);
}

TEST_P(SimulationOf, WhatKeepsEverythingChangesNothing) {
  std::vector<std::string> texts{
      "streaming:initial=4,recent=100",
      "window:recent=120+rolling",
      "simlayerkv:threshold=1,initial=4,recent=8",
      "simlayerkv:threshold=1,initial=4,recent=8,granularity=head",
      "simlayerkv:threshold=0,initial=4,recent=200",
      "simlayerkv:threshold=0,initial=4,recent=200,granularity=head+rolling",
      "random-layers:layers=0,initial=4,recent=8",
      "pod:delta=1,initial=4,recent=16",
      "pod:delta=0,initial=4,recent=200",
      "pod:delta=0,initial=4,recent=200,granularity=head,tau=0",
      "dynamickv:window=8,budget=200",
      "snapkv:window=8,budget=200",
      "snapkv:window=8,budget=200+pod:delta=1,initial=4,recent=16",
      "h2o:budget=400",
      "adakv:window=8,budget=200",
      "headkv:window=8,budget=200",
      "chunkkv:window=8,budget=200,chunk=7",
      "chunkkv:window=8,budget=20,chunk=100",
      "criticalkv:window=8,budget=200",
      "tova:budget=200",
      "keydiff:budget=200",
      "expected-attention:budget=200",
      "kvzip:budget=200",
      "decoding:window=8,budget=200,every=8",
      "decoding:budget=116,every=1,by=h2o",
      "decoding:budget=116,every=1,by=tova,prompt=whole",
      "decoding:budget=200,every=3,by=keydiff",
      "decoding:budget=200,every=3,by=l2",
      "decoding:window=2,budget=200,every=3,by=rkv",
      "decoding:budget=200,every=1,by=streaming",
      "lagkv:sink=4,lag=16,ratio=1",
      "lagkv:sink=4,lag=8,ratio=1,variant=local",
      "lagkv:sink=16,lag=128,ratio=1/4",
      "quest:page=8,budget=400",
      "minicache:retain=200",
      "share-values:delta=1,recent=0",
      "share-values:delta=0,recent=200",
      "vertical-slash",
      "vertical-slash:vertical=1,initial=0,slash=120+quest:page=8,budget=400",
  };
  if (GetParam() == "mistral_sliding_f32")  // whose layers see 32 tokens, whatever is kept
    texts.insert(texts.end(), {"window:recent=32", "streaming:initial=4,recent=40"});
  const auto tried = policies(texts);
  const auto got = run(random_ids(100, 2), tried, {.max_new = 16});
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const Outcome& one = got.policies[i];
    EXPECT_EQ(one.tokens, got.full.tokens);
    EXPECT_LT(std::abs(one.kl), 1e-5);
    EXPECT_EQ(one.agreement, 1);
    if (tried[i].name.ends_with("rolling") ||
        tried[i].name.starts_with("streaming:initial=4,recent=40") ||
        tried[i].name == "window:recent=32")
      continue;
    EXPECT_EQ(one.cache_lengths, got.full.cache_lengths);
    EXPECT_EQ(one.kept_bytes, one.full_bytes);
  }
}

const std::vector<std::string> kMixed = {
    "streaming:initial=4,recent=20",
    "lagkv:sink=4,lag=16,ratio=1/4",
    "simlayerkv:threshold=0.4,initial=4,recent=24",
    "streaming:initial=4,recent=20",  // twice
    "snapkv:window=8,budget=24",
    "h2o:budget=16+kv4",
    "decoding:window=4,budget=24,every=4",
    "simlayerkv:threshold=0.4,recent=24+decoding:budget=24,every=2,by=h2o",
    "decoding:budget=24,every=4,by=keydiff+kv4",
    "simlayerkv:threshold=0.4,recent=24+tova:budget=24",
    "keydiff:budget=24",
    "expected-attention:budget=24",
    "kvzip:budget=24,chunk=40",
    "kvzip:budget=12,sink=0",
    "simlayerkv:threshold=0.4,recent=24+kvzip:budget=24,layerwise=1+kv4",
    "criticalkv:window=8,budget=24+kv4",
    "chunkkv:window=8,budget=24,chunk=5",
    "adakv:window=8,budget=24",
    "headkv:window=8,budget=24",
    ("simlayerkv:threshold=0.4,recent=24,granularity=head+"
     "adakv:window=8,budget=24,heads=query"),
    "pod:delta=0.3,initial=4,recent=24,tau=0.5",
    "minicache:retain=16",
    "share-values:delta=0,recent=16",
    "quest:page=8,budget=32"};

void expect_same(const Outcome& a, const Outcome& b, bool compared) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.cache_lengths, b.cache_lengths);
  EXPECT_EQ(a.kept, b.kept);
  EXPECT_EQ(a.kept_bytes, b.kept_bytes);
  EXPECT_EQ(a.full_bytes, b.full_bytes);
  EXPECT_NEAR(a.read_bytes, b.read_bytes, 1e-6 * a.read_bytes);
  EXPECT_EQ(a.lazy, b.lazy);
  EXPECT_EQ(a.budgets, b.budgets);
  EXPECT_EQ(a.lowest, b.lowest);
  if (!std::isnan(a.skipped) || !std::isnan(b.skipped)) {
    EXPECT_NEAR(a.skipped, b.skipped, 1e-9);
  }
  if (!compared) return;
  EXPECT_NEAR(a.kl, b.kl, 1e-4 * (1e-2 + std::abs(a.kl)));
  EXPECT_EQ(a.agreement, b.agreement);
}

TEST_P(SimulationOf, NobodyDependsOnWhomItIsTriedWith) {
  const auto tried = policies(kMixed);
  const Ids ids = random_ids(130, 4);
  for (const std::int64_t context : {0, 100}) {
    const SimulateOptions options{.max_new = 24, .context_tokens = context};
    const auto together = run(ids, tried, options);
    const auto expect_like_together = [&](const Simulated& other, bool compared) {
      EXPECT_EQ(other.full.tokens, together.full.tokens);
      for (std::size_t i = 0; i < tried.size(); ++i) {
        SCOPED_TRACE(tried[i].name);
        expect_same(together.policies[i], other.policies[i], compared);
      }
    };
    for (std::size_t i = 0; i < tried.size(); ++i) {
      SCOPED_TRACE(tried[i].name + " alone");
      expect_same(together.policies[i], run(ids, {tried[i]}, options).policies[0], true);
    }
    {
      SCOPED_TRACE("one at a time");
      SimulateOptions one_by_one = options;
      one_by_one.copy_bytes = 1;
      expect_like_together(run(ids, tried, one_by_one), true);
    }
    {
      SCOPED_TRACE("without comparison");
      SimulateOptions alone = options;
      alone.compare = false;
      const auto other = run(ids, tried, alone);
      expect_like_together(other, false);
      EXPECT_TRUE(std::isnan(other.policies[0].kl));
    }
    {
      SCOPED_TRACE("three threads");
      capture::use_threads(3);
      expect_like_together(run(ids, tried, options), true);
      capture::use_threads(1);
    }
  }
}

/// What ends an answer early cuts it there, and changes nothing before it or of other policies.
TEST_P(SimulationOf, NobodyDependsOnTheOtherPrompts) {
  const std::string name = "the prompt";
  // Few policies, so that all prompts decode together, and so many that some do; together they are
  // more than the room for copies holds; and those that read the prompt in ways of their own.
  std::vector<std::vector<Policy>> asked = {
      policies({"streaming:initial=4,recent=20", "decoding:budget=24,every=4,by=keydiff+kv4"}),
      policies(kMixed), policies({})};
  if (config.latent.rank == 0 && !engine.has_layer_states())
    asked.push_back(policies({"pod:delta=0.3,initial=4,recent=24,prefill=shared", "vertical-slash",
                              "snapkv:window=8,budget=24"}));
  for (const bool compare : {true, false})
    for (const auto& tried : asked) {
      SCOPED_TRACE(str(tried.size(), compare ? " policies, compared" : " policies"));
      std::vector<Ids> ids;
      std::vector<SimulateOptions> options;
      for (const std::int64_t length : {130, 60, 90, 131, 110}) {
        ids.push_back(random_ids(length, static_cast<std::uint64_t>(length)));
        // They end at different steps, and the second has a question.
        SimulateOptions one{.max_new = length % 7 + 3, .compare = compare, .repeat = kRepeat};
        if (ids.size() == 2) one.context_tokens = 50;
        if (ids.size() == 4) one.copy_bytes = 1 << 20;
        options.push_back(one);
      }
      std::vector<SimulatedPrompt> prompts;
      for (std::size_t i = 0; i < ids.size(); ++i) prompts.push_back({ids[i], options[i], name});
      const auto got = simulate(engine, prompts, tried);
      ASSERT_EQ(got.size(), prompts.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        SCOPED_TRACE(str("prompt ", i));
        const Simulated alone = run(ids[i], tried, options[i]);
        expect_same(got[i].full, alone.full, compare);
        ASSERT_EQ(got[i].policies.size(), tried.size());
        for (std::size_t p = 0; p < tried.size(); ++p) {
          SCOPED_TRACE(tried[p].name);
          expect_same(got[i].policies[p], alone.policies[p], compare);
        }
      }
    }
}

TEST_P(SimulationOf, EndsWhereTheAnswerIsSettled) {
  const auto tried = policies(kMixed);
  const Ids ids = random_ids(130, 4);
  const auto whole = run(ids, tried, {.max_new = 24, .compare = false});
  const auto settled = [](std::span<const std::int64_t> tokens) {
    return std::any_of(tokens.begin(), tokens.end(), [](auto token) { return token % 7 == 3; });
  };
  const auto cut = run(ids, tried, {.max_new = 24, .compare = false, .settled = settled});
  bool any = false;
  const auto expect_cut = [&](const Outcome& early, const Outcome& late) {
    std::size_t size = 1;
    while (size < late.tokens.size() && !settled(std::span(late.tokens).first(size))) ++size;
    EXPECT_EQ(early.tokens,
              Ids(late.tokens.begin(), late.tokens.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_EQ(early.kept_bytes, late.kept_bytes);
    any |= size < late.tokens.size();
  };
  expect_cut(cut.full, whole.full);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    expect_cut(cut.policies[i], whole.policies[i]);
  }
  EXPECT_TRUE(any);
  // Where policies are compared with the full model, all of its answer is needed.
  EXPECT_EQ(run(ids, tried, {.max_new = 24, .settled = settled}).full.tokens, whole.full.tokens);
}

/// Tokens, divergence and agreement of every policy by the definition of its plan.
TEST_P(SimulationOf, MeasuresWhatThePlansMean) {
  const auto tried = policies(kMixed);
  const std::int64_t n = 110, count = 14;
  const Ids ids = random_ids(n, 6);
  const auto got = run(ids, tried, {.max_new = count});
  std::vector<std::vector<float>> full_logits;
  ASSERT_EQ(got.full.tokens, generate(ids, count, &full_logits));
  const Prefilled prompt = prefill(ids, tried);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const Plan plan = make_plan(tried[i], prompt.facts, prompt.sequence, config);
    NaiveDecode forced(engine, prompt.sequence, n, plan), free = forced;
    double kl = 0, agreement = 0;
    if (plan.delay == 1) agreement = 1;  // the step before the cut is the full model's
    Ids tokens(got.full.tokens.begin(), got.full.tokens.begin() + 1 + plan.delay);
    for (std::int64_t p = 1 + plan.delay; p < count; ++p) {
      const auto of = static_cast<std::size_t>(p);
      const auto logits = forced.step(got.full.tokens[of - 1]);
      kl += divergence(full_logits[of], logits);
      agreement += capture::argmax(logits) == got.full.tokens[of] ? 1 : 0;
      tokens.push_back(capture::argmax(free.step(tokens.back())));
    }
    EXPECT_EQ(got.policies[i].tokens, tokens);
    kl /= static_cast<double>(count - 1);
    EXPECT_NEAR(got.policies[i].kl, kl, 1e-3 * kl + 1e-5);
    EXPECT_NEAR(got.policies[i].agreement, agreement / static_cast<double>(count - 1), 1e-9);
    if (!plan.quest) {
      EXPECT_EQ(got.policies[i].cache_lengths, free.lengths());
    }
  }
}

/// With the cache cut before the question is read, every token of the question sees what is left.
TEST_P(SimulationOf, CutsBeforeTheQuestion) {
  const auto tried = policies(kMixed);
  const std::int64_t n = 80, count = 6;
  const Ids ids = random_ids(n + 9, 7);
  const auto got = run(ids, tried, {.max_new = count, .context_tokens = n});
  // The first step, which some decide by, is the question's first token.
  const Prefilled prompt = prefill(Ids(ids.begin(), ids.begin() + n), tried, ids[n]);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const Plan plan = make_plan(tried[i], prompt.facts, prompt.sequence, config);
    NaiveDecode free(engine, prompt.sequence, n, plan);
    Ids input(ids.begin() + n + plan.delay, ids.end()), tokens;
    std::vector<float> logits;
    for (const auto token : input) logits = free.step(token);
    while (true) {
      tokens.push_back(capture::argmax(logits));
      if (static_cast<std::int64_t>(tokens.size()) == count) break;
      logits = free.step(tokens.back());
    }
    EXPECT_EQ(got.policies[i].tokens, tokens);
    if (!plan.quest) {
      EXPECT_EQ(got.policies[i].cache_lengths, free.lengths());
    }
  }
}

TEST_P(SimulationOf, MasksThePrefillAsTheEngineDoes) {
  const std::int64_t n = 100, count = 10;
  const Ids ids = random_ids(n, 8);
  auto tried =
      policies({"window:recent=100", "window:recent=12", "streaming:initial=3,recent=12",
                "window:recent=12+rolling", "simlayerkv:threshold=0.5,initial=2,recent=12"});
  LazyHeads some(static_cast<std::size_t>(config.n_layers), {0});
  some.front() = some.back() = {1};
  std::get<SimLayerKv>(tried[4].parts[0]).fixed = some;
  for (auto& policy : tried) policy.masks_prefill = true;
  const auto got = run(ids, tried, {.max_new = count});
  EXPECT_EQ(got.policies[0].tokens, got.full.tokens);
  EXPECT_LT(std::abs(got.policies[0].kl), 1e-5);
  std::vector<std::vector<float>> full_logits;
  generate(ids, count, &full_logits);

  for (std::size_t i = 1; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    capture::Sequence masked = engine.sequence();
    capture::Engine::Step step{&masked, ids};
    step.proximal.resize(static_cast<std::size_t>(config.n_layers));
    if (i == 4)
      step.proximal.front() = step.proximal.back() = Proximity{2, 12};
    else
      std::fill(step.proximal.begin(), step.proximal.end(),
                std::get<Streaming>(tried[i].parts[0]).keep);
    engine.run({&step, 1}, capture::Logits::last);
    const PromptFacts facts(needs_of({&tried[i], 1}), config, n);
    const NaiveDecode held(engine, masked, n, make_plan(tried[i], facts, masked, config));
    expect_decoded(got.policies[i], got.full.tokens, full_logits, held, masked.logits(), 1e-3);
  }
}

/// The prompt's own tokens attend to rounded keys and values.
TEST_P(SimulationOf, RoundsWhileThePromptIsRead) {
  const std::int64_t n = 90, count = 8;
  const Ids ids = random_ids(n, 21);
  const auto tried = policies({"precision:keys=16,values=16,prefill=rounded",
                               "precision:keys=q8_0,values=q8_0,prefill=rounded",
                               "precision:keys=fp8,values=fp8,prefill=rounded",
                               "streaming:initial=3,recent=12+precision:keys=q8_0,values=q4_0,"
                               "prefill=rounded"});
  const auto got = run(ids, tried, {.max_new = count});
  EXPECT_EQ(got.policies[0].tokens, got.full.tokens);
  EXPECT_LT(std::abs(got.policies[0].kl), 1e-5);
  std::vector<std::vector<float>> full_logits;
  generate(ids, count, &full_logits);
  for (std::size_t i = 1; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const KvFormats all = formats_of(tried[i], 1).front();
    capture::Sequence rounded = engine.sequence();
    capture::Engine::Step step{&rounded, ids};
    step.on_store = [&](auto, const auto& key, const auto& value) {
      for (const bool keys : {true, false}) {
        const auto& rows = keys ? key : value;
        auto* data = const_cast<float*>(static_cast<const float*>(rows.data));
        for (std::int64_t g = 0; g < rows.sizes[0]; ++g)
          for (std::int64_t t = 0; t < rows.sizes[1]; ++t) {
            std::vector<double> row;
            float* const at = data + g * rows.strides[0] + t * rows.strides[1];
            for (std::int64_t c = 0; c < rows.sizes[2]; ++c) row.push_back(at[c * rows.strides[2]]);
            round_row(row, keys ? all.keys : all.values);
            for (std::int64_t c = 0; c < rows.sizes[2]; ++c)
              at[c * rows.strides[2]] = static_cast<float>(row[static_cast<std::size_t>(c)]);
          }
      }
    };
    engine.run({&step, 1}, capture::Logits::last);
    const PromptFacts facts(needs_of({&tried[i], 1}), config, n);
    const NaiveDecode held(engine, rounded, n, make_plan(tried[i], facts, rounded, config));
    expect_decoded(got.policies[i], got.full.tokens, full_logits, held, rounded.logits(), 0.02);
  }
}

/// Formats whose first chunk is exact, as far as the checkpoint's heads can have them.
TEST_P(SimulationOf, ChunksOfAPromptAttendAsServersLetThem) {
  const Ids ids = random_ids(220, 8);
  const auto kl_of = [&](const std::vector<std::string>& texts) {
    std::vector<double> kls;
    for (const Outcome& one : run(ids, policies(texts), {.max_new = 6}).policies) {
      EXPECT_TRUE(std::isfinite(one.kl));
      kls.push_back(one.kl);
    }
    return kls;
  };
  // Where every token reads rounded numbers, chunks change nothing.
  const auto fp8 = kl_of({"fp8:prefill=rounded", "fp8:prefill=rounded,chunk=50"});
  EXPECT_EQ(fp8[0], fp8[1]);
  EXPECT_GT(std::abs(fp8[0] - kl_of({"fp8"})[0]), 0);
  if (!lack_of_format(KvFormat::turboquant_3bit_nc, config.head_dim).empty()) return;
  const auto turboquant =
      kl_of({"turboquant_3bit_nc",  // the prompt is exact
             "turboquant_3bit_nc:prefill=rounded", "turboquant_3bit_nc:prefill=rounded,chunk=220",
             "turboquant_3bit_nc:prefill=rounded,chunk=150",
             "turboquant_3bit_nc:prefill=rounded,chunk=60"});
  // Sums of attention are taken in another order, where a layer has sinks.
  EXPECT_NEAR(turboquant[0], turboquant[1], 1e-5);
  EXPECT_NEAR(turboquant[0], turboquant[2], 1e-5);
  EXPECT_NE(turboquant[0], turboquant[3]);
  EXPECT_NE(turboquant[3], turboquant[4]);
}

/// Queries are rounded where the layer is in a floating-point format, and nowhere else.
TEST_P(SimulationOf, QueriesInEightBits) {
  const Ids ids = random_ids(90, 9);
  const auto got = run(ids,
                       policies({"fp8", "fp8:queries=fp8", "q8_0", "q8_0:queries=fp8",
                                 "precision:keys=16,values=16,queries=fp8"}),
                       {.max_new = 6});
  EXPECT_NE(got.policies[0].kl, got.policies[1].kl);
  EXPECT_NEAR(got.policies[2].kl, got.policies[3].kl, 1e-5);
  EXPECT_LT(std::abs(got.policies[4].kl), 1e-5);
}

/// A layer's attention of the rows from `first` on, by the definition: [head][row][key].
std::vector<std::vector<std::vector<double>>> attention_of(const capture::AttentionInputs& in,
                                                           std::int64_t first) {
  const auto at = [](const AnyView<3>& of, std::int64_t a, std::int64_t b, std::int64_t c) {
    return static_cast<double>(static_cast<const float*>(
        of.data)[a * of.strides[0] + b * of.strides[1] + c * of.strides[2]]);
  };
  const std::int64_t heads = in.query.sizes[0], n = in.query.sizes[1], d = in.query.sizes[2],
                     group = heads / in.key.sizes[0];
  std::vector<std::vector<std::vector<double>>> out(static_cast<std::size_t>(heads));
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = first; i < n; ++i) {
      auto& row = out[static_cast<std::size_t>(h)].emplace_back(static_cast<std::size_t>(n));
      double sum = in.sinks.data ? std::exp(static_cast<double>(in.sinks.data[h])) : 0;
      for (std::int64_t j = in.window.first_key(i); j <= i; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < d; ++c)
          score += at(in.query, h, i, c) * at(in.key, h / group, j, c);
        score *= in.scale;
        if (in.softcap > 0) score = in.softcap * std::tanh(score / in.softcap);
        sum += row[static_cast<std::size_t>(j)] = std::exp(score);
      }
      for (double& share : row) share /= sum;
    }
  return out;
}

/// The first `certain` places, and those of the greatest sums, `most` in all.
std::vector<std::uint8_t> greatest_of(std::vector<double> sums, std::size_t certain,
                                      std::size_t most) {
  std::fill_n(sums.begin(), certain, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sums[a] > sums[b]; });
  std::vector<std::uint8_t> flags(sums.size());
  for (std::size_t i = 0; i < most; ++i) flags[order[i]] = 1;
  return flags;
}

/// Columns and diagonals are chosen by the last rows, and the prompt's tokens see no other keys.
TEST_P(SimulationOf, ReadsColumnsAndDiagonals) {
  const std::int64_t n = 90, count = 8, last = 8;
  const Ids ids = random_ids(n, 23);
  const auto tried = policies({"vertical-slash:vertical=20,slash=12,initial=2,recent=4,last=8",
                               "vertical-slash:vertical=20,slash=12,initial=2,recent=4,last=8+"
                               "streaming:initial=3,recent=30+kv4"});
  const auto got = run(ids, tried, {.max_new = count});
  std::vector<std::vector<float>> full_logits;
  generate(ids, count, &full_logits);
  capture::Sequence sparse = engine.sequence();
  capture::Engine::Step step{&sparse, ids};
  std::int64_t seen = 0, all = 0;
  step.seen = [&](const capture::AttentionInputs& in) {
    capture::SeenKeys keys;
    for (const auto& head : attention_of(in, n - last)) {
      std::vector<double> columns(static_cast<std::size_t>(n)), diagonals = columns;
      for (std::int64_t i = n - last; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const double share =
              head[static_cast<std::size_t>(i - n + last)][static_cast<std::size_t>(j)];
          columns[static_cast<std::size_t>(j)] += share;
          diagonals[static_cast<std::size_t>(i - j)] += share;
        }
      keys.columns.push_back(greatest_of(columns, 2, 20));
      keys.diagonals.push_back(greatest_of(diagonals, 4, 12));
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = in.window.first_key(i); j <= i; ++j) {
          ++all;
          seen += keys.columns.back()[static_cast<std::size_t>(j)] |
                  keys.diagonals.back()[static_cast<std::size_t>(i - j)];
        }
    }
    return keys;
  };
  engine.run({&step, 1}, capture::Logits::last);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const PromptFacts facts(needs_of({&tried[i], 1}), config, n);
    const NaiveDecode held(engine, sparse, n, make_plan(tried[i], facts, sparse, config));
    expect_decoded(got.policies[i], got.full.tokens, full_logits, held, sparse.logits(), 0.02);
    EXPECT_DOUBLE_EQ(got.policies[i].prompt_read,
                     static_cast<double>(seen) / static_cast<double>(all));
  }
  EXPECT_LT(got.policies[0].prompt_read, 0.8);
  EXPECT_GT(got.policies[0].kl, 0);
  EXPECT_EQ(got.full.prompt_read, 1);
}

/// What is seen of columns and diagonals that make a window is what a window lets see.
TEST_P(SimulationOf, SeesWhatColumnsAndDiagonalsName) {
  const std::int64_t n = 70;
  const auto read = [&](const auto& change) {
    capture::Sequence sequence = engine.sequence();
    capture::Engine::Step step{&sequence, random_ids(n, 24)};
    change(step);
    engine.run({&step, 1}, capture::Logits::last);
    return sequence.logits();
  };
  const auto windows = read([&](auto& step) {
    step.proximal.assign(static_cast<std::size_t>(config.n_layers), Proximity{3, 11});
  });
  const auto flags = [&](std::size_t first) {
    std::vector<std::uint8_t> of_head(static_cast<std::size_t>(n));
    std::fill_n(of_head.begin(), first, std::uint8_t{1});
    return std::vector<std::vector<std::uint8_t>>(static_cast<std::size_t>(config.n_heads),
                                                  of_head);
  };
  const auto named = read([&](auto& step) {
    step.seen = [&](const auto&) { return capture::SeenKeys{flags(3), flags(11)}; };
  });
  for (std::size_t i = 0; i < named.size(); ++i) EXPECT_NEAR(named[i], windows[i], logit_error);
}

/// A prompt that is read with shared keys is one whose tokens were decoded with them, one by one.
TEST_P(SimulationOf, SharesKeysWhileThePromptIsRead) {
  const std::int64_t n = 90, count = 6;
  const Ids ids = random_ids(n, 12);
  const auto tried = policies(
      {"pod:delta=0.3,initial=4,recent=20", "pod:delta=0.3,initial=4,recent=20,prefill=shared",
       "pod:delta=0.05,initial=2,recent=20,granularity=head,prefill=shared",
       "pod:delta=1,prefill=shared", "pod:delta=0,initial=4,recent=30,prefill=shared+kv4"});
  const auto got = run(ids, tried, {.max_new = count});
  EXPECT_EQ(got.policies[1].lowest, got.policies[0].lowest);
  EXPECT_EQ(got.policies[3].tokens, got.full.tokens);  // no layer shares
  EXPECT_LT(std::abs(got.policies[3].kl), 1e-5);
  std::vector<std::vector<float>> full_logits;
  generate(ids, count, &full_logits);
  bool shares = false;
  for (std::size_t i = 1; i < 3; ++i) {
    SCOPED_TRACE(tried[i].name);
    Pod pod = std::get<Pod>(tried[i].parts[0]);
    pod.lowest = got.policies[i].lowest;
    for (const auto& of_head : pod.lowest) shares |= of_head.back() != config.n_layers - 1;
    capture::Sequence first = engine.sequence();
    const capture::Engine::Step step{&first, {ids.front()}};
    engine.run({&step, 1}, capture::Logits::last);
    Plan plan;
    plan.heads = keep_all(config, 1);
    plan.pod = pod;
    NaiveDecode free(engine, first, 1, plan);
    std::vector<float> logits;
    for (std::int64_t j = 1; j < n; ++j) logits = free.step(ids[static_cast<std::size_t>(j)]);
    EXPECT_GT(expect_decoded(got.policies[i], got.full.tokens, full_logits, free, logits, 1e-3), 0);
  }
  EXPECT_TRUE(shares);
  EXPECT_THROW(run(ids, policies({"simlayerkv:threshold=0.4+pod:prefill=shared"}), {.max_new = 2}),
               Error);
}

/// Bytes kept, by the formulas.
TEST_P(SimulationOf, CountsTheBytesKept) {
  const std::int64_t n = 100;
  auto tried =
      policies({"streaming:initial=4,recent=20", "kv4", "streaming:initial=4,recent=20+kv2",
                "minicache:retain=30", "minicache:retain=30+kv4", "quest:page=8,budget=32",
                "lagkv:sink=4,lag=16,ratio=1/4", "share-values:delta=0,recent=30"});
  const std::size_t of_pod = tried.size(), of_values = of_pod - 1;
  Policy pod = parse_policy("pod:delta=0.5,initial=4,recent=24");
  auto& blocks = std::get<Pod>(pod.parts[0]).lowest;
  // Layers 0 and 1 are one block in all heads, layers 2 and 3 in those of the first KV head.
  const auto layers = static_cast<std::int64_t>(config.n_layers);
  const std::int64_t group = config.n_heads / config.n_kv_heads;
  for (std::int64_t h = 0; h < config.n_heads; ++h) {
    blocks.push_back({0, 0, 2, h < group ? 2 : 3});
    blocks.back().resize(static_cast<std::size_t>(layers));
  }
  tried.push_back(pod);
  ASSERT_TRUE(layers == 2 || layers == 4);
  const auto got = run(random_ids(n, 9), tried, {.max_new = 1});
  const auto d = static_cast<double>(config.head_dim), K = static_cast<double>(config.n_kv_heads);
  const double row = K * 4 * d;  // of a token in a layer
  const double code4 = 0.5 + 4.0 / 32, code2 = 0.25 + 4.0 / 32;
  const double lag = 4 + (100 - 4) / 16.0 * 4 - 4 + 16;  // five partitions of six are cut
  double full = 0;
  std::vector<double> want(tried.size(), 0);
  for (std::int64_t l = 0; l < layers; ++l) {
    // Windows of the model have 32 tokens: the last two partitions, none of the first tokens.
    ASSERT_TRUE(config.window[l] == 0 || config.window[l] == 32);
    const auto tokens = [&](double of_all, double of_window) {
      return config.window[l] > 0 ? of_window : of_all;
    };
    const bool merges = l >= 2;  // of two layers the second has no other to merge with
    full += tokens(100, 32) * row;
    want[0] += tokens(24, 20) * row;
    want[1] += tokens(100, 32) * row * code4 / 2;
    want[2] += tokens(24, 20) * row * code2 / 2;
    want[3] += 30 * row + tokens(70, 2) * (merges ? K * 2 * (d + 2) : row);
    want[4] += 30 * row * code4 / 2 +
               tokens(70, 2) * (merges ? K * 2 * (d * code4 / 2 + 2) : row * code4 / 2);
    want[5] += tokens(100, 32) * row;
    want[6] += tokens(lag, 16 + 4) * row;
    const double dropped = l == 1 ? K : l == 3 ? 1 : 0;
    want[of_pod] += tokens(100, 32) * row - dropped * tokens(100 - 4 - 24, 32 - 24) * 2 * d;
    want[of_values] += tokens(100, 32) * row;
    for (const auto& lowest : got.policies[of_values].lowest)
      if (lowest[static_cast<std::size_t>(l)] != l) want[of_values] -= tokens(70, 2) * (2 * d - 2);
  }
  for (std::size_t i = 0; i < tried.size(); ++i) {
    // How many of the merged tokens a window of the model reaches differs from prompt to prompt: 2
    // at least.
    if ((i == 3 || i == 4) && !own_windows(config.window).empty()) {
      EXPECT_LE(got.policies[i].kept_bytes, want[i] + 1e-6) << tried[i].name;
      continue;
    }
    EXPECT_NEAR(got.policies[i].kept_bytes, want[i], 1e-6) << tried[i].name;
    EXPECT_EQ(got.policies[i].full_bytes, full) << tried[i].name;
  }
}

/// What the notes of cuts say is held agrees, token for token, with the bytes that were counted.
TEST_P(SimulationOf, NotesWhatIsHeldWhileGenerating) {
  const std::int64_t n = 90, count = 60;
  const auto tried = policies({"streaming:initial=4,recent=20", "lagkv:sink=4,lag=16,ratio=1/4",
                               "snapkv:window=8,budget=30", "decoding:by=h2o,budget=30,every=8"});
  const std::size_t cuts_of[] = {0, 4, 0, 7};
  const auto got =
      run(random_ids(n, 5), tried, {.max_new = count, .compare = false, .positions = true});
  for (std::size_t i = 0; i < tried.size(); ++i) {
    SCOPED_TRACE(tried[i].name);
    const Outcome& outcome = got.policies[i];
    if (config.window[0] == 0) {
      EXPECT_EQ(outcome.later_cuts.size(), cuts_of[i]);
    }
    ASSERT_EQ(outcome.cut.read, n);
    ASSERT_EQ(std::ssize(outcome.held_bytes), count - 1);
    const HeldAt* last = &outcome.cut;
    std::size_t next = 0;
    for (std::int64_t read = n; read < n + count - 1; ++read) {
      while (next < outcome.later_cuts.size() && outcome.later_cuts[next].read <= read)
        last = &outcome.later_cuts[next++];
      double bytes = 0;  // while the token at `read` is read, which is held by then
      for (std::size_t l = 0; l < last->positions.size(); ++l) {
        const std::int64_t seen =
            config.window[l] > 0 ? std::max<std::int64_t>(0, read + 1 - config.window[l]) : 0;
        for (const auto& head : last->positions[l]) {
          std::int64_t tokens = read + 1 - std::max(last->read, seen);
          for (const auto& [begin, end] : head)
            tokens += std::max<std::int64_t>(0, end - std::max(begin, seen));
          bytes += static_cast<double>(tokens * 4 * config.head_dim);
        }
      }
      EXPECT_EQ(outcome.held_bytes[read - n], bytes) << "at " << read;
    }
  }
}

/// A window that rolls is cut at every token; of many cuts some are noted.
TEST_P(SimulationOf, NotesSomeCutsOfARollingWindow) {
  const std::int64_t n = 40;
  const auto tried = policies({"streaming:initial=2,recent=6+rolling"});
  for (const std::int64_t count : {50, 600}) {
    const auto got =
        run(random_ids(n, 5), tried, {.max_new = count, .compare = false, .positions = true});
    const auto& cuts = got.policies[0].later_cuts;
    if (count == 50) {
      EXPECT_EQ(std::ssize(cuts), count - 1);
    }
    EXPECT_GE(cuts.size(), 49u);
    EXPECT_LT(cuts.size(), 256u);
    for (const auto& [read, positions] : cuts)
      for (const auto& layer : positions)
        for (const auto& head : layer) {
          EXPECT_EQ(head.back(), (Range{read - 6, read}));
        }
  }
}

/// A policy that draws layers several times is judged on each prompt by the mean of its draws.
TEST_P(SimulationOf, JudgesDrawsByTheirMean) {
  const auto judged = [&](const std::vector<std::string>& texts) {
    std::vector<Question> questions(2);
    for (std::size_t i = 0; i < questions.size(); ++i) {
      questions[i].tokens = random_ids(80, 30 + i);
      questions[i].max_new = 4;
    }
    return evaluate(engine, std::move(questions), policies(texts), {}).judged;
  };
  const std::string layers = "random-layers:layers=1,initial=2,recent=10,";
  const auto mean = judged({"streaming:recent=20", layers + "seed=7,draws=3", "kv4"});
  const auto draws = judged({layers + "seed=7,draws=1", layers + "seed=8,draws=1",
                             layers + "seed=9,draws=1", "streaming:recent=20", "kv4"});
  ASSERT_EQ(mean.size(), 3u);
  for (std::size_t q = 0; q < 2; ++q) {
    double kl = 0, kept = 0;
    for (std::size_t draw = 0; draw < 3; ++draw) {
      kl += draws[draw][q].outcome.kl / 3;
      kept += draws[draw][q].outcome.kept_bytes / 3;
    }
    EXPECT_NEAR(mean[1][q].outcome.kl, kl, 1e-6);
    EXPECT_NEAR(mean[1][q].outcome.kept_bytes, kept, 1e-6 * kept);
    EXPECT_EQ(mean[1][q].outcome.tokens, draws[0][q].outcome.tokens);
    EXPECT_EQ(mean[0][q].outcome.kept_bytes, draws[3][q].outcome.kept_bytes);
    EXPECT_EQ(mean[2][q].outcome.kept_bytes, draws[4][q].outcome.kept_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, SimulationOf, testing::ValuesIn(kCheckpoints),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace kvatlas::calibrate
