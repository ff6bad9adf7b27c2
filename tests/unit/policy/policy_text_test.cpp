// SPDX-License-Identifier: Apache-2.0
// Inline policies: what is read from their text, what is refused, and the text that comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/policy/policy.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate::policy_text_tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing_support::error_of;

template <class T>
T only_part(const char* text) {
  const Policy policy = parse_policy(text);
  EXPECT_THAT(policy.parts, SizeIs(1)) << text;
  return std::get<T>(policy.parts.at(0));
}

std::string refusal(const std::string& text) {
  return error_of([&] { parse_policy(text); });
}

TEST(PolicyText, DefaultsAreThePapers) {
  EXPECT_THAT(parse_policy("full").parts, SizeIs(0));
  const auto streaming = only_part<Streaming>("streaming");
  EXPECT_EQ(streaming.keep.initial, 4);
  EXPECT_EQ(streaming.keep.recent, 1024);
  EXPECT_EQ(only_part<Streaming>("window:recent=64").keep.initial, 0);
  const auto pod = only_part<Pod>("pod");
  EXPECT_EQ(pod.proximal.initial, 16);
  EXPECT_EQ(pod.proximal.recent, 4080);
  EXPECT_FALSE(pod.per_query_head);
  const auto budgets = only_part<DynamicKv>("dynamickv");
  EXPECT_EQ(budgets.select.window, 16);
  EXPECT_EQ(budgets.r_max, 10);
  EXPECT_EQ(only_part<MiniCache>("minicache").t, 0.6);
}

