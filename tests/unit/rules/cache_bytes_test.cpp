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
  for (const int head : {0, 1}) part.lowest[head][3] = 3;
  part.lowest[3][3] = 2;
  EXPECT_DOUBLE_EQ(cache_bytes({.name = "pod", .parts = {part}}, load_of(1000)).total(),
                   kRow * 8 * 1000 - kRow / 2 / 2 * 900);
  std::swap(part.lowest[0], part.lowest[2]);
  std::swap(part.lowest[1], part.lowest[3]);
  EXPECT_DOUBLE_EQ(cache_bytes({.name = "pod", .parts = {part}}, load_of(1000)).total(),
                   kRow * 8 * 1000 - kRow / 2 / 2 * 900);
}

TEST(CacheBytes, OfSelections) {
  struct Said {
    const char* policy;
    double tokens;  // of each layer, of 1010
    bool by_input;
  };
  for (const auto& [text, tokens, by_input] :
       {Said{"snapkv:window=16,budget=100", 100, false}, Said{"h2o:budget=100", 100, false},
        Said{"criticalkv:window=16,budget=100", 100, false}, Said{"tova:budget=100", 100, false},
        Said{"keydiff:budget=100", 100, false}, Said{"expected-attention:budget=100", 100, false},
        Said{"adakv:window=16,budget=100", 100, true},
        Said{"dynamickv:window=16,budget=100", 100, true},
        Said{"headkv:window=16,budget=100", 100, true}, Said{"kvzip:budget=100", 100, true},
        Said{"kvzip:budget=100,layerwise=1", 100, true},
        // 5 of 51 chunks, of which the last has 10 tokens; one of 13, the last of 50 tokens, better
        // than which a chunk outside the window can be
        Said{"chunkkv:window=16,budget=100,chunk=20", 90, false},
        Said{"chunkkv:window=16,budget=100,chunk=80", 50, true},
        Said{"snapkv:window=16,budget=100+kv4", 100, false},
        Said{"snapkv:window=16,budget=100+kv4:residual=1", 100, true},
        Said{"snapkv:window=16,budget=2000", 1010, false}, Said{"tova:budget=2000", 1010, false}}) {
    SCOPED_TRACE(text);
    const Policy policy = parse_policy(text);
    for (const std::int64_t more : {0, 7}) {
      const CacheBytes bytes = cache_bytes(policy, load_of(1010, more));
      for (const auto& layer : bytes.layers)
        EXPECT_EQ(layer.tokens, tokens + static_cast<double>(more));
      EXPECT_EQ(bytes.by_input, by_input);
      if (policy.kv_bits == 16) {
        EXPECT_EQ(bytes.total(), kRow * 8 * (tokens + static_cast<double>(more)));
      }
    }
    EXPECT_EQ(cache_bytes(policy, load_of(10)).layers[3].tokens, 10) << "shorter than the window";
  }
}

