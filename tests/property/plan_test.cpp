// SPDX-License-Identifier: Apache-2.0
// What plans keep of a prompt, against attention computed in double from the engine's own queries
// and keys, and the lengths that follow while decoding.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "analyzer/config/rope.hpp"
#include "calibrate/policy/read_apart.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations.hpp"
#include "kernels/lag_scores.hpp"
#include "tests/property/simulation_fixture.hpp"
#include "tests/support/dynamickv_paper.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate {
namespace {

/// Causal attention of one layer in double: [head][query][key].
using Attention = std::vector<std::vector<std::vector<double>>>;

Attention attention_of(const capture::AttentionInputs& in) {
  const auto floats = [](const AnyView<3>& of) {
    return View<const float, 3>(static_cast<const float*>(of.data), of.sizes, of.strides);
  };
  const auto query = floats(in.query), key = floats(in.key);
  const std::int64_t group = query.sizes[0] / key.sizes[0], n = query.sizes[1];
  Attention out;
  for (std::int64_t h = 0; h < query.sizes[0]; ++h) {
    auto& of_head = out.emplace_back();
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<double> row(static_cast<std::size_t>(n), 0.0);
      double sum = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        if (j < in.window.first_key(i)) continue;
        double score = 0;
        for (std::int64_t c = 0; c < query.sizes[2]; ++c)
          score += static_cast<double>(query(h, i, c)) * static_cast<double>(key(h / group, j, c));
        score *= in.scale;
        if (in.softcap > 0) score = in.softcap * std::tanh(score / in.softcap);
        sum += row[j] = std::exp(score);
      }
      if (in.sinks.data) sum += std::exp(static_cast<double>(in.sinks(h)));
      for (double& value : row) value /= sum;
      of_head.push_back(std::move(row));
    }
  }
  return out;
}

class PlanOf : public OnCheckpoint {
 protected:
  static constexpr std::int64_t kTokens = 96;
  const std::vector<std::int64_t> ids = random_ids(kTokens, 11);

  std::vector<Attention> attention() {
    std::vector<Attention> layers;
    capture::Sequence sequence = engine.sequence();
    const capture::Engine::Step step{&sequence, ids};
    engine.run({&step, 1}, capture::Logits::last,
               {.attention = [&](const auto& in) { layers.push_back(attention_of(in)); },
                .logits = {},
                .progress = {}});
    return layers;
  }

  Plan plan_of(const std::string& text) {
    const auto policy = policies({text});
    const Prefilled prompt = prefill(ids, policy);
    return make_plan(policy[0], prompt.facts, prompt.sequence, config);
  }

  /// The mean over the KV head's query heads.
  template <class ScoreOfHead>
  std::vector<double> of_group(std::int64_t g, ScoreOfHead&& score) const {
    const std::int64_t group = config.n_heads / config.n_kv_heads;
    std::vector<double> mean(kTokens, 0.0);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
      const std::vector<double> one = score(static_cast<std::size_t>(h));
      for (std::size_t j = 0; j < one.size(); ++j) mean[j] += one[j] / static_cast<double>(group);
    }
    return mean;
  }

  static constexpr std::int64_t kWindow = 8, kBefore = kTokens - kWindow;
  /// The scores of the tokens before a window of 8, pooled over 5 positions.
  static std::vector<double> by_window_of_head(const Attention& layer, std::size_t h) {
    std::vector<double> mean(static_cast<std::size_t>(kBefore), 0.0), pooled(mean);
    for (std::size_t i = kBefore; i < kTokens; ++i)
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += layer[h][i][j] / kWindow;
    for (std::int64_t j = 0; j < kBefore; ++j)
      for (std::int64_t k = std::max<std::int64_t>(0, j - 2); k <= std::min(kBefore - 1, j + 2);
           ++k)
        pooled[j] += mean[k] / 5;
    return pooled;
  }
  std::vector<double> by_window(const Attention& layer, std::int64_t g) const {
    return of_group(g, [&](std::size_t h) { return by_window_of_head(layer, h); });
  }

  /// Of positions before `end`, `count` are kept and none left out scores higher.
  static void expect_best(const HeadCut& cut, const std::vector<double>& scores, std::int64_t end,
                          std::int64_t count) {
    EXPECT_TRUE(cut.ranges.empty());
    EXPECT_TRUE(std::is_sorted(cut.tokens.begin(), cut.tokens.end()));
    const std::set<std::int64_t> kept(cut.tokens.begin(), cut.tokens.end());
    ASSERT_EQ(kept.size(), cut.tokens.size());
    ASSERT_EQ(std::distance(kept.begin(), kept.lower_bound(end)), count);
    for (std::int64_t j = end; j < kTokens; ++j) EXPECT_TRUE(kept.contains(j)) << j;
    double least = 1e300, most = -1e300;
    for (std::int64_t j = 0; j < end; ++j) {
      const double score = scores[j];
      if (kept.contains(j))
        least = std::min(least, score);
      else
        most = std::max(most, score);
    }
    EXPECT_GE(least, most - 1e-4);
  }
};