TEST(PolicyText, EveryKeyReachesItsSetting) {
  const auto lazy = only_part<SimLayerKv>(
      "simlayerkv:threshold=0.7,initial=0,recent=256,identify=prefill,w_last=8,granularity=head,"
      "opposite=1");
  EXPECT_EQ(lazy.threshold, 0.7);
  EXPECT_EQ(lazy.keep.initial, 0);
  EXPECT_EQ(lazy.keep.recent, 256);
  EXPECT_EQ(lazy.identify, SimLayerKv::Identify::prefill);
  EXPECT_EQ(lazy.w_last, 8);
  EXPECT_TRUE(lazy.per_head);
  EXPECT_TRUE(lazy.opposite);
  const auto pod =
      only_part<Pod>("pod:delta=0.25,initial=1,recent=2,granularity=head,tau=0.5,blocks=a/b.h5");
  EXPECT_EQ(pod.delta, 0.25);
  EXPECT_EQ(pod.proximal.recent, 2);
  EXPECT_TRUE(pod.per_query_head);
  EXPECT_EQ(pod.tau, 0.5);
  EXPECT_EQ(pod.blocks_file, "a/b.h5");
  const auto budgets =
      only_part<DynamicKv>("dynamickv:window=8,budget=64,kernel=5,pooling=max,r_max=2.5,update=3");
  EXPECT_EQ(budgets.select.window, 8);
  EXPECT_EQ(budgets.select.budget, 64);
  EXPECT_EQ(budgets.select.kernel, 5);
  EXPECT_EQ(budgets.select.pooling, Pooling::maximum);
  EXPECT_EQ(budgets.r_max, 2.5);
  EXPECT_EQ(budgets.update, 3);
  EXPECT_TRUE(only_part<SnapKv>("pyramidkv:budget=99").pyramid);
  EXPECT_FALSE(only_part<SnapKv>("snapkv").pyramid);
  EXPECT_EQ(only_part<H2o>("h2o:budget=7").budget, 7);
  EXPECT_EQ(only_part<AdaKv>("adakv:budget=99,safeguard=0.5").safe(), 49);
  EXPECT_EQ(only_part<AdaKv>("adakv:window=4,heads=query").select.window, 4);
  const auto expected = only_part<ExpectedAttention>(
      "expected-attention:budget=9,sink=0,future=1,covariance=0,values=0,epsilon=0.5");
  EXPECT_EQ(expected.budget, 9);
  EXPECT_EQ(expected.sink, 0);
  EXPECT_EQ(expected.future, 1);
  EXPECT_FALSE(expected.covariance || expected.values);
  EXPECT_EQ(expected.epsilon, 0.5);
  const auto kvzip = only_part<KvZip>("kvzip:budget=9,sink=0,chunk=1,layerwise=1");
  EXPECT_EQ(kvzip.budget, 9);
  EXPECT_EQ(kvzip.repetition, (Repetition{0, 1}));
  EXPECT_TRUE(kvzip.layerwise);
  EXPECT_EQ(only_part<ChunkKv>("chunkkv:chunk=8").chunk, 8);
  EXPECT_EQ(only_part<CriticalKv>("criticalkv:budget=99,share=0.5").first(), 49);
  EXPECT_EQ(only_part<CriticalKv>("criticalkv:share=0.001").first(), 1);
  EXPECT_EQ(only_part<CriticalKv>("criticalkv:share=0").first(), 0);
  EXPECT_EQ(only_part<CriticalKv>("criticalkv:epsilon=0.5").epsilon, 0.5);
  EXPECT_EQ(only_part<Tova>("tova:budget=7").budget, 7);
  EXPECT_EQ(only_part<KeyDiff>("keydiff:budget=7").budget, 7);
  const auto decoding = only_part<Decoding>(
      "decoding:budget=50,every=20,by=rkv,window=9,kernel=5,initial=2,lambda=0.5,prompt=whole");
  EXPECT_EQ(decoding.budget, 50);
  EXPECT_EQ(decoding.every, 20);
  EXPECT_EQ(decoding.by, Decoding::By::rkv);
  EXPECT_EQ(decoding.window, 9);
  EXPECT_EQ(decoding.kernel, 5);
  EXPECT_EQ(decoding.initial, 2);
  EXPECT_EQ(decoding.lambda, 0.5);
  EXPECT_TRUE(decoding.whole_prompt);
  EXPECT_EQ(only_part<Decoding>("decoding:window=9").kept_last(), 9);
  EXPECT_EQ(only_part<Decoding>("decoding:by=tova").kept_last(), 1);
  EXPECT_EQ(only_part<Decoding>("decoding:by=h2o,budget=31").kept_last(), 16);
  EXPECT_EQ(only_part<Decoding>("decoding:by=keydiff").kept_last(), 0);
  EXPECT_EQ(only_part<Decoding>("decoding:by=streaming,budget=31,initial=6").kept_last(), 25);
  const auto layers = only_part<LayerBaseline>("random-layers:layers=3,from=upper,seed=9");
  EXPECT_EQ(layers.choose, LayerBaseline::Choose::random);
  EXPECT_EQ(layers.from, LayerBaseline::From::upper);
  EXPECT_EQ(layers.layers, 3);
  EXPECT_EQ(layers.seed, 9u);
  EXPECT_EQ(only_part<LayerBaseline>("pyramid-layers:threshold=0.5").threshold, 0.5);
  EXPECT_EQ(only_part<MiniCache>("minicache:t=0.5,retain=0").retain, 0);
  EXPECT_EQ(only_part<Quest>("quest:page=32,budget=64").page, 32);
}

TEST(PolicyText, ChunkKvKeepsWholeChunks) {
  const auto part = only_part<ChunkKv>("chunkkv:window=4,budget=50,chunk=10");
  EXPECT_EQ(part.kept(50), 50);
  EXPECT_EQ(part.kept(100), 50);
  EXPECT_EQ(part.chunks_kept(103), 5);  // 11 * 50 / 103 is 5.3
  EXPECT_EQ(part.kept(103), 43);        // the last chunk has 3 tokens
  EXPECT_EQ(part.kept(107), 47);
  EXPECT_TRUE(part.keeps_last(107));  // 4 of its 7 tokens are in the window
  EXPECT_FALSE(part.keeps_last(109));
  EXPECT_EQ(part.chunks_kept(1000), 5);
  const auto few = only_part<ChunkKv>("chunkkv:window=4,budget=5,chunk=10");
  EXPECT_EQ(few.chunks_kept(100), 1);
  EXPECT_EQ(few.kept(9), 9);
}