TEST(CacheBytes, OfBudgetsThatLayersShare) {
  // A layer with a window of 20 has room for 12 tokens before the last 8; the other five full ones
  // share what it leaves of 6 x 32.
  CacheLoad load = load_of(1000);
  load.shape.windows = {0, 0, 20, 0, 0, 0, 0, 0};
  const CacheBytes bytes = cache_bytes(
      parse_policy(
          "pyramid-layers:layers=2,initial=4,recent=28,shape=top+headkv:window=8,budget=40"),
      load);
  std::vector<double> tokens;
  for (const auto& layer : bytes.layers) tokens.push_back(layer.tokens);
  EXPECT_EQ(tokens, (std::vector<double>{44, 44, 20, 44, 44, 44, 32, 32}));
  EXPECT_EQ(bytes.total(), kRow * (5 * 44 + 20 + 2 * 32));
  // A window shorter than the last tokens leaves no room.
  load.shape.windows = {5, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(cache_bytes(parse_policy("dynamickv:window=8,budget=36"), load).total(),
            kRow * (7 * (8 + 32) + 5));
  // Without a window of last tokens: 8 x 40, of which a layer has 20.
  load.shape.windows = {20, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(cache_bytes(parse_policy("kvzip:budget=41"), load).total(),
            kRow * (20 + 6 * 44 + 1 * 44));
  // A layer of which one head is trimmed shares too.
  Policy heads = lazy_policy({1, 0, 0, 0, 0, 0, 0, 0});
  std::get<SimLayerKv>(heads.parts[0]).fixed->at(1) = {1, 0};
  heads.parts.push_back(parse_policy("headkv:window=8,budget=40").parts[0]);
  const CacheBytes mixed = cache_bytes(heads, load_of(1000));
  EXPECT_EQ(mixed.layers[1].tokens, 64);
  EXPECT_EQ(mixed.total(), kRow * (64 + 52 + 6 * 40));
}

TEST(CacheBytes, OfFixedBudgets) {
  DynamicKv of_layers;
  of_layers.select.window = 16;
  of_layers.fixed = {10, 20, 30, 40, 50, 60, 70, 80};
  const CacheBytes layers = cache_bytes({.name = "fixed", .parts = {of_layers}}, load_of(1000));
  EXPECT_EQ(layers.total(), kRow * (360 + 8 * 16));
  EXPECT_EQ(layers.layers[7].tokens, 96);
  EXPECT_FALSE(layers.by_input);
  HeadKv of_heads;
  of_heads.select.window = 16;
  of_heads.fixed.emplace(8, std::vector<std::int64_t>{10, 50});
  const CacheBytes heads = cache_bytes({.name = "fixed", .parts = {of_heads}}, load_of(1000));
  EXPECT_EQ(heads.total(), kRow * 8 * (26 + 66) / 2);
  EXPECT_EQ(heads.layers[0].tokens, 66);
  EXPECT_FALSE(heads.by_input);
}

TEST(CacheBytes, OfBaselinesOfLayers) {
  const CacheBytes top = cache_bytes(
      parse_policy("pyramid-layers:layers=2,initial=4,recent=28,shape=top"), load_of(1000, 3));
  EXPECT_EQ(top.layers[5].tokens, 1003);
  EXPECT_EQ(top.layers[6].tokens, 35);
  EXPECT_EQ(top.total(), kRow * (6 * 1003 + 2 * 35));
  EXPECT_FALSE(top.by_input);
  // More layers than there are: all.
  EXPECT_EQ(cache_bytes(parse_policy("pyramid-layers:layers=20,initial=4,recent=28,shape=top"),
                        load_of(1000))
                .total(),
            kRow * 8 * 32);
  const CacheBytes linear =
      cache_bytes(parse_policy("pyramid-layers:layers=4,initial=4,recent=28"), load_of(1000));
  EXPECT_EQ(linear.total(), kRow * (4 * 1000 + 4 * 32));
  EXPECT_GT(linear.layers[3].tokens, linear.layers[4].tokens);
  EXPECT_FALSE(linear.by_input);
  // Where a window would hold the whole prompt another part may select tokens.
  const CacheBytes selected = cache_bytes(
      parse_policy("pyramid-layers:layers=1,initial=4,recent=28+tova:budget=48"), load_of(1000));
  EXPECT_EQ(selected.layers[0].tokens, 48);
  EXPECT_EQ(selected.layers[7].tokens, 32);
  // Which layers are drawn differs, and without `layers` how many: the mean over their heads.
  for (const char* text : {"random-layers:layers=2,initial=4,recent=28",
                           "pyramid-layers:threshold=0.8,initial=4,recent=28"}) {
    CacheLoad load = load_of(1000);
    EXPECT_EQ(cache_bytes(parse_policy(text), load).total(), kRow * 8 * 1000);
    load.lazy_rates.emplace(8, std::vector<double>{0.5, 0});
    const CacheBytes bytes = cache_bytes(parse_policy(text), load);
    EXPECT_EQ(bytes.layers[0].tokens, 0.75 * 1000 + 0.25 * 32);
    EXPECT_EQ(bytes.total(), kRow * 8 * bytes.layers[0].tokens);
    EXPECT_TRUE(bytes.by_input);
  }
}

TEST(CacheBytes, OfLazyHeadsByTheInput) {
  const Policy policy =
      parse_policy("simlayerkv:threshold=0.8,initial=4,recent=60,granularity=head");
  CacheLoad load = load_of(1000);
  load.lazy_rates.emplace(8, std::vector<double>{0.5, 0});
  const CacheBytes bytes = cache_bytes(policy, load);
  EXPECT_EQ(bytes.layers[0].tokens, 1000);
  EXPECT_EQ(bytes.total(), kRow * 8 * (0.5 * (0.5 * 1000 + 0.5 * 64) + 0.5 * 1000));
  load.lazy_rates.emplace(8, std::vector<double>{0.25});  // of whole layers
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 0.75 * 1000 + 0.25 * 64);
}

TEST(CacheBytes, OfQueryHeadsThatKeepTokensOfTheirOwn) {
  CacheLoad load = load_of(1000);
  const Policy policy = parse_policy("snapkv:window=16,budget=100,heads=query");
  EXPECT_THAT(testing_support::error_of([&] { cache_bytes(policy, load); }),
              HasSubstr("query heads"));
  load.shape.heads = 8;  // four to a KV head
  EXPECT_EQ(cache_bytes(policy, load).total(), kRow * 8 * 100 * 4);
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 100);
  EXPECT_EQ(cache_bytes(parse_policy("pyramid-layers:layers=2,initial=4,recent=28,shape=top+"
                                     "snapkv:window=16,budget=100,heads=query"),
                        load)
                .total(),
            kRow * (6 * 100 * 4 + 2 * 32));
  // Trimmed for half of the inputs: 64 tokens once, or 100 four times.
  load.lazy_rates.emplace(8, std::vector<double>{0.5});
  EXPECT_DOUBLE_EQ(cache_bytes(parse_policy("simlayerkv:threshold=0.8,initial=4,recent=60+"
                                            "snapkv:window=16,budget=100,heads=query"),
                               load)
                       .total(),
                   kRow * 8 * (0.5 * 64 + 0.5 * 400));
}

