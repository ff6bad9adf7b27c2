// SPDX-License-Identifier: Apache-2.0
// Bytes of policies, counted by hand.
#include "calibrate/rules/cache_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::HasSubstr;

/// 8 layers of 2 KV heads of 64 dimensions: 512 bytes a token and layer at 16 bits.
CacheLoad load_of(std::int64_t prompt, std::int64_t new_tokens = 0) {
  CacheLoad load;
  load.shape = {8, 2, 64};
  load.prompt = prompt;
  load.new_tokens = new_tokens;
  return load;
}
constexpr double kRow = 2.0 * 2 * 2 * 64;  // of a layer

Policy lazy_policy(const std::vector<std::uint8_t>& lazy) {
  SimLayerKv part;
  part.keep = {4, 60};
  part.fixed.emplace();
  for (const auto flag : lazy) part.fixed->push_back({flag});
  return {.name = "lazy", .parts = {part}};
}

TEST(CacheBytes, OfFixedLazyLayers) {
  const Policy policy = lazy_policy({0, 0, 1, 1, 1, 0, 0, 0});
  const CacheBytes bytes = cache_bytes(policy, load_of(1000, 10));
  EXPECT_EQ(bytes.total(), kRow * (5 * 1010 + 3 * 74));
  EXPECT_EQ(bytes.layers[2].tokens, 74);
  EXPECT_FALSE(bytes.by_input);
  Policy rolling = policy;
  rolling.rolling = true;
  EXPECT_EQ(cache_bytes(rolling, load_of(1000, 10)).layers[2].tokens, 64);
  EXPECT_EQ(cache_bytes(rolling, load_of(1000, 500)).layers[2].tokens, 64);
  EXPECT_EQ(cache_bytes(policy, load_of(50)).total(), kRow * 8 * 50);  // nothing to trim
}

TEST(CacheBytes, OfLazyLayersByTheInput) {
  const Policy policy = parse_policy("simlayerkv:threshold=0.8,initial=4,recent=60");
  CacheLoad load = load_of(1000);
  EXPECT_EQ(cache_bytes(policy, load).total(), kRow * 8 * 1000);  // the most it can take
  load.lazy_rates.emplace(8, std::vector<double>{0.25});
  const CacheBytes bytes = cache_bytes(policy, load);
  EXPECT_DOUBLE_EQ(bytes.total(), kRow * 8 * (0.75 * 1000 + 0.25 * 64));
  EXPECT_TRUE(bytes.by_input);
}

TEST(CacheBytes, OfASelectionOnTheLayersThatStayFull) {
  Policy policy = lazy_policy({1, 1, 0, 0, 0, 0, 0, 0});
  policy.parts.push_back(parse_policy("lagkv:sink=16,lag=128,ratio=1/4").parts[0]);
  // 16 + 32 (floor(984 / 128) - 1) + 128 + 984 mod 128
  EXPECT_EQ(cache_bytes(policy, load_of(1000)).total(),
            kRow * (2 * 64 + 6 * (16 + 32 * 6 + 128 + 88)));
}

/// Gemma 3 270M: of 18 layers 15 see 512 tokens.
CacheLoad gemma(std::int64_t prompt, std::int64_t new_tokens = 0) {
  CacheLoad load = load_of(prompt, new_tokens);
  load.shape = {18, 1, 256, {}};
  for (int l = 0; l < 18; ++l) load.shape.windows.push_back(l % 6 == 5 ? 0 : 512);
  return load;
}
constexpr double kGemmaRow = 2.0 * 2 * 256;

TEST(CacheBytes, WindowsOfTheModelHoldTheirTokensAlone) {
  const Policy full{.name = "full", .parts = {}};
  EXPECT_EQ(cache_bytes(full, gemma(32768)).total(), kGemmaRow * (3 * 32768 + 15 * 512));
  EXPECT_NEAR(cache_bytes(full, gemma(32768)).total() / (1 << 20), 103.5, 1e-9);
  EXPECT_EQ(cache_bytes(full, gemma(500, 100)).total(), kGemmaRow * (3 * 600 + 15 * 512));
  // A runtime that holds all tokens there holds them in the full cache too.
  CacheLoad whole = gemma(32768);
  whole.runtime = &runtime_named("openvino");
  EXPECT_EQ(cache_bytes(full, whole).total(), kGemmaRow * 18 * 32768);
  // The sinks lie before the windows.
  const CacheBytes streaming =
      cache_bytes(parse_policy("streaming:initial=4,recent=252"), gemma(32768, 100));
  EXPECT_EQ(streaming.layers[0].tokens, 352);
  EXPECT_EQ(streaming.layers[5].tokens, 356);
  EXPECT_FALSE(streaming.by_input);
  EXPECT_EQ(cache_bytes(parse_policy("streaming:initial=4,recent=1024"), gemma(32768)).total(),
            kGemmaRow * (3 * 1028 + 15 * 512));
  // Of a selection no more than the window is there, and how much the input says.
  const CacheBytes selected =
      cache_bytes(parse_policy("snapkv:window=16,budget=1000"), gemma(32768));
  EXPECT_EQ(selected.total(), kGemmaRow * (3 * 1000 + 15 * 512));
  EXPECT_TRUE(selected.by_input);
  // LagKV leaves 112 tokens uncut, behind 510 partitions: of the 400 before them a window sees six
  // partitions, of which 16 tokens each stay, and 16 tokens of another, which may all stay.
  const CacheBytes lag = cache_bytes(parse_policy("lagkv:lag=64,ratio=1/4"), gemma(32768));
  EXPECT_EQ(lag.layers[0].tokens, 112 + 6 * 16 + 16);
  EXPECT_EQ(lag.layers[5].tokens, 16 + 510 * 16 + 112);
  EXPECT_TRUE(lag.by_input);
}