TEST(PolicyText, LagKvKeepsExactShares) {
  EXPECT_EQ(only_part<LagKv>("lagkv:lag=128,ratio=1/6").keep(), 21);
  EXPECT_EQ(only_part<LagKv>("lagkv:lag=100,ratio=0.29").keep(), 29);  // 28 in binary fractions
  EXPECT_EQ(only_part<LagKv>("lagkv:lag=128,ratio=1").keep(), 128);
  EXPECT_EQ(only_part<LagKv>("local").variant, LagVariant::local);
  EXPECT_EQ(only_part<LagKv>("lagkv:variant=l2").variant, LagVariant::l2);
}

TEST(PolicyText, ModifiersAndCompositions) {
  const Policy both = parse_policy("lagkv:lag=64+kv4+simlayerkv:recent=256+rolling");
  EXPECT_EQ(both.kv_bits, 4);
  EXPECT_TRUE(both.rolling);
  ASSERT_THAT(both.parts, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<SimLayerKv>(both.parts[0])) << "layers are trimmed first";
  EXPECT_EQ(both.name, "lagkv:lag=64+kv4+simlayerkv:recent=256+rolling");
  EXPECT_EQ(policy_text(both), "simlayerkv:recent=256+lagkv:lag=64+kv4+rolling");
  EXPECT_THAT(parse_policy("pod+snapkv+simlayerkv").parts, SizeIs(3));
  EXPECT_EQ(policy_text(parse_policy("kv2")), "full+kv2");
}

TEST(PolicyText, ShortestTextIsAFixedPoint) {
  const std::pair<const char*, const char*> cases[] = {
      {"full", "full"},
      {"streaming:initial=4,recent=1024", "streaming"},
      {"streaming:recent=9,initial=0", "window:recent=9"},
      {"simlayerkv:recent=256,threshold=0.70", "simlayerkv:threshold=0.7,recent=256"},
      {"simlayerkv:opposite=1,granularity=head", "simlayerkv:granularity=head,opposite=1"},
      {"lagkv:variant=l2", "l2"},
      {"local:ratio=0.25", "local:ratio=0.25"},
      {"random-layers:from=lower,seed=18446744073709551615",
       "random-layers:from=lower,seed=18446744073709551615"},
      {"pyramid-layers:layers=0", "pyramid-layers:layers=0"},
      {"pod:blocks=p.h5,tau=0.125", "pod:tau=0.125,blocks=p.h5"},
      {"dynamickv:r_max=1e1,budget=96", "dynamickv:budget=96"},
      {"quest", "quest"},
      {"vertical-slash:slash=200+quest:page=8", "quest:page=8+vertical-slash:slash=200"},
      {"share-values:delta=0.5+kv4", "share-values+kv4"},
      {"minicache+kv4", "minicache+kv4"},
      {"kv2:residual=128", "full+kv2:residual=128"},
      {"kv4:residual=0+snapkv:heads=query", "snapkv:heads=query+kv4"},
      {"pod:prefill=shared", "pod:prefill=shared"},
      {"h2o:budget=64", "h2o:budget=64"},
      {"h2o:heavy=96,budget=4096", "h2o:budget=4096,heavy=96"},
      {"tova:budget=128", "tova"},
      {"adakv:safeguard=2e-1,budget=96", "adakv:budget=96"},
      {"keydiff:budget=64+simlayerkv", "simlayerkv+keydiff:budget=64"},
      {"pyramid-layers:layers=9,shape=linear", "pyramid-layers:layers=9"},
      {"pyramid-layers:layers=9,shape=top", "pyramid-layers:layers=9,shape=top"},
      {"random-layers:draws=5", "random-layers"},
      {"random-layers:draws=1", "random-layers:draws=1"},
  };
  for (const auto& [given, expected] : cases) {
    const auto text = policy_text(parse_policy(given));
    EXPECT_EQ(text, expected);
    EXPECT_EQ(policy_text(parse_policy(text)), text);
  }
}

TEST(PolicyText, UnusedThresholdIsNotWritten) {
  LayerBaseline part;
  part.threshold = 0.5;
  part.layers = 3;
  EXPECT_EQ(policy_text({.name = {}, .parts = {part}}), "pyramid-layers:layers=3");
}