TEST_P(PlanOf, PoliciesThatReadInPlaceCopyNothing) {
  const auto copies = [&](const std::string& text) {
    const Plan plan = plan_of(text);
    std::int64_t tokens = 0;
    for (const auto& layer : plan.heads)
      for (const auto& head : layer) tokens += head.copied();
    return tokens > 0 || !plan.formats.empty();
  };
  for (const std::string text :
       {"streaming:initial=2,recent=8", "simlayerkv:threshold=0.2,initial=2,recent=8",
        "pod:delta=0.5,initial=2,recent=8", "pyramid-layers:layers=1,initial=2,recent=8",
        "quest:page=8,budget=32"}) {
    EXPECT_TRUE(reads_in_place(parse_policy(text))) << text;
    EXPECT_FALSE(copies(text)) << text;
  }
  for (const std::string text : {"snapkv:window=8,budget=31", "lagkv:sink=2,lag=8,ratio=1/2",
                                 "streaming:initial=2,recent=8+kv4", "full+kv2"}) {
    EXPECT_FALSE(reads_in_place(parse_policy(text))) << text;
    EXPECT_TRUE(copies(text)) << text;
  }
}

TEST_P(PlanOf, H2oKeepsTheHeaviestColumnsAndTheLast) {
  const auto layers = attention();
  const Plan plan = plan_of("h2o:budget=31"), few = plan_of("h2o:budget=31,heavy=5");
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
      SCOPED_TRACE(layer);
      const auto sums = of_group(g, [&](std::size_t h) {
        std::vector<double> columns(kTokens, 0.0);
        for (const auto& row : layers[layer][h])
          for (std::size_t j = 0; j < row.size(); ++j) columns[j] += row[j];
        return columns;
      });
      expect_best(plan.heads[layer][g], sums, kTokens - 16, 15);
      expect_best(few.heads[layer][g], sums, kTokens - 26, 5);
    }
}

TEST_P(PlanOf, TovaKeepsWhatTheLastTokenAttendsTo) {
  const auto layers = attention();
  const Plan plan = plan_of("tova:budget=31");
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    SCOPED_TRACE(layer);
    std::vector<double> mean(kTokens, 0.0);
    for (const auto& of_head : layers[layer])
      for (std::size_t j = 0; j < mean.size(); ++j)
        mean[j] += of_head.back()[j] / static_cast<double>(config.n_heads);
    for (const HeadCut& cut : plan.heads[layer]) {
      expect_best(cut, mean, kTokens - 1, 30);
      EXPECT_EQ(cut, plan.heads[layer].front());
    }
  }
}

/// Where the model itself hides nothing from the last token.
TEST_P(PlanOf, ABudgetWhileDecodingCutsThePromptAsTheSelectionOfItsScoreDoes) {
  const std::pair<const char*, const char*> same[] = {
      {"decoding:budget=31,window=8,every=8,kernel=5", "snapkv:window=8,budget=31,kernel=5"},
      {"decoding:budget=31,by=h2o", "h2o:budget=31"},
      {"decoding:budget=31,by=tova", "tova:budget=31"},
      {"decoding:budget=31,by=keydiff", "keydiff:budget=31"},
      {"simlayerkv:threshold=1+decoding:budget=31,by=keydiff,prompt=whole", "full"}};
  for (const auto& [decoding, selection] : same) {
    const Plan plan = plan_of(decoding), wanted = plan_of(selection);
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
      for (std::int64_t g = 0; g < config.n_kv_heads && config.window[layer] == 0; ++g) {
        SCOPED_TRACE(str(decoding, ", layer ", layer, ", head ", g));
        EXPECT_EQ(plan.heads[layer][g].tokens, wanted.heads[layer][g].tokens);
      }
  }
  const Plan streaming = plan_of("decoding:budget=31,by=streaming,initial=5");
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    for (const HeadCut& cut : streaming.heads[layer]) {
      if (config.window[layer] > 0 && config.window[layer] <= 31) continue;
      const std::int64_t first =
          config.window[layer] == 0 ? 0 : std::max<std::int64_t>(0, kTokens - config.window[layer]);
      std::vector<std::int64_t> tokens;
      for (std::int64_t j = 0; j < 5; ++j) tokens.push_back(first + j);
      for (std::int64_t j = kTokens - 26; j < kTokens; ++j) tokens.push_back(j);
      EXPECT_EQ(cut.tokens, tokens) << layer;
    }
}

TEST_P(PlanOf, KeyDiffKeepsTheKeysThatAreLeastLikeTheirMean) {
  const auto policy = policies({"keydiff:budget=31"});
  const Prefilled prompt = prefill(ids, policy);
  const Plan plan = make_plan(policy[0], prompt.facts, prompt.sequence, config);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const auto of = prompt.sequence.cache(layer).key;
    const View<const float, 3> key(static_cast<const float*>(of.data), of.sizes, of.strides);
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
      SCOPED_TRACE(str("layer ", layer, ", head ", g));
      const auto at = [&](std::int64_t j, std::int64_t c) {
        return static_cast<double>(key(g, j, c));
      };
      std::vector<double> length(kTokens), mean(static_cast<std::size_t>(key.sizes[2]));
      for (std::int64_t j = 0; j < kTokens; ++j) {
        for (std::int64_t c = 0; c < key.sizes[2]; ++c) length[j] += at(j, c) * at(j, c);
        length[j] = std::sqrt(length[j]);
        for (std::int64_t c = 0; c < key.sizes[2]; ++c) mean[c] += at(j, c) / length[j];
      }
      // The mean's own length is the same for all of them, and so scales no score.
      std::vector<double> unlike(kTokens);
      for (std::int64_t j = 0; j < kTokens; ++j)
        for (std::int64_t c = 0; c < key.sizes[2]; ++c)
          unlike[j] -= at(j, c) / length[j] * mean[c] / kTokens;
      expect_best(plan.heads[layer][g], unlike, kTokens, 31);
    }
  }
}