TEST(CacheBytes, OfCutPartitions) {
  // As above, 424 tokens of 1000; ten more are uncut. L2 leaves the first two layers alone.
  const CacheBytes bytes =
      cache_bytes(parse_policy("lagkv:sink=16,lag=128,ratio=1/4,variant=l2"), load_of(1000, 10));
  EXPECT_EQ(bytes.layers[0].tokens, 1010);
  EXPECT_EQ(bytes.layers[1].tokens, 1010);
  EXPECT_EQ(bytes.layers[2].tokens, 434);
  EXPECT_EQ(bytes.total(), kRow * (2 * 1010 + 6 * 434));
}

TEST(CacheBytes, OfABudgetWhileDecoding) {
  struct Said {
    std::int64_t prompt, new_tokens;
    double tokens, whole;  // whole: if the prompt is not cut first
  };
  // 30 tokens are chosen when every 8 new ones are there, before the next one is read.
  for (const auto& [prompt, new_tokens, tokens, whole] :
       {Said{60, 0, 30, 60}, Said{60, 1, 31, 61}, Said{60, 8, 38, 68}, Said{60, 9, 31, 31},
        Said{60, 17, 31, 31}, Said{20, 0, 20, 20}, Said{20, 9, 29, 29}, Said{20, 17, 31, 31}}) {
    SCOPED_TRACE(new_tokens);
    const CacheLoad load = load_of(prompt, new_tokens);
    for (const auto& [end, expected] : {std::pair{"", tokens}, {",prompt=whole", whole}}) {
      const CacheBytes bytes = cache_bytes(
          parse_policy(std::string("decoding:budget=30,every=8,by=keydiff") + end), load);
      EXPECT_EQ(bytes.layers[0].tokens, expected);
      EXPECT_EQ(bytes.total(), kRow * 8 * expected);
      EXPECT_FALSE(bytes.by_input);
    }
  }
  EXPECT_EQ(
      cache_bytes(parse_policy("decoding:budget=30,every=1,by=keydiff,prompt=whole"), load_of(60))
          .layers[0]
          .tokens,
      60);
  // Which of the last tokens are in groups of codes yet, the input says; a format that rounds each
  // token by itself has none to wait for.
  const auto by_input = [](const std::string& end, std::int64_t new_tokens) {
    return cache_bytes(parse_policy("decoding:budget=30,every=8,by=keydiff+" + end),
                       load_of(60, new_tokens))
        .by_input;
  };
  EXPECT_FALSE(by_input("kv4", 0));
  EXPECT_TRUE(by_input("kv4", 1));
  EXPECT_TRUE(by_input("kv4:residual=1", 0));
  EXPECT_TRUE(by_input("precision:keys=fp8,values=int4", 5));
  EXPECT_FALSE(by_input("precision:keys=fp8,values=16", 5));
}