TEST(PolicyText, RefusalsSayWhatIsKnown) {
  EXPECT_THAT(refusal("simlayrkv"), HasSubstr("did you mean simlayerkv?"));
  EXPECT_THAT(refusal("streamnig:recent=4"), HasSubstr("did you mean streaming?"));
  EXPECT_THAT(refusal("snapkv budget=4"),
              HasSubstr("a colon is missing after 'snapkv': write snapkv:budget=4"));
  EXPECT_THAT(refusal("streaming:recent=4+kv4 residual=8"),
              HasSubstr("a colon is missing after 'kv4': write kv4:residual=8"));
  EXPECT_THAT(refusal("xyzzy"),
              AllOf(HasSubstr("known are full, streaming"), HasSubstr("rolling")));
  EXPECT_THAT(refusal(""), HasSubstr("there is no policy ''"));
  EXPECT_THAT(refusal("streaming:sink=4"),
              HasSubstr("streaming: there is no key 'sink'; known are initial, recent"));
  EXPECT_THAT(refusal("window:initial=4"), HasSubstr("known are recent"));
  EXPECT_THAT(refusal("h2o:budget=8,heavy=9"), HasSubstr("heavy 9 exceeds the budget of 8"));
  EXPECT_THAT(refusal("h2o:budget"), HasSubstr("'budget': expected key=value"));
  EXPECT_THAT(refusal("h2o:budget="), HasSubstr("expected key=value"));
  EXPECT_THAT(refusal("h2o:"), HasSubstr("expected key=value"));
  EXPECT_THAT(refusal("h2o:budget=8,"), HasSubstr("expected key=value"));
  EXPECT_THAT(refusal("h2o:budget=8,budget=9"), HasSubstr("given twice"));
}