/// [row][column]
using Matrix = std::vector<std::vector<double>>;

/// The mean of RoPE's rotations over `n` positions from `first` on, of columns.
Matrix mean_rotation(const model::Config& config, std::int64_t layer, std::int64_t first,
                     std::int64_t n) {
  const auto d = static_cast<std::size_t>(config.head_dim);
  Matrix out(d, std::vector<double>(d, 0.0));
  const bool local = config.window[layer] > 0 && config.local_rope, turns = config.has_rope(layer);
  const auto frequencies = model::rope_frequencies(
      local ? *config.local_rope : config.rope, local ? config.local_rotary_dim : config.rotary_dim,
      config.context_length, first + n);
  const std::size_t half = turns ? frequencies.inverse_frequency.size() : 0;
  for (std::size_t i = 2 * half; i < d; ++i) out[i][i] = 1;
  for (std::size_t i = 0; i < half; ++i)
    for (std::int64_t p = first; p < first + n; ++p) {
      const double angle = static_cast<double>(p) * frequencies.inverse_frequency[i];
      const double cosine = std::cos(angle) * frequencies.scale / static_cast<double>(n),
                   sine = std::sin(angle) * frequencies.scale / static_cast<double>(n);
      out[i][i] += cosine;
      out[i + half][i + half] += cosine;
      out[i][i + half] -= sine;
      out[i + half][i] += sine;
    }
  return out;
}

TEST_P(PlanOf, ExpectedAttentionKeepsWhatLaterQueriesWouldAttendTo) {
  constexpr std::int64_t kSink = 3, kFuture = 40;
  const auto tried = policies({"expected-attention:budget=31,sink=3,future=40",
                               "expected-attention:budget=31,sink=3,future=40,covariance=0",
                               "expected-attention:budget=31,sink=3,future=40,values=0",
                               "expected-attention:budget=31,sink=3,future=40,epsilon=0.01"});
  const Prefilled prompt = prefill(ids, tried);
  std::vector<Plan> plans;
  for (const auto& policy : tried)
    plans.push_back(make_plan(policy, prompt.facts, prompt.sequence, config));
  const auto floats = [](const AnyView<3>& of) {
    return View<const float, 3>(static_cast<const float*>(of.data), of.sizes, of.strides);
  };
  const auto d = static_cast<std::size_t>(config.head_dim);
  const std::int64_t group = config.n_heads / config.n_kv_heads;

  const auto check = [&](std::int64_t layer, const View<const float, 3>& query) {
    const auto cache = prompt.sequence.cache(layer);
    const auto key = floats(cache.key), value = floats(cache.value);
    const Matrix rotation = mean_rotation(config, layer, kTokens, kFuture);
    // [head][token] by the mean alone, and what the covariance adds.
    Matrix by_mean, by_spread;
    for (std::int64_t h = 0; h < config.n_heads; ++h) {
      std::vector<double> mean(d, 0.0), turned(d, 0.0);
      for (std::int64_t i = kSink; i < kTokens; ++i)
        for (std::size_t c = 0; c < d; ++c)
          mean[c] += static_cast<double>(query(h, i, c)) / (kTokens - kSink);
      auto& logits = by_mean.emplace_back(static_cast<std::size_t>(kTokens), 0.0);
      auto& more = by_spread.emplace_back(static_cast<std::size_t>(kTokens), 0.0);
      for (std::size_t r = 0; r < d; ++r)
        for (std::size_t c = 0; c < d; ++c) turned[r] += rotation[r][c] * mean[c];
      for (std::int64_t j = kSink; j < kTokens; ++j) {
        // k R cov R' k' is the mean of (q - mean) R' k', squared.
        std::vector<double> back(d, 0.0);
        for (std::size_t r = 0; r < d; ++r) {
          logits[j] += turned[r] * static_cast<double>(key(h / group, j, r));
          for (std::size_t c = 0; c < d; ++c)
            back[c] += rotation[r][c] * static_cast<double>(key(h / group, j, r));
        }
        for (std::int64_t i = kSink; i < kTokens; ++i) {
          double apart = 0;
          for (std::size_t c = 0; c < d; ++c)
            apart += (static_cast<double>(query(h, i, c)) - mean[c]) * back[c];
          more[j] += apart * apart / (kTokens - kSink) / 2;
        }
        logits[j] *= config.attention_scale;
        more[j] *= config.attention_scale * config.attention_scale;
      }
    }
    for (std::size_t i = 0; i < tried.size(); ++i)
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        SCOPED_TRACE(str(tried[i].name, ", layer ", layer, ", head ", g));
        const auto& part = std::get<ExpectedAttention>(tried[i].parts[0]);
        auto scores = of_group(g, [&](std::size_t h) {
          std::vector<double> shares(static_cast<std::size_t>(kTokens), 0.0);
          double sum = 0;
          for (std::int64_t j = kSink; j < kTokens; ++j)
            sum += shares[j] = std::exp(by_mean[h][j] + (part.covariance ? by_spread[h][j] : 0.0));
          for (double& share : shares) share /= sum;
          return shares;
        });
        for (std::int64_t j = 0; j < kTokens; ++j) {
          double squares = 0;
          for (std::size_t c = 0; c < d; ++c)
            squares += std::pow(static_cast<double>(value(g, j, c)), 2);
          if (part.values) scores[j] = (scores[j] + part.epsilon) * std::sqrt(squares);
          if (j < kSink) scores[j] = 1e300;
        }
        expect_best(plans[i].heads[layer][g], scores, kTokens, 31);
      }
  };
  capture::Sequence sequence = engine.sequence();
  const capture::Engine::Step step{&sequence, ids};
  engine.run(
      {&step, 1}, capture::Logits::last,
      {.queries = [&](auto layer, auto, const auto& query) { check(layer, floats(query)); }});
}