TEST(CacheBytes, OfMergedLayers) {
  // Layers 4 and 5, and 6 and 7, store half of each row of 64 values and its norm of 2 bytes, but
  // for 100 tokens.
  const auto merged = [](double layers, double rows, double row_bytes) {
    return layers * 2 * 2 * rows * (row_bytes / 2 - 2);
  };
  const CacheBytes bytes = cache_bytes(parse_policy("minicache:retain=100"), load_of(1000, 10));
  EXPECT_EQ(bytes.layers[3].bytes, kRow * 1010);
  EXPECT_EQ(bytes.layers[4].bytes, kRow * 1010 - merged(1, 900, 128));
  EXPECT_EQ(bytes.total(), kRow * 8 * 1010 - merged(4, 900, 128));
  EXPECT_EQ(cache_bytes(parse_policy("minicache:retain=100"), load_of(50)).total(), kRow * 8 * 50);
  CacheLoad load = load_of(1000);
  load.shape.layers = 6;  // layer 5 has nobody to merge with
  EXPECT_EQ(cache_bytes(parse_policy("minicache:retain=100"), load).total(),
            kRow * 6 * 1000 - merged(2, 900, 128));
  // At 4 bits a row takes 40 bytes; those of the last 200 tokens stay at 16 bits. The least is
  // saved if the 100 tokens that are not merged are among these.
  const CacheBytes coded =
      cache_bytes(parse_policy("minicache:retain=100+kv4:residual=200"), load_of(1000));
  EXPECT_DOUBLE_EQ(coded.total(),
                   8 * 2 * 2 * (800 * 40 + 200 * 128) - merged(4, 800, 40) - merged(4, 100, 128));
  EXPECT_TRUE(coded.by_input);
  EXPECT_FALSE(bytes.by_input);
}

TEST(CacheBytes, OfWhatOnlyTheInputKnowsIsTheMost) {
  const std::string share = "share-values", pod = "pod";
  for (const auto& text : {share, pod}) {
    const CacheBytes bytes = cache_bytes(parse_policy(text), load_of(1000));
    EXPECT_EQ(bytes.total(), kRow * 8 * 1000);
    EXPECT_TRUE(bytes.by_input);
  }
  EXPECT_FALSE(cache_bytes(parse_policy("quest:page=16,budget=32"), load_of(1000)).by_input);
}