TEST(CacheBytes, OfSharedKeys) {
  Pod part;
  part.proximal = {16, 84};
  // KV head 0 of layer 3 reads layer 2's keys; head 1 has one query head that does not.
  part.lowest.assign(4, {0, 1, 2, 3, 4, 5, 6, 7});
  for (const int head : {0, 1, 2}) part.lowest[head][3] = 2;
  const Policy policy{.name = "pod", .parts = {part}};
  EXPECT_DOUBLE_EQ(cache_bytes(policy, load_of(1000)).total(),
                   kRow * 8 * 1000 - kRow / 2 / 2 * 900);
}

TEST(CacheBytes, InFewerBits) {
  Policy policy{.name = "full+kv4", .parts = {}, .kv_bits = 4};
  // Half a byte a value, and two 16-bit numbers for every 32; what is generated has 16 bits.
  const double expected = 8 * (1000 * 256 * (0.5 + 4.0 / 32) + 10 * kRow);
  CacheLoad load = load_of(1000, 10);
  EXPECT_DOUBLE_EQ(cache_bytes(policy, load).total(), expected);
  load.runtime = &runtime_named("transformers-cache");
  EXPECT_DOUBLE_EQ(cache_bytes(policy, load).total(), expected);
}

TEST(CacheBytes, InARuntimesBlocksAndPools) {
  CacheLoad load = load_of(1000);
  load.runtime = &runtime_named("vllm");
  Policy policy = lazy_policy({1, 1, 1, 0, 0, 0, 0, 0});
  policy.block_tokens = 32;
  const CacheBytes bytes = cache_bytes(policy, load);
  // One block of first tokens, and those from the one that token 940 is in to the last.
  EXPECT_EQ(bytes.layers[0].tokens, 128);
  EXPECT_EQ(bytes.layers[7].tokens, 1024);
  // 5 full and 3 lazy layers: groups of 3, one full layer too many.
  EXPECT_EQ(bytes.padding, kRow * 1024);
  EXPECT_EQ(bytes.total(), kRow * (6 * 1024 + 3 * 128));
  // What is generated fills the last block, and then another one.
  load.new_tokens = 24;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 128);
  load.new_tokens = 25;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 160);
  policy.rolling = true;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 128);
  // What masks alone frees nothing.
  load.runtime = &runtime_named("minference");
  EXPECT_EQ(cache_bytes(policy, load).total(), kRow * 8 * 1025);
}

TEST(CacheBytes, InLlamaCppsCells) {
  CacheLoad load = load_of(2000, 100);
  load.runtime = &runtime_named("llama.cpp");
  Policy policy = lazy_policy({1, 1, 1, 0, 0, 0, 0, 0});
  std::get<SimLayerKv>(policy.parts[0]).keep = {0, 256};
  policy.rolling = policy.masks_prefill = true;
  const CacheBytes bytes = cache_bytes(policy, load);
  EXPECT_EQ(bytes.layers[0].tokens, 768);   // 256 and 512 that are read at a time
  EXPECT_EQ(bytes.layers[7].tokens, 2304);  // 2100 in whole pages of 256
  load.prompt = 500;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 768);
  load.prompt = 300;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 512);
}

TEST(CacheBytes, GroupsOfLayers) {
  for (const auto& [full, sliding, group, more_full, more_sliding] :
       {std::tuple{20, 12, 12, 4, 0}, std::tuple{16, 16, 16, 0, 0}, std::tuple{9, 8, 9, 0, 1},
        std::tuple{8, 0, 8, 0, 0}, std::tuple{0, 8, 8, 0, 0}, std::tuple{4, 20, 4, 0, 0}}) {
    const PaddedLayers padded = padded_layers(full, sliding);
    EXPECT_EQ(padded.group, group) << full;
    EXPECT_EQ(padded.full, more_full) << full;
    EXPECT_EQ(padded.sliding, more_sliding) << full;
  }
}

TEST(CacheBytes, GreatestBatchAndContext) {
  const Policy policy{.name = "full", .parts = {}};
  const Room room = greatest(policy, load_of(1000), kRow * 8 * 4500, 3);
  EXPECT_EQ(room.batch, 4);
  EXPECT_EQ(room.context, 1500);
  const Room none = greatest(policy, load_of(1000), 100, 1);
  EXPECT_EQ(none.batch, 0);
  EXPECT_EQ(none.context, 0);
  EXPECT_EQ(greatest(parse_policy("streaming:recent=60"), load_of(1000), kRow * 8 * 64, 1).context,
            kMostContext);
}

TEST(CacheBytes, RefusesAnotherModel) {
  EXPECT_THAT(testing_support::error_of([] {
                cache_bytes(lazy_policy({1, 0}), load_of(100));
              }),
              HasSubstr("for 2 layers, the model has 8"));
}

TEST(CacheBytes, RatesOfADocument) {
  Document document;
  document.model.layers = 2;
  document.sections["simlayerkv"] = section_of(SimLayerKv{});
  const Policy policy = policies_of(document).at(0);
  EXPECT_FALSE(lazy_rates_of(document, policy));
  document.sections["simlayerkv"]["lazy_rates"] = {0.5, 1};
  EXPECT_EQ(lazy_rates_of(document, policy), (LazyRates{{0.5}, {1}}));
  document.sections["simlayerkv"]["lazy_rates"] = {0.5, "many"};
  EXPECT_FALSE(lazy_rates_of(document, policy));
  document.sections["simlayerkv"]["lazy_rates"] = {0.5};
  EXPECT_FALSE(lazy_rates_of(document, policy));
}

}  // namespace
}  // namespace kvatlas::calibrate