TEST_P(PlanOf, TriAttentionKeepsWhatTheMeanQueryWouldAttendTo) {
  const Plan plan = plan_of("decoding:by=triattention,budget=31");
  const std::int64_t group = config.n_heads / config.n_kv_heads;
  const auto check = [&](std::int64_t layer, const AnyView<3>& queries,
                         const capture::Sequence& sequence) {
    const auto floats = [](const AnyView<3>& of) {
      return View<const float, 3>(static_cast<const float*>(of.data), of.sizes, of.strides);
    };
    const auto query = floats(queries), key = floats(sequence.cache(layer).key);
    Matrix rotation = mean_rotation(config, layer, kTokens + 1, 1);
    for (std::int64_t behind = 2; behind <= 65536; behind *= 2) {
      const Matrix more = mean_rotation(config, layer, kTokens + behind, 1);
      for (std::size_t r = 0; r < more.size(); ++r)
        for (std::size_t c = 0; c < more.size(); ++c) rotation[r][c] += more[r][c];
    }
    const bool local = config.window[layer] > 0 && config.local_rope;
    const std::int64_t half =
        !config.has_rope(layer) ? 0 : (local ? config.local_rotary_dim : config.rotary_dim) / 2;
    const double scale = half == 0 ? 1
                                   : std::hypot(mean_rotation(config, layer, 1, 1)[0][0],
                                                mean_rotation(config, layer, 1, 1)[half][0]);
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
      SCOPED_TRACE(str("layer ", layer, ", head ", g));
      const std::int64_t first = config.key_window(layer).first_key(kTokens - 1);
      std::vector<double> greatest(kTokens, -1e300);
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
        std::vector<double> mean(rotation.size()), longer(static_cast<std::size_t>(half));
        for (std::int64_t i = 0; i < kTokens; ++i) {
          for (std::size_t c = 0; c < mean.size(); ++c)
            mean[c] += static_cast<double>(query(h, i, c)) / kTokens;
          for (std::int64_t f = 0; f < half; ++f)
            longer[f] += std::hypot(query(h, i, f), query(h, i, f + half)) / kTokens;
        }
        for (std::int64_t f = 0; f < half; ++f) longer[f] -= std::hypot(mean[f], mean[f + half]);
        std::vector<double> scores(kTokens);
        double sum = 0, squares = 0;
        for (std::int64_t j = first; j < kTokens; ++j) {
          for (std::size_t r = 0; r < mean.size(); ++r)
            for (std::size_t c = 0; c < mean.size(); ++c)
              scores[j] += rotation[r][c] / 17 * mean[c] * static_cast<double>(key(g, j, r));
          for (std::int64_t f = 0; f < half; ++f)
            scores[j] += scale * longer[f] * std::hypot(key(g, j, f), key(g, j, f + half));
          sum += scores[j] / static_cast<double>(kTokens - first);
        }
        for (std::int64_t j = first; j < kTokens; ++j)
          squares += (scores[j] - sum) * (scores[j] - sum) / static_cast<double>(kTokens - first);
        for (std::int64_t j = first; j < kTokens; ++j)
          greatest[j] = std::max(greatest[j], (scores[j] - sum) / std::sqrt(squares));
      }
      if (kTokens - first > 31)
        expect_best(plan.heads[layer][g], greatest, kTokens, 31);
      else
        EXPECT_TRUE(plan.heads[layer][g].tokens.empty());
    }
  };
  // The queries of the prompt, beside the keys that were kept of it.
  const auto policy = policies({"full"});
  const Prefilled prompt = prefill(ids, policy);
  capture::Sequence sequence = engine.sequence();
  const capture::Engine::Step step{&sequence, ids};
  engine.run({&step, 1}, capture::Logits::last,
             {.queries = [&](auto layer, auto, const auto& query) {
               check(layer, query, prompt.sequence);
             }});
}