TEST(CacheBytes, OfNoPromptAreNone) {
  Pod part;
  part.lowest.assign(4, {0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(cache_bytes({.name = "pod", .parts = {part}}, load_of(0)).total(), 0);
  EXPECT_EQ(cache_bytes(parse_policy("streaming"), load_of(0)).total(), 0);
  EXPECT_EQ(greatest({.name = "full", .parts = {}}, load_of(0), 1e9, 1).batch, 0);
  CacheLoad load = load_of(1);
  load.runtime = &runtime_named("vllm");
  EXPECT_EQ(cache_bytes({.name = "full", .parts = {}}, load).layers[0].tokens, 32) << "one block";
}

TEST(CacheBytes, OfALatent) {
  CacheLoad load = load_of(1000);
  load.shape.layers = 2;
  load.shape.values = {256, 64};  // numbers of a token; keys and values of the heads are 256
  EXPECT_EQ(cache_bytes({.name = "full", .parts = {}}, load).total(), kRow * 1000 * 1.25);
}

TEST(CacheBytes, OfFormatsThatRoundEachToken) {
  EXPECT_EQ(cache_bytes(parse_policy("precision:keys=fp8,values=fp8"), load_of(1000, 10)).total(),
            8 * 1010 * 256);
}

TEST(CacheBytes, RatioOfAPart) {
  EXPECT_EQ(kv_ratio(Streaming{{4, 60}}, load_of(0).shape, 1600), 25);
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
  const CacheBytes bytes = cache_bytes(policy, load);
  // Of 32 blocks for 1000 tokens those are free that 936 of them filled.
  EXPECT_EQ(bytes.layers[0].tokens, 96);
  EXPECT_EQ(bytes.layers[7].tokens, 1024);
  // 5 full and 3 lazy layers: groups of 3, one full layer too many.
  EXPECT_EQ(bytes.padding, kRow * 1024);
  EXPECT_EQ(bytes.total(), kRow * (6 * 1024 + 3 * 96));
  // What is generated fills the last block, and then another one.
  load.new_tokens = 24;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 96);
  load.new_tokens = 25;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 128);
  // A window that rolls has dropped 961 of 1025 tokens, and 960 of them fill blocks.
  policy.rolling = true;
  EXPECT_EQ(cache_bytes(policy, load).layers[0].tokens, 96);
  // A partition is free two tokens after it was cut: 1008 is 16 + 31 * 32.
  const auto lag = [&](std::int64_t generated) {
    load.new_tokens = generated;
    return cache_bytes(parse_policy("lagkv:lag=32,ratio=1/4"), load).layers[0].tokens;
  };
  EXPECT_EQ(lag(9), 1024 - 29 * 24 / 32 * 32);
  EXPECT_EQ(lag(10), 1024 - 30 * 24 / 32 * 32);
  load.new_tokens = 25;
  // Heads that keep 100 and 300 tokens have 4 and 10 pages of 32 in 7 blocks, and need 8 before the
  // request has another block.
  HeadKv heads;
  heads.select.window = 0;
  heads.fixed = HeadBudgets(8, {100, 300});
  load.new_tokens = 2;
  EXPECT_EQ(cache_bytes({.name = "heads", .parts = {heads}}, load).total(), 8 * 8 * 32 * kRow);
  load.new_tokens = 25;
  // What masks alone frees nothing.
  load.runtime = &runtime_named("minference");
  EXPECT_EQ(cache_bytes(policy, load).total(), kRow * 8 * 1025);
  // 9 full and 8 lazy layers: groups of 9, one lazy layer too many.
  load = load_of(1000);
  load.shape.layers = 17;
  load.runtime = &runtime_named("vllm");
  policy = lazy_policy({1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0});
  EXPECT_EQ(cache_bytes(policy, load).padding, kRow * cache_bytes(policy, load).layers[0].tokens);
  // Blocks of another size where keys and values have formats, whatever else the policy has.
  load = load_of(970);
  load.runtime = &runtime_named("vllm");
  const auto tokens = [&](const char* text) {
    return cache_bytes(parse_policy(text), load).layers[0].tokens;
  };
  EXPECT_EQ(tokens("tova:budget=970"), 992);
  EXPECT_EQ(tokens("precision"), 1024);
  EXPECT_EQ(tokens("tova:budget=970+precision"), 1024);
  load.runtime = &runtime_named("transformers-cache");
  EXPECT_EQ(tokens("precision"), 970);
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
  using Counts = std::vector<std::int64_t>;
  for (const auto& [kinds, group, padding] :
       {std::tuple{Counts{20, 12}, 12, Counts{4, 0}}, std::tuple{Counts{16, 16}, 16, Counts{0, 0}},
        std::tuple{Counts{9, 8}, 9, Counts{0, 1}}, std::tuple{Counts{8}, 8, Counts{0}},
        std::tuple{Counts{4, 20}, 4, Counts{0, 0}},
        std::tuple{Counts{3, 7, 20}, 3, Counts{0, 2, 1}},
        std::tuple{Counts{8, 9, 10}, 10, Counts{2, 1, 0}}}) {
    const PaddedLayers padded = padded_layers(kinds);
    EXPECT_EQ(padded.group, group) << kinds.front();
    EXPECT_EQ(padded.of_kinds, padding) << kinds.front();
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
  EXPECT_EQ(greatest(policy, load_of(1000), -1e9, 1).batch, 0);
  EXPECT_EQ(greatest(policy, load_of(1000), 1e300, 1).batch, std::int64_t{1000000000000000});
  EXPECT_EQ(greatest(parse_policy("streaming:recent=60"), load_of(1000), kRow * 8 * 64, 1).context,
            kMostContext);
}

/// vLLM holds all of a prompt until it is read: of the sequences that fit, one is being read.
TEST(CacheBytes, GreatestBatchWherePromptsAreHeldWhole) {
  const Policy policy = parse_policy("streaming:recent=60");
  CacheLoad load = load_of(960);
  load.runtime = &runtime_named("vllm");
  EXPECT_EQ(cache_bytes(policy, load).total(), kRow * 8 * 64);
  EXPECT_EQ(bytes_while_read(policy, load), kRow * 8 * 960);
  load.new_tokens = 40;
  EXPECT_EQ(bytes_while_read(policy, load), kRow * 8 * 960);
  load.new_tokens = 0;
  EXPECT_EQ(greatest(policy, load, kRow * 8 * (960 + 3 * 64), 1).batch, 4);
  EXPECT_EQ(greatest(policy, load, kRow * 8 * (960 + 3 * 64) - 1, 1).batch, 3);
  EXPECT_EQ(greatest(policy, load, kRow * 8 * 960 - 1, 1).batch, 0);
  EXPECT_EQ(greatest(policy, load, kRow * 8 * (1024 + 64), 2).context, 1024);
  // A window of the model's own is freed while the prompt is read.
  load.shape.windows = {96, 96, 96, 96, 96, 96, 96, 0};
  EXPECT_LT(bytes_while_read(policy, load), kRow * (960 + 7 * 200));
}

TEST(CacheBytes, RefusesAnotherModel) {
  EXPECT_THAT(testing_support::error_of([] {
                cache_bytes(lazy_policy({1, 0}), load_of(100));
              }),
              HasSubstr("for 2 layers, the model has 8"));
  DynamicKv layers;
  layers.fixed = {1, 2};
  HeadKv heads;
  heads.fixed = {{1, 2}, {3, 4}};
  Precision formats;
  formats.fixed.emplace(2);
  for (const Part& part : {Part{layers}, Part{heads}, Part{formats}})
    EXPECT_THAT(testing_support::error_of(
                    [&] { cache_bytes({.name = "fixed", .parts = {part}}, load_of(100)); }),
                HasSubstr("for 2 layers, the model has 8"));
  CacheLoad load = load_of(100);
  load.lazy_rates.emplace(9, std::vector<double>{0.5});
  EXPECT_THAT(testing_support::error_of(
                  [&] { cache_bytes(parse_policy("simlayerkv:threshold=0.8"), load); }),
              HasSubstr("for 9 layers, the model has 8"));
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
  document.sections["simlayerkv"]["lazy_rates"] = {-0.5, 1.5};
  EXPECT_EQ(lazy_rates_of(document, policy), (LazyRates{{0}, {1}}));
  // Rates of KV heads stand elsewhere, and those of layers are not meant for heads.
  Policy per_head = policy;
  std::get<SimLayerKv>(per_head.parts[0]).per_head = true;
  EXPECT_FALSE(lazy_rates_of(document, per_head));
  document.sections["simlayerkv"]["per_head"]["rates"] = {{0.5, 1}, {0, 0.25}};
  EXPECT_EQ(lazy_rates_of(document, per_head), (LazyRates{{0.5, 1}, {0, 0.25}}));
  EXPECT_EQ(lazy_rates_of(document, policy), (LazyRates{{0}, {1}}));
  document.sections["simlayerkv"]["per_head"]["rates"] = {{0.5, 1}, nlohmann::json::array()};
  EXPECT_FALSE(lazy_rates_of(document, per_head));
  // What decides nothing by the input has none.
  Policy fixed = policy;
  std::get<SimLayerKv>(fixed.parts[0]).fixed = {{1}, {0}};
  EXPECT_FALSE(lazy_rates_of(document, fixed));
  EXPECT_FALSE(lazy_rates_of(document, parse_policy("tova:budget=9")));
}

}  // namespace
}  // namespace kvatlas::calibrate
