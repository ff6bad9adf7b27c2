// SPDX-License-Identifier: Apache-2.0
// The memory that a policy is said to take is what the simulation holds.
#include "calibrate/rules/cache_bytes.hpp"

#include "calibrate/rules/policy_reports.hpp"
#include "tests/property/simulation_fixture.hpp"

namespace kvatlas::calibrate {
namespace {

class CacheBytesOf : public OnCheckpoint {};

TEST_P(CacheBytesOf, AreThoseOfTheSimulation) {
  constexpr std::int64_t kTokens = 130, kNew = 7;
  const auto tried = policies({
      "streaming:initial=4,recent=32",
      "window:recent=40",
      "dynamickv:window=8,budget=40",
      "snapkv:window=8,budget=40",
      "pyramidkv:window=8,budget=40",
      "h2o:budget=48",
      "h2o:budget=48,heavy=6",
      "headkv:window=8,budget=40",
      "pyramid-layers:layers=1,initial=4,recent=24+headkv:window=8,budget=40",
      "adakv:window=8,budget=40",
      "adakv:window=8,budget=40,safeguard=0.7+kv4",
      "adakv:window=8,budget=40,heads=query",
      "pyramid-layers:layers=1,initial=4,recent=24+adakv:window=8,budget=40",
      "chunkkv:window=8,budget=50,chunk=12",
      "chunkkv:window=12,budget=50,chunk=24+kv2",
      "chunkkv:window=3,budget=50,chunk=7",
      "criticalkv:window=8,budget=48",
      "tova:budget=48",
      "keydiff:budget=48",
      "keydiff:budget=200",
      "expected-attention:budget=48+kv4",
      "kvzip:budget=48",
      "kvzip:budget=48,sink=0,chunk=50",
      "kvzip:budget=48,layerwise=1+kv4",
      "pyramid-layers:layers=1,initial=4,recent=24+kvzip:budget=48",
      "pyramid-layers:layers=1,initial=4,recent=24+tova:budget=48+kv4",
      "pyramid-layers:layers=2,initial=4,recent=28",
      "pyramid-layers:layers=2,initial=4,recent=28,shape=top",
      "pyramid-layers:layers=1,initial=4,recent=24,shape=top+headkv:window=8,budget=40",
      "decoding:budget=48,every=8,by=keydiff",
      "decoding:budget=48,every=8,by=triattention",
      "decoding:budget=48,every=8,by=h2o,prompt=whole",
      "pyramid-layers:layers=1,initial=4,recent=24+decoding:budget=48,every=4,by=tova+kv4",
      "lagkv:sink=4,lag=16,ratio=1/4",
      "lagkv:sink=4,lag=16,ratio=1/4,variant=l2",
      "minicache:retain=32",
      "quest:page=16,budget=32",
      "streaming:initial=4,recent=32+kv4",
      "lagkv:sink=4,lag=16,ratio=1/2+kv2",
      "kv4:residual=50",
      "streaming:initial=4,recent=32+kv2:residual=10",
      "minicache:retain=32+kv4:residual=64",
      "snapkv:window=8,budget=40,heads=query",
      "pyramidkv:window=8,budget=40,heads=query+kv4",
      "pyramid-layers:layers=1,initial=4,recent=24+snapkv:window=8,budget=40,heads=query",
      "precision:keys=fp8,values=q4_0",
      "precision:keys=int4,values=q8_0",
      "streaming:initial=4,recent=32+precision:keys=16,values=int2",
      "snapkv:window=8,budget=40,heads=query+precision:keys=int4,values=fp8",
  });
  const Simulated found = run(random_ids(kTokens, 3), tried, {.max_new = kNew});
  CacheLoad load;
  load.shape = {config.n_layers, config.n_kv_heads, config.head_dim, config.window, config.n_heads};
  load.prompt = kTokens;
  EXPECT_DOUBLE_EQ(cache_bytes({.name = "full", .parts = {}}, load).total(),
                   found.policies[0].full_bytes);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const CacheBytes said = cache_bytes(tried[i], load);
    EXPECT_LE(found.policies[i].kept_bytes, said.total() * (1 + 1e-6)) << tried[i].name;
    // How much of a selection lies in the windows of the model differs from prompt to prompt, and
    // which tokens MiniCache merges, of which some are in codes and others not.
    const bool bound = said.by_input && (!own_windows(config.window).empty() ||
                                         (tried[i].kv_residual > 0 && !tried[i].parts.empty() &&
                                          std::holds_alternative<MiniCache>(tried[i].parts[0])));
    if (!bound) {
      EXPECT_NEAR(said.total(), found.policies[i].kept_bytes, 1e-6 * said.total()) << tried[i].name;
    }
    if (said.by_input) continue;  // the layers' shares differ from prompt to prompt
    for (std::size_t l = 0; l < said.layers.size(); ++l)
      EXPECT_EQ(said.layers[l].tokens, static_cast<double>(found.policies[i].kept[l]))
          << tried[i].name << ", layer " << l;
  }
}

/// Token by token: what is held while each is read, which is never more than the budget and the
/// tokens until the next choice.
TEST_P(CacheBytesOf, AreThoseHeldOverTime) {
  constexpr std::int64_t kTokens = 60, kNew = 40;
  const auto tried = policies(
      {"decoding:budget=30,every=8,by=keydiff", "decoding:budget=30,every=1,by=tova",
       "decoding:budget=30,every=11,by=h2o,prompt=whole", "decoding:budget=75,every=6,by=streaming",
       "decoding:budget=30,every=8,window=4+kv4", "streaming:initial=4,recent=20",
       "window:recent=24+rolling"});
  const Simulated found = run(random_ids(kTokens, 3), tried, {.max_new = kNew});
  CacheLoad load;
  load.shape = {config.n_layers, config.n_kv_heads, config.head_dim, config.window, config.n_heads};
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const auto& held = found.policies[i].held_bytes;
    ASSERT_EQ(std::ssize(held), kNew - 1) << tried[i].name;
    for (std::int64_t token = 1; token < kNew; ++token) {
      SCOPED_TRACE(str(tried[i].name, ", token ", token));
      load.prompt = kTokens;
      load.new_tokens = token;
      const CacheBytes said = cache_bytes(tried[i], load);
      EXPECT_LE(held[token - 1], said.total() * (1 + 1e-6));
      if (!said.by_input) {
        EXPECT_NEAR(said.total(), held[token - 1], 1e-6 * said.total());
      }
      const auto* part = std::get_if<Decoding>(&tried[i].parts[0]);
      if (!part || part->whole_prompt) continue;
      load.prompt = std::min(kTokens + token, part->budget + part->every);
      load.new_tokens = 0;
      EXPECT_LE(held[token - 1],
                cache_bytes({.name = "full", .parts = {}}, load).total() * (1 + 1e-6));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, CacheBytesOf, testing::ValuesIn(kCheckpoints));

}  // namespace
}  // namespace kvatlas::calibrate