TEST(PolicyText, RefusalsOfValues) {
  EXPECT_THAT(refusal("simlayerkv:threshold=1.5"),
              HasSubstr("threshold=1.5: expected a number from 0 to 1"));
  EXPECT_THAT(refusal("simlayerkv:threshold=nan"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("simlayerkv:threshold=0.5x"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("streaming:recent=0"), HasSubstr("whole number from 1 to 16777216"));
  EXPECT_THAT(refusal("streaming:recent=99999999999999999999"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("streaming:initial=-1"), HasSubstr("whole number from 0"));
  EXPECT_THAT(refusal("streaming:recent=2.5"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("pod:granularity=layer"), HasSubstr("expected kv-head or head"));
  EXPECT_THAT(refusal("snapkv:kernel=4"), HasSubstr("kernel 4: must be odd"));
  for (const char* text : {"snapkv:window=16,budget=16", "adakv:window=16,budget=16"})
    EXPECT_THAT(refusal(text), HasSubstr("must exceed the window"));
  EXPECT_THAT(refusal("lagkv:ratio=1/0"), HasSubstr("more than 0 and at most 1"));
  EXPECT_THAT(refusal("lagkv:ratio=half"), HasSubstr("0.25 or 1/4"));
  EXPECT_THAT(refusal("quest:page=16,budget=8"), HasSubstr("less than a page"));
  EXPECT_THAT(refusal("decoding:budget=8,window=8"), HasSubstr("exceed the window of 8"));
  EXPECT_THAT(refusal("decoding:by=rkv,every=7,window=8"), HasSubstr("every 7 is less than"));
  EXPECT_THAT(refusal("decoding:by=streaming,budget=4"), HasSubstr("exceed the 4 first"));
  EXPECT_THAT(refusal("decoding:by=mean"), HasSubstr("snapkv or h2o or tova"));
  EXPECT_EQ(only_part<Decoding>("decoding:by=tova,every=1,budget=8").every, 1);
  EXPECT_THAT(refusal("random-layers:layers=2,threshold=0.5"), HasSubstr("not both"));
  EXPECT_THAT(refusal("pyramid-layers:seed=1"), HasSubstr("no key 'seed'"));
  EXPECT_THAT(refusal("random-layers:draws=0"), HasSubstr("a whole number from 1 to 100"));
  EXPECT_THAT(
      refusal("minicache:recent=256"),
      HasSubstr("minicache: there is no key 'recent': not the last tokens stay unmerged but "
                "those that differ most, and 'retain' says how many"));
  EXPECT_THAT(refusal(std::string(5000, 'a')), HasSubstr("5000 characters"));
}

TEST(PolicyText, EachDrawIsAPolicyOfItsOwn) {
  const std::vector<Policy> policies{
      parse_policy("random-layers:layers=3,seed=18446744073709551615,draws=2+kv4"),
      parse_policy("streaming"), parse_policy("random-layers:from=lower"),
      parse_policy("pyramid-layers")};
  std::vector<std::string> tried;
  for (const auto& policy : draws_of(policies)) tried.push_back(policy_text(policy));
  const std::string lower = "random-layers:from=lower";
  EXPECT_THAT(tried,
              ElementsAre("random-layers:layers=3,seed=18446744073709551615,draws=1+kv4",
                          "random-layers:layers=3,draws=1+kv4", "streaming", lower + ",draws=1",
                          lower + ",seed=1,draws=1", lower + ",seed=2,draws=1",
                          lower + ",seed=3,draws=1", lower + ",seed=4,draws=1", "pyramid-layers"));
  EXPECT_EQ(draws_of(policies)[1].name, policies[0].name);
}

TEST(PolicyText, RefusalsOfCompositions) {
  EXPECT_THAT(refusal("simlayerkv+pyramid-layers"),
              HasSubstr("'simlayerkv' and 'pyramid-layers' both trim layers"));
  EXPECT_THAT(refusal("lagkv+snapkv"), HasSubstr("both select tokens"));
  EXPECT_THAT(refusal("keydiff+tova"), HasSubstr("both select tokens"));
  EXPECT_THAT(refusal("lagkv+decoding"), HasSubstr("both select tokens"));
  EXPECT_THAT(refusal("decoding+pod"), HasSubstr("chooses tokens anew"));
  EXPECT_THAT(refusal("expected-attention:budget=9,sink=9"), HasSubstr("must exceed the 9 first"));
  EXPECT_THAT(refusal("kvzip:budget=9,sink=9"), HasSubstr("must exceed the 9 first"));
  EXPECT_THAT(refusal("kvzip:chunk=0"), HasSubstr("a whole number from 1 to"));
  EXPECT_THAT(refusal("kvzip+snapkv"), HasSubstr("both select tokens"));
  EXPECT_THAT(refusal("chunkkv:heads=query"), HasSubstr("no key 'heads'"));
  EXPECT_THAT(refusal("adakv:safeguard=1.5"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refusal("tova:budget=1"), HasSubstr("a whole number from 2 to"));
  EXPECT_THAT(refusal("pod+pod"), HasSubstr("both share keys"));
  EXPECT_THAT(refusal("minicache+pod"), HasSubstr("stands alone"));
  EXPECT_THAT(refusal("snapkv+share-values"), HasSubstr("share-values changes layers"));
  EXPECT_THAT(refusal("minicache+share-values"), HasSubstr("both change what layers hold"));
  EXPECT_THAT(refusal("vertical-slash:vertical=29"), HasSubstr("less than the 30 first columns"));
  EXPECT_THAT(refusal("vertical-slash:slash=99"), HasSubstr("less than the 100 nearest diagonals"));
  EXPECT_THAT(refusal("vertical-slash+vertical-slash"), HasSubstr("what the prompt's tokens"));
  EXPECT_THAT(refusal("full+lagkv"), HasSubstr("keeps the whole cache"));
  EXPECT_THAT(refusal("lagkv+kv4+kv2"), HasSubstr("on top of another"));
  EXPECT_THAT(refusal("kv4:residual=-1"), HasSubstr("kv4: residual=-1: expected a whole number"));
  EXPECT_THAT(refusal("kv4:rest=1"), HasSubstr("no key 'rest'; known is residual"));
  EXPECT_THAT(refusal("kv4:"), HasSubstr("expected key=value"));
  EXPECT_THAT(refusal("window+rolling:residual=1"), HasSubstr("'rolling' has no settings"));
  EXPECT_THAT(refusal("dynamickv:heads=query+kv4:residual=8"), HasSubstr("has no residual"));
  EXPECT_THAT(refusal("snapkv:heads=query+pod"), HasSubstr("shares the keys of KV heads"));
  EXPECT_THAT(refusal("lagkv+rolling"), HasSubstr("no part of 'lagkv+rolling' has one"));
  EXPECT_THAT(refusal("lagkv+"), HasSubstr("there is no policy ''"));
  Policy odd;
  odd.kv_bits = 3;
  EXPECT_THAT(error_of([&] { check_composition(odd); }), HasSubstr("3 bits"));
}

TEST(PolicyText, ErrorsAreWrongUsage) {
  try {
    parse_policy("nothing-such");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("policy 'nothing-such'"));
  }
}

TEST(PolicyText, HelpNamesKeysAndDefaults) {
  const auto help = policy_help();
  for (const char* word : {"simlayerkv\n", "random-layers\n", "+kv4\n", "threshold=0.9",
                           "recent=4080", "granularity=kv-head", "layers  or so many"})
    EXPECT_THAT(help, HasSubstr(word));
}

TEST(PolicyText, Precision) {
  const Policy policy = parse_policy("streaming:recent=64+precision:keys=q8_0,values=int4");
  EXPECT_EQ(policy_text(policy), "streaming:recent=64+precision:keys=q8_0,values=int4");
  EXPECT_EQ(formats_of(policy, 4)[3], (KvFormats{KvFormat::q8_0, KvFormat::int4}));
  EXPECT_EQ(formats_of(parse_policy("kv2"), 1)[0], (KvFormats{KvFormat::int2, KvFormat::int2}));
  EXPECT_TRUE(formats_of(parse_policy("full"), 1)[0].plain());
  EXPECT_EQ(policy_text(parse_policy("precision")), "precision");
  EXPECT_THAT(refusal("precision:keys=q6_0"), HasSubstr("keys=q6_0: expected 16 or fp8"));
  const Policy named = parse_policy("full+int4_per_token_head:skip=0:-1");
  EXPECT_EQ(policy_text(named),
            "precision:keys=int4_per_token_head,values=int4_per_token_head,skip=0:-1");
  EXPECT_EQ(std::get<Precision>(parse_policy(policy_text(named)).parts[0]),
            std::get<Precision>(named.parts[0]));
  const auto layers = formats_of(named, 4);
  constexpr auto kInt4 = KvFormat::int4_per_token_head;
  EXPECT_THAT(layers, ElementsAre(KvFormats{}, KvFormats{kInt4, kInt4}, KvFormats{kInt4, kInt4},
                                  KvFormats{}));
  EXPECT_EQ(skip_text(layers), "0:3");
  EXPECT_THAT(error_of([&] { formats_of(parse_policy("fp8:skip=4"), 4); }),
              HasSubstr("skip names layer 4, and the model has 4"));
  EXPECT_EQ(parse_policy("streaming+nvfp4:queries=fp8,prefill=rounded").parts.size(), 2u);
  EXPECT_THAT(refusal("fp8:skip=1-3"), HasSubstr("'1-3' is no layer: expected whole numbers"));
  EXPECT_THAT(refusal("fp8:skip=1:"), HasSubstr("ends with a colon"));
  EXPECT_THAT(refusal("precision:keys=turboquant_k8v4"),
              HasSubstr("turboquant_k8v4 stores keys and values together: give it for both"));
  EXPECT_THAT(refusal("nvfp5"), HasSubstr("did you mean nvfp4?"));
  EXPECT_THAT(refusal("fp8+nvfp4"), HasSubstr("a policy has one such part"));
  EXPECT_THAT(refusal("full+streaming"), HasSubstr("'full' keeps the whole cache"));
  EXPECT_THAT(refusal("precision+kv4"), HasSubstr("both say how numbers are stored"));
  EXPECT_THAT(refusal("precision+precision"), HasSubstr("a policy has one such part"));
  EXPECT_THAT(refusal("precision+quest"), HasSubstr("stands alone"));
  EXPECT_THAT(refusal("precision+minicache"), HasSubstr("stands alone"));
}

}  // namespace
}  // namespace kvatlas::calibrate::policy_text_tests