TEST_P(PlanOf, SelectionsKeepTheBestByTheWindow) {
  const auto layers = attention();
  for (const std::string name : {"snapkv", "pyramidkv", "dynamickv"}) {
    SCOPED_TRACE(name);
    const Plan plan = plan_of(name + ":window=8,budget=28,kernel=5");
    ASSERT_EQ(plan.budgets.size(), layers.size());
    if (name == "snapkv") {
      EXPECT_EQ(plan.budgets, std::vector<std::int64_t>(layers.size(), 20));
    }
    if (name == "pyramidkv") {
      EXPECT_EQ(plan.budgets, pyramid_budgets(20, config.n_layers));
      EXPECT_EQ(plan.budgets.front(), 39);
      EXPECT_EQ(plan.budgets.back(), 1);
    }
    EXPECT_EQ(std::accumulate(plan.budgets.begin(), plan.budgets.end(), std::int64_t{0}),
              20 * config.n_layers);
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        const auto scores = by_window(layers[layer], g);
        expect_best(plan.heads[layer][g], scores, kBefore, plan.budgets[layer]);
      }
  }
}

TEST_P(PlanOf, AdaKvSharesTheBudgetOfALayerAmongItsHeads) {
  const auto layers = attention();
  constexpr std::int64_t kBudget = 28;
  for (const std::int64_t safe : {0, 14, 21, 28}) {  // less than the window, or more
    const Plan plan = plan_of(
        str("adakv:window=8,budget=28,kernel=5,safeguard=", static_cast<double>(safe) / kBudget));
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      SCOPED_TRACE(str("safe ", safe, ", layer ", layer));
      std::int64_t kept = 0;
      double least_shared = 1e300, most_left = -1e300;
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        const HeadCut& cut = plan.heads[layer][g];
        const auto scores = by_window(layers[layer], g);
        const auto count = std::ssize(cut.tokens) - kWindow;
        EXPECT_GE(std::ssize(cut.tokens), safe);
        expect_best(cut, scores, kBefore, count);
        kept += count;
        auto ranked = scores;
        ranked.resize(static_cast<std::size_t>(kBefore));
        std::sort(ranked.begin(), ranked.end(), std::greater<>());
        if (count > std::max<std::int64_t>(0, safe - kWindow))
          least_shared = std::min(least_shared, ranked[count - 1]);
        if (count < kBefore) most_left = std::max(most_left, ranked[count]);
      }
      EXPECT_EQ(kept, (kBudget - kWindow) * config.n_kv_heads);
      EXPECT_GE(least_shared, most_left - 1e-4);
    }
  }
}

TEST_P(PlanOf, HeadKvSharesTheBudgetAmongAllHeads) {
  const auto layers = attention();
  for (const std::int64_t safe : {0, 20}) {
    SCOPED_TRACE(safe);
    const Plan plan = plan_of(
        str("headkv:window=8,budget=28,kernel=5,safeguard=", static_cast<double>(safe) / 28));
    std::int64_t kept = 0;
    double least_shared = 1e300, most_left = -1e300;
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        const HeadCut& cut = plan.heads[layer][g];
        auto scores = by_window(layers[layer], g);
        const auto count = std::ssize(cut.tokens) - kWindow;
        EXPECT_GE(std::ssize(cut.tokens), safe);
        expect_best(cut, scores, kBefore, count);
        kept += count;
        scores.resize(static_cast<std::size_t>(kBefore));
        std::sort(scores.begin(), scores.end(), std::greater<>());
        if (count > std::max<std::int64_t>(0, safe - kWindow))
          least_shared = std::min(least_shared, scores[count - 1]);
        if (count < kBefore) most_left = std::max(most_left, scores[count]);
      }
    EXPECT_EQ(kept, 20 * config.n_kv_heads * config.n_layers);
    EXPECT_GE(least_shared, most_left - 1e-4);
  }
}

TEST_P(PlanOf, HeadKvWithBudgetsOfHeads) {
  const auto layers = attention();
  auto policy = policies({"headkv:window=8,budget=28,kernel=5"});
  auto& fixed = std::get<HeadKv>(policy[0].parts.at(0)).fixed.emplace();
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    for (auto& row = fixed.emplace_back(); std::ssize(row) < config.n_kv_heads;)
      row.push_back((layer * 31 + std::ssize(row) * 57) %
                    (kBefore + 40));  // some more than there are
  const Prefilled prompt = prefill(ids, policy);
  const Plan plan = make_plan(policy[0], prompt.facts, prompt.sequence, config);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g)
      expect_best(plan.heads[layer][g], by_window(layers[layer], g), kBefore,
                  std::min(fixed[layer][g], kBefore));
  fixed.pop_back();
  EXPECT_THAT(testing_support::error_of(
                  [&] { make_plan(policy[0], prompt.facts, prompt.sequence, config); }),
              testing::HasSubstr("the policy has budgets for"));
}

TEST_P(PlanOf, ChunkKvKeepsTheBestChunks) {
  const auto layers = attention();
  // The last chunk is whole, lies in the window, or lies partly in it.
  for (const std::int64_t chunk : {8, 7, 34}) {
    const Plan plan = plan_of(str("chunkkv:window=8,budget=40,kernel=5,chunk=", chunk));
    const auto policy = parse_policy(str("chunkkv:budget=40,chunk=", chunk));
    const std::int64_t kept = std::get<ChunkKv>(policy.parts[0]).chunks_kept(kTokens);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      SCOPED_TRACE(str("chunks of ", chunk, ", layer ", layer));
      std::vector<double> sums(kTokens, 0.0);
      double greatest = 0;
      for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
        const auto scores = by_window(layers[layer], g);
        for (std::int64_t j = 0; j < kBefore; ++j) {
          sums[j] += scores[j];
          greatest = std::max(greatest, scores[j]);
        }
      }
      for (std::int64_t j = kBefore; j < kTokens; ++j)
        sums[j] = (greatest + 1) * static_cast<double>(config.n_kv_heads);
      const HeadCut& cut = plan.heads[layer].front();
      const std::set<std::int64_t> tokens(cut.tokens.begin(), cut.tokens.end());
      EXPECT_TRUE(std::is_sorted(cut.tokens.begin(), cut.tokens.end()));
      std::int64_t chunks = 0;
      double least = 1e300, most = -1e300;
      for (std::int64_t first = 0; first < kTokens; first += chunk) {
        const std::int64_t end = std::min(first + chunk, kTokens);
        double mean = 0;
        for (std::int64_t j = first; j < end; ++j) {
          mean += sums[j] / static_cast<double>(end - first);
          EXPECT_EQ(tokens.contains(j), tokens.contains(first)) << j;
        }
        chunks += tokens.contains(first) ? 1 : 0;
        if (tokens.contains(first))
          least = std::min(least, mean);
        else
          most = std::max(most, mean);
      }
      EXPECT_EQ(chunks, kept);
      EXPECT_GE(least, most - 1e-4);
      for (const HeadCut& other : plan.heads[layer]) EXPECT_EQ(other, cut);
    }
  }
}

TEST_P(PlanOf, CriticalKvWeighsScoresByWhatValuesGive) {
  const auto layers = attention();
  constexpr std::int64_t kFirst = 14;
  constexpr double kEpsilon = 0.02;
  const auto policy = policies({"criticalkv:window=8,budget=28,kernel=5,share=0.5,epsilon=0.02"});
  const Prefilled prompt = prefill(ids, policy);
  const Plan plan = make_plan(policy[0], prompt.facts, prompt.sequence, config);
  const std::int64_t group = config.n_heads / config.n_kv_heads;
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const auto of = prompt.sequence.cache(layer).value;
    const View<const float, 3> value(static_cast<const float*>(of.data), of.sizes, of.strides);
    const model::Weight& weight = engine.model().layers()[layer].output;
    const std::int64_t columns = weight.columns(), size = columns / config.n_heads;
    std::vector<float> output(static_cast<std::size_t>(weight.rows() * columns));
    model::read_rows(weight, 0, weight.rows(), output.data());
    double greatest = 0;
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g)
      for (const double score : by_window(layers[layer], g)) greatest = std::max(greatest, score);
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
      SCOPED_TRACE(str("layer ", layer, ", head ", g));
      auto scores = by_window(layers[layer], g);
      for (std::int64_t j = kBefore; j < kTokens; ++j) scores[j] = greatest + 1;
      // The first tokens of the window have the best scores, and of equal ones the earlier is kept.
      std::vector<std::int64_t> order(static_cast<std::size_t>(kTokens));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](auto a, auto b) { return scores[a] > scores[b]; });
      for (std::int64_t j = 0; j < kTokens; ++j) {
        double magnitudes = 0;
        for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
          for (std::int64_t r = 0; r < weight.rows(); ++r) {
            double sum = 0;
            for (std::int64_t c = 0; c < size; ++c)
              sum += static_cast<double>(output[r * columns + h * size + c]) *
                     static_cast<double>(value(g, j, c));
            magnitudes += std::abs(sum) / static_cast<double>(group);
          }
        scores[j] = (scores[j] + kEpsilon) * magnitudes;
      }
      for (std::int64_t i = 0; i < kFirst; ++i) scores[order[i]] = 1e300;
      expect_best(plan.heads[layer][g], scores, kTokens, 28);
    }
  }
}

/// Text and words that the prompt has, [layer][KV head][token] the greatest attention while the
/// prompt is repeated in parts of so many tokens: of a run over the prompt and the request at once.
std::vector<std::vector<std::vector<double>>> read_while_repeated(
    capture::Engine& engine, const std::vector<std::int64_t>& prompt,
    const Repetition& repetition) {
  const model::Config& config = engine.model().config();
  const auto n = static_cast<std::int64_t>(prompt.size());
  std::vector<std::vector<std::vector<double>>> greatest(
      static_cast<std::size_t>(config.n_layers),
      {static_cast<std::size_t>(config.n_kv_heads), std::vector<double>(prompt.size(), 0.0)});
  const std::int64_t text = kRepeat.before_text;
  for (std::int64_t begin = text; begin < n; begin += repetition.chunk) {
    const std::int64_t end = std::min(n, begin + repetition.chunk);
    std::vector<std::int64_t> asked = begin == text ? kRepeat.all : kRepeat.part;
    if (begin > text)
      for (std::int64_t j = std::max(begin - repetition.chunk, begin - 8); j < begin; ++j)
        asked.push_back(prompt[j]);
    asked.insert(asked.end(), kRepeat.end.begin(), kRepeat.end.end());
    asked.insert(asked.end(), prompt.begin() + begin, prompt.begin() + end);
    asked.insert(asked.begin(), prompt.begin(), prompt.end());
    const auto is_seen = [&](std::int64_t j) {
      return (j < std::min(repetition.sink, begin)) || (begin <= j && j < end) || j >= n;
    };
    capture::Sequence sequence = engine.sequence();
    const capture::Engine::Step step{&sequence, asked};
    engine.run({&step, 1}, capture::Logits::none, {.attention = [&](const auto& in) {
                 const Attention attention = attention_of(in);
                 for (std::size_t h = 0; h < attention.size(); ++h)
                   for (std::size_t i = prompt.size(); i < asked.size(); ++i) {
                     const auto& row = attention[h][i];
                     // The share of what is not seen is given to what is, a sink among it.
                     double seen =
                         in.sinks.data ? 1 - std::accumulate(row.begin(), row.end(), 0.0) : 0;
                     for (std::int64_t j = 0; j < std::ssize(asked); ++j)
                       if (is_seen(j)) seen += row[j];
                     auto& best = greatest[in.layer][h * config.n_kv_heads / config.n_heads];
                     for (std::int64_t j = begin; j < end; ++j)
                       best[j] = std::max(best[j], row[j] / seen);
                   }
               }});
  }
  return greatest;
}

TEST_P(PlanOf, KvZipKeepsWhatIsReadWhileThePromptIsRepeated) {
  constexpr std::int64_t kBudget = 28;
  for (const bool layerwise : {false, true})
    for (const Repetition repetition : {Repetition{}, Repetition{5, 40}, Repetition{0, 6}}) {
      SCOPED_TRACE(str("layerwise ", layerwise, ", chunk ", repetition.chunk));
      auto scores = read_while_repeated(engine, ids, repetition);
      const Plan plan = plan_of(str("kvzip:budget=28,sink=", repetition.sink,
                                    ",chunk=", repetition.chunk, ",layerwise=", layerwise));
      std::int64_t kept = 0;
      double least = 1e300, most = -1e300;
      for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
        if (layerwise) {
          kept = 0;
          least = 1e300;
          most = -1e300;
        }
        for (std::int64_t g = 0; g < config.n_kv_heads; ++g) {
          const HeadCut& cut = plan.heads[layer][g];
          for (std::int64_t j = 0; j < repetition.sink; ++j) scores[layer][g][j] = 2;
          expect_best(cut, scores[layer][g], kTokens, std::ssize(cut.tokens));
          kept += std::ssize(cut.tokens);
          const std::set<std::int64_t> tokens(cut.tokens.begin(), cut.tokens.end());
          for (std::int64_t j = 0; j < kTokens; ++j)
            if (tokens.contains(j))
              least = std::min(least, scores[layer][g][j]);
            else
              most = std::max(most, scores[layer][g][j]);
        }
        if (!layerwise && layer + 1 < config.n_layers) continue;
        EXPECT_EQ(kept, kBudget * config.n_kv_heads * (layerwise ? 1 : config.n_layers));
        EXPECT_GE(least, most - 1e-4);
      }
    }
}

TEST_P(PlanOf, ASecondReadingLeavesNoTrace) {
  const auto asked = policies({"kvzip:budget=28,chunk=20", "simlayerkv"});
  const Prefilled with = prefill(ids, asked), without = prefill(ids, {asked[1]});
  EXPECT_EQ(with.logits, without.logits);
  EXPECT_EQ(with.sequence.length(), without.sequence.length());
  EXPECT_EQ(with.sequence.logits(), without.sequence.logits());
}

TEST_P(PlanOf, DynamicKvCapsLayersAndUpdatesThoseSoFar) {
  const auto layers = static_cast<std::int64_t>(config.n_layers);
  const auto budgets = [&](const std::string& settings) {
    return plan_of("dynamickv:window=8,budget=28,kernel=5" + settings).budgets;
  };
  const auto all = budgets("");
  EXPECT_EQ(budgets(str(",update=", layers)), all);
  EXPECT_THAT(budgets(",r_max=1"), testing::Each(20));
  const auto capped = budgets(",r_max=1.1");
  EXPECT_THAT(capped, testing::Each(testing::Le(22)));
  EXPECT_EQ(std::accumulate(capped.begin(), capped.end(), std::int64_t{0}), 20 * layers);
  // As the paper's algorithm, told plainly, has it, from attention in double: a score that is as
  // large as another to the last digit of float may move a token.
  testing_support::DynamicKvInput in{{}, config.n_heads, kBefore, 20, 10, 1};
  for (const auto& of_layer : attention()) {
    auto& scores = in.scores.emplace_back();
    for (std::size_t h = 0; h < of_layer.size(); ++h)
      for (const double score : by_window_of_head(of_layer, h))
        scores.push_back(static_cast<float>(score));
  }
  const auto updated = budgets(",update=1"),
             wanted = paper_lengths(in, [&](const std::vector<std::int64_t>&counts) {
               return testing_support::plain_exact(in, counts);
             });
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    EXPECT_LE(updated[layer], all[layer]);
    EXPECT_LE(std::abs(updated[layer] - wanted[layer]), 2) << "layer " << layer;
  }
  // Budgets that are given beforehand are not updated.
  auto fixed = policies({"dynamickv:window=8,budget=28,kernel=5,update=1"});
  std::get<DynamicKv>(fixed[0].parts[0]).fixed = all;
  const Prefilled prompt = prefill(ids, fixed);
  EXPECT_EQ(make_plan(fixed[0], prompt.facts, prompt.sequence, config).budgets, all);
}

TEST_P(PlanOf, LazyLayersAreThoseOfTheGreatestMass) {
  const auto layers = attention();
  const Plan plan =
      plan_of("simlayerkv:threshold=0.5,initial=4,recent=24,identify=prefill,w_last=8");
  ASSERT_EQ(plan.mass.size(), layers.size());
  std::vector<std::int64_t> lazy;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    double mass = 0;  // and the sink's share, which is near
    for (const auto& of_head : layers[layer])
      for (std::size_t i = kTokens - 8; i < kTokens; ++i) {
        mass += 1;
        for (std::size_t j = 4; j + 24 <= i; ++j) mass -= of_head[i][j];
      }
    mass /= 8.0 * static_cast<double>(config.n_heads);
    EXPECT_NEAR(plan.mass[layer], mass, 1e-4);
    if (mass > 0.5) lazy.push_back(static_cast<std::int64_t>(layer));
    const std::vector<Range> want = mass > 0.5 ? std::vector<Range>{{0, 4}, {kTokens - 24, kTokens}}
                                               : std::vector<Range>{{0, kTokens}};
    for (const auto& cut : plan.heads[layer]) EXPECT_EQ(cut.ranges, want);
  }
  EXPECT_EQ(plan.lazy, lazy);
  // The control trims as many, or all others.
  const Plan control =
      plan_of("simlayerkv:threshold=0.5,initial=4,recent=24,identify=prefill,w_last=8,opposite=1");
  EXPECT_EQ(control.lazy.size(), std::min(lazy.size(), layers.size() - lazy.size()));
  for (const auto layer : control.lazy)
    EXPECT_EQ(std::find(lazy.begin(), lazy.end(), layer), lazy.end());
}

TEST_P(PlanOf, LazyHeadsThatAreKnownAreTrimmed) {
  Policy policy = policies({"simlayerkv:threshold=0.5,initial=4,recent=24"})[0];
  auto& fixed = std::get<SimLayerKv>(policy.parts[0]).fixed;
  fixed.emplace();
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    auto& row = fixed->emplace_back(static_cast<std::size_t>(layer == 1 ? 1 : config.n_kv_heads));
    for (std::size_t g = 0; g < row.size(); ++g) row[g] = (layer + g) % 2 == 1;
  }
  const Prefilled prompt = prefill(ids, {policy});
  const auto plan = [&] { return make_plan(policy, prompt.facts, prompt.sequence, config); };
  const std::vector<Range> trimmed{{0, 4}, {kTokens - 24, kTokens}}, whole{{0, kTokens}};
  const Plan made = plan();
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
    for (std::int64_t g = 0; g < config.n_kv_heads; ++g)
      EXPECT_EQ(made.heads[layer][g].ranges, layer == 1 || (layer + g) % 2 == 1 ? trimmed : whole)
          << layer << ", " << g;
  fixed->at(0).assign(static_cast<std::size_t>(config.n_kv_heads) + 1, 0);
  EXPECT_THAT(testing_support::refusal(plan), testing::HasSubstr("KV heads in the policy"));
  fixed->pop_back();
  EXPECT_THAT(testing_support::refusal(plan), testing::HasSubstr("the model has"));
}

TEST_P(PlanOf, LengthsGrowAsTheMethodsSay) {
  const auto asked = policies({"lagkv:sink=4,lag=8,ratio=1/4", "lagkv:sink=5,lag=16,ratio=1/2",
                               "streaming:initial=4,recent=20+rolling",
                               "streaming:initial=4,recent=20", "l2:sink=4,lag=8,ratio=1/4"});
  const Prefilled prompt = prefill(ids, asked);
  constexpr std::int64_t kSteps = 40;
  Continuations together(engine, prompt.sequence, kTokens, kSteps);
  std::vector<std::size_t> numbers;
  for (const auto& policy : asked)
    numbers.push_back(together.add(make_plan(policy, prompt.facts, prompt.sequence, config)));
  for (std::int64_t n = kTokens;; ++n) {
    const auto of_lag = [&](std::int64_t sink, std::int64_t lag, std::int64_t keep) {
      return sink + keep * ((n - sink) / lag - 1) + lag + (n - sink) % lag;
    };
    const std::vector<std::int64_t> want{of_lag(4, 8, 2), of_lag(5, 16, 8), 24, 24 + n - kTokens,
                                         of_lag(4, 8, 2)};
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const bool lag = asked[i].name.starts_with("l");
      const auto lengths = together.lengths(numbers[i]);
      for (std::size_t layer = 0; layer < lengths.size(); ++layer) {
        SCOPED_TRACE(str(asked[i].name, " at ", n, ", layer ", layer));
        const std::int64_t all = i == 4 && layer < 2 ? n : want[i];
        if (config.window[layer] == 0)
          EXPECT_EQ(lengths[layer], all);
        else if (lag)  // how much of the selection lies in the window is the input's
          EXPECT_LE(lengths[layer], std::min(all, config.window[layer]));
        else  // the first four tokens lie before the window
          EXPECT_EQ(lengths[layer], std::min(all - 4, config.window[layer]));
      }
    }
    if (n == kTokens + kSteps) break;
    const std::vector<std::int64_t> tokens(numbers.size(), n % 256);
    step(together, numbers, tokens, n, [](auto, auto) {});
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PlanOf, testing::ValuesIn(kCheckpoints),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace kvatlas::calibrate
