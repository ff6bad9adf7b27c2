// SPDX-License-Identifier: Apache-2.0
// Each runtime: what it can carry out, and the policy that it really runs.
#include "calibrate/runtimes/runtimes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;

ModelInfo model_of(const std::string& architecture) { return {"m", architecture, "", 4, 4, 2, 8}; }

/// Layers 1 and 2 of 4 are lazy.
Policy lazy_layers(std::int64_t initial = 4) {
  SimLayerKv part;
  part.keep = {initial, 256};
  part.fixed = LazyHeads{{0}, {1}, {1}, {0}};
  return {.name = "lazy", .parts = {part}};
}

Policy lazy_heads() {
  Policy policy = lazy_layers();
  std::get<SimLayerKv>(policy.parts[0]).fixed = LazyHeads{{0, 1}, {1}, {1, 1}, {0}};
  return policy;
}

Policy budgets(Pooling pooling = Pooling::average) {
  DynamicKv part;
  part.select.pooling = pooling;
  part.fixed = {100, 120, 80, 148};
  return {.name = "budgets", .parts = {part}};
}

template <class T>
T part_as(const Policy& policy, const char* runtime, const char* architecture = "llama") {
  return std::get<T>(
      as_runtime_behaves(policy, runtime, model_of(architecture)).policy.parts.at(0));
}

std::string refusal(const Policy& policy, const char* runtime, const char* architecture = "llama") {
  return error_of([&] { as_runtime_behaves(policy, runtime, model_of(architecture)); });
}

TEST(Runtimes, Matrix) {
  // Of fixed layers, layers by input, heads, PoD, DynamicKV, LagKV, formats, selections, selections
  // by head: exact, approximate or not.
  const std::pair<const char*, const char*> rows[] = {
      {"kvpress", "Ee A Ef - Ee Eef Ee - Ee Eef A"},
      {"duo-attention", "Ec - Ec - - - - - - - -"},
      {"vllm", "E - E - E E E Ai E - -"},
      {"tensorrt-llm", "Aabcd - - - Ag - - Ai - - Ag"},
      {"transformers", "Aabcd - - - Aacg - - Ai - - -"},
      {"sglang", "Aabcd - - - - - - Ai - - -"},
      {"llama.cpp", "Aabcd - - - - - - Ai - - -"},
      {"mlx-lm", "Aabcd - - - - - - - - - -"},
      {"mlc-llm", "Abc - - - - - - - - - -"},
      {"openvino", "Agh - - - Agh - - - - - -"},
      {"minference", "Af - Af - - - - - - - -"},
      {"simlayerkv", "A E - - - - - - - - -"},
      {"dynamickv", "- - - - A - - - - - -"},
      {"lagkv", "- - - - - - E - - - -"},
      {"kvcache-factory", "- - Ag - E E - - - - -"},
      {"transformers-cache", "E E E E E E E E - - -"},
      {"ik_llama.cpp", "- - - - - - - Ai - - -"}};
  ASSERT_EQ(std::size(rows), runtimes().size());
  for (const auto& [name, expected] : rows) {
    std::string row;
    for (const auto& form : kForms) {
      const auto& [fit, losses, note] = runtime_named(name).form(form.form);
      row += str(row.empty() ? "" : " ", "-AE"[static_cast<int>(fit)], loss_letters(losses));
    }
    EXPECT_EQ(row, expected) << name;
  }
  EXPECT_THAT(error_of([] { runtime_named("vlm"); }),
              testing::AllOf(HasSubstr("no runtime 'vlm'"), HasSubstr("kvpress, duo-attention")));
}

TEST(Runtimes, EveryFormAndLossHasItsWords) {
  for (std::size_t i = 0; i < kForms.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(kForms[i].form), i) << kForms[i].text;
  Losses all;
  for (const auto& runtime : runtimes())
    for (const auto& [form, expression] : runtime.forms) {
      EXPECT_NE(expression.fit, Fit::impossible) << runtime.name << ", " << form_name(form);
      all.insert(expression.losses.begin(), expression.losses.end());
    }
  EXPECT_EQ(loss_letters(all), "abcdefghi");
  for (const Loss loss : all) EXPECT_STRNE(loss_text(loss), "") << loss_letter(loss);
}

TEST(Runtimes, FormsOfParts) {
  EXPECT_EQ(form_of(lazy_layers().parts[0]), Form::lazy_layers);
  EXPECT_EQ(form_of(lazy_heads().parts[0]), Form::lazy_heads);
  EXPECT_EQ(form_of(SimLayerKv{}), Form::lazy_by_input);
  EXPECT_EQ(form_of(Streaming{}), Form::lazy_layers);
  EXPECT_EQ(form_of(Tova{}), Form::selected);
  EXPECT_EQ(form_of(KeyDiff{}), Form::selected);
  EXPECT_EQ(form_of(HeadKv{}), Form::headkv);
  EXPECT_EQ(form_of(AdaKv{}), Form::selected_by_head);
  EXPECT_EQ(form_of(KvZip{}), Form::selected_by_head);
  EXPECT_EQ(form_of(H2o{}), Form::selected);
  EXPECT_EQ(form_of(Quest{}), std::nullopt);
}

/// The engines that know one window and no first tokens.
TEST(Runtimes, WindowEngines) {
  const std::pair<const char*, const char*> cases[] = {
      {"sglang", "llama"}, {"llama.cpp", "gemma3"},    {"sglang", "qwen2"},
      {"mlx-lm", "llama"}, {"tensorrt-llm", "gemma3"}, {"transformers", "qwen3"}};
  for (const auto& [runtime, architecture] : cases) {
    const auto [policy, changes, unsaid] =
        as_runtime_behaves(lazy_layers(), runtime, model_of(architecture));
    const auto& part = std::get<SimLayerKv>(policy.parts.at(0));
    EXPECT_EQ(part.keep.initial, 0) << runtime;
    EXPECT_EQ(part.keep.recent, 256) << runtime;
    EXPECT_EQ(part.fixed->at(1), (std::vector<std::uint8_t>{1})) << runtime;
    EXPECT_TRUE(policy.masks_prefill) << runtime;
    EXPECT_TRUE(policy.rolling) << runtime;
    EXPECT_THAT(changes, Contains("the first 4 tokens are not kept")) << runtime;
    EXPECT_THAT(changes, Contains("the window masks the prefill too")) << runtime;
    EXPECT_THAT(changes, Contains("the window keeps its size while decoding")) << runtime;
  }
  // What is so already is not said to change.
  Policy honest = lazy_layers(0);
  honest.masks_prefill = honest.rolling = true;
  EXPECT_THAT(as_runtime_behaves(honest, "sglang", model_of("llama")).changes, IsEmpty());
}

TEST(Runtimes, VllmRunsThePolicyItself) {
  const auto [policy, changes, unsaid] =
      as_runtime_behaves(lazy_layers(), "vllm", model_of("llama"));
  EXPECT_FALSE(policy.masks_prefill || policy.rolling);
  EXPECT_EQ(std::get<SimLayerKv>(policy.parts[0]).keep.initial, 4);
  EXPECT_THAT(changes, IsEmpty());
  for (const char* text : {"lagkv", "snapkv", "pyramidkv", "chunkkv", "tova", "keydiff", "h2o"})
    EXPECT_THAT(as_runtime_behaves(parse_policy(text), "vllm", model_of("llama")).changes,
                IsEmpty())
        << text;
  EXPECT_THAT(refusal(parse_policy("criticalkv"), "vllm"), HasSubstr("output projection"));
  EXPECT_THAT(refusal(parse_policy("expected-attention"), "vllm"), HasSubstr("before RoPE"));
  EXPECT_THAT(refusal(parse_policy("chunkkv:window=8,chunk=20"), "vllm"), HasSubstr("chunk=17"));
  EXPECT_THAT(refusal(parse_policy("dynamickv"), "vllm"), HasSubstr("budgets found beforehand"));
  // Lazy layers, and a selection in the others.
  Policy composed = lazy_layers();
  composed.parts.push_back(LagKv{});
  EXPECT_THAT(as_runtime_behaves(composed, "vllm", model_of("llama")).policy.parts, SizeIs(2));
  EXPECT_THAT(refusal(composed, "sglang"), HasSubstr("it takes one method, and the policy has 2"));
  composed.parts[0] = lazy_heads().parts[0];
  EXPECT_THAT(refusal(composed, "vllm"), HasSubstr("and the policy has 2"));
  composed.parts = {lazy_layers().parts[0], Pod{}};
  EXPECT_THAT(refusal(composed, "vllm"),
              HasSubstr("one method, or lazy layers and a selection in the others, and"));
  // A window that rolls moves whole layers, not heads that are packed.
  Policy heads = lazy_heads();
  heads.rolling = true;
  const auto kept = as_runtime_behaves(heads, "vllm", model_of("llama"));
  EXPECT_FALSE(kept.policy.rolling);
  EXPECT_THAT(kept.changes, ElementsAre("what is generated is kept"));
  // Layers with windows of the model's own stay as they are, beside a selection alone.
  ModelInfo windows = model_of("gemma3");
  windows.windows = {0, 512, 0, 256};
  const auto beside = as_runtime_behaves(parse_policy("tova"), "vllm", windows);
  ASSERT_THAT(beside.policy.parts, SizeIs(2));
  const auto& own = std::get<SimLayerKv>(beside.policy.parts[0]);
  EXPECT_EQ(own.fixed, (LazyHeads{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(own.keep.initial, 0);
  EXPECT_EQ(own.keep.recent, 512);
  EXPECT_THAT(beside.changes,
              ElementsAre("layers with a window of the model's own stay as they are"));
  composed.parts = {lazy_layers().parts[0], Tova{}};
  EXPECT_THAT(error_of([&] { as_runtime_behaves(composed, "vllm", windows); }),
              HasSubstr("lazy layers beside it would have another window"));
  EXPECT_THAT(error_of([&] { as_runtime_behaves(lazy_heads(), "vllm", windows); }),
              HasSubstr("layer 1 has a window of the model's own, of 512"));
  Policy rolling = lazy_layers();
  rolling.rolling = true;
  EXPECT_TRUE(as_runtime_behaves(rolling, "vllm", model_of("llama")).policy.rolling);
}

/// Layers 1 and 2 of 4 are stored in this format.
Policy formats(KvFormats format) {
  Precision part;
  part.fixed = {{}, format, format, {}};
  return {.name = "formats", .parts = {part}};
}

TEST(Runtimes, NumberFormats) {
  using enum KvFormat;
  const auto real = as_runtime_behaves(formats({fp8, fp8}), "vllm", model_of("llama"));
  EXPECT_TRUE(std::get<Precision>(real.policy.parts[0]).rounded_prefill);
  EXPECT_THAT(real.changes, ElementsAre(HasSubstr("attend to rounded keys and values")));
  EXPECT_THAT(refusal(formats({q8_0, q8_0}), "vllm"),
              HasSubstr("its cache has no format 'q8_0', only 16, fp8"));
  EXPECT_THAT(refusal(formats({fp8, f16}), "vllm"),
              HasSubstr("the keys and the values of a layer in one format"));
  EXPECT_THAT(refusal(formats({q8_0, q4_0}), "llama.cpp"),
              HasSubstr("it stores all layers in one format"));
  const Policy alike{.name = {}, .parts = {Precision{{q8_0, q4_0}}}};
  EXPECT_EQ(part_as<Precision>(alike, "llama.cpp").everywhere, (KvFormats{q8_0, q4_0}));
  EXPECT_THAT(refusal(alike, "sglang"), HasSubstr("no format 'q8_0'"));
  EXPECT_THAT(refusal(alike, "mlx-lm"), HasSubstr("it cannot take number formats by layer"));
  EXPECT_EQ(part_as<Precision>(formats({int4, q8_0}), "transformers-cache").fixed->at(1),
            (KvFormats{int4, q8_0}));
  // Bits that hold for all layers become such a part.
  Document document;
  document.model = model_of("llama");
  document.kv_bits = 4;
  const auto given =
      given_to_runtime(document, policies_of(document).at(0), runtime_named("transformers"));
  EXPECT_EQ(std::get<Precision>(given.policy.parts.at(0)).everywhere, (KvFormats{int4, int4}));
  EXPECT_EQ(given.policy.kv_bits, 16);
  EXPECT_THAT(as_runtime_behaves(given.policy, "transformers", document.model).not_simulated,
              HasSubstr("groups of 64"));
}

/// The formats of the layers of a policy as the runtime runs it on a model of so many.
std::vector<KvFormats> run_formats(const Policy& policy, const char* runtime,
                                   std::int64_t layers = 8) {
  ModelInfo model = model_of("llama");
  model.layers = layers;
  model.head_dim = 64;
  return formats_of(as_runtime_behaves(policy, runtime, model).policy, layers);
}

TEST(Runtimes, VllmSparesTheEndsInTurboQuant) {
  const auto turboquant = parse_policy("turboquant_4bit_nc:skip=3");
  EXPECT_EQ(skip_text(run_formats(turboquant, "vllm")), "0:1:3:6:7");
  EXPECT_EQ(skip_text(run_formats(turboquant, "vllm:turboquant")), "0:1:3:6:7");
  EXPECT_EQ(skip_text(run_formats(parse_policy("turboquant_k8v4"), "vllm", 3)), "0:2");
  EXPECT_EQ(skip_text(run_formats(parse_policy("int4_per_token_head"), "vllm")), "");
  ModelInfo model = model_of("llama");
  model.layers = 8;
  model.head_dim = 64;
  EXPECT_THAT(as_runtime_behaves(turboquant, "vllm", model).changes,
              Contains(HasSubstr("first 2 and last 2 layers stay at 16 bits")));
  model.head_dim = 80;
  EXPECT_THAT(error_of([&] { as_runtime_behaves(turboquant, "vllm", model); }),
              HasSubstr("takes heads of a power of two from 16 on"));
  const Policy two{.name = {},
                   .parts = {[] {
                     Precision part;
                     part.fixed = std::vector<KvFormats>(8, {KvFormat::fp8, KvFormat::fp8});
                     part.fixed->back() = {KvFormat::nvfp4, KvFormat::nvfp4};
                     return part;
                   }()}};
  EXPECT_THAT(error_of([&] { run_formats(two, "vllm"); }), HasSubstr("or in 16 bits"));
}

TEST(Runtimes, BackendsOfVllm) {
  const Policy fp8 = parse_policy("fp8");
  EXPECT_EQ(run_formats(fp8, "vllm:cpu")[0].keys, KvFormat::fp8_cpu);
  EXPECT_EQ(run_formats(fp8, "vllm:flashinfer")[0].keys, KvFormat::fp8);
  const auto run = [](const Policy& policy, const char* runtime) {
    return as_runtime_behaves(policy, runtime, model_of("llama"));
  };
  EXPECT_TRUE(std::get<Precision>(run(fp8, "vllm:triton").policy.parts[0]).fp8_queries);
  EXPECT_FALSE(std::get<Precision>(run(fp8, "vllm").policy.parts[0]).fp8_queries);
  EXPECT_THAT(run(fp8, "vllm:triton").changes, Contains(HasSubstr("rounded to E4M3")));
  EXPECT_THAT(error_of([&] { run(parse_policy("nvfp4"), "vllm:triton"); }),
              HasSubstr("vLLM (triton) cannot run"));
  EXPECT_THAT(error_of([] { runtime_named("vllm:rocm"); }),
              HasSubstr("backends of vLLM are cpu, flash-attn"));
  EXPECT_THAT(error_of([] { runtime_named("sglang:cpu"); }), HasSubstr("has no backends to name"));
}

TEST(Runtimes, IkLlamaCppHasTypesForItsEnds) {
  using enum KvFormat;
  const auto of = [](const std::vector<KvFormat>& keys) {
    Precision part;
    part.fixed.emplace();
    for (const KvFormat format : keys) part.fixed->push_back({format, q5_0});
    return Policy{.name = {}, .parts = {part}};
  };
  EXPECT_EQ(run_formats(of({q8_0, q8_0, q4_0, q4_0, f16}), "ik_llama.cpp", 5)[4].keys, f16);
  EXPECT_THAT(error_of([&] {
                run_formats(of({q8_0, q4_0, q8_0, q4_0}), "ik_llama.cpp", 4);
              }),
              HasSubstr("it stores the keys of its first layers"));
  EXPECT_THAT(error_of([&] {
                run_formats(of({q8_0, q4_0}), "llama.cpp", 2);
              }),
              HasSubstr("stores all layers in one format"));
}

TEST(Runtimes, PagesOfFormatsHoldABlockOf16BitLayers) {
  const FormatsTaken& taken = runtime_named("vllm").formats_taken;
  const auto page = [&](KvFormat format) { return page_tokens_of(taken, {{format, format}}, 128); };
  EXPECT_EQ(page(KvFormat::fp8), 64);
  EXPECT_EQ(page(KvFormat::int4_per_token_head), 64);
  EXPECT_EQ(page(KvFormat::turboquant_3bit_nc), 128);
  EXPECT_EQ(page_tokens_of(runtime_named("sglang").formats_taken, {}, 128), 0);
}

TEST(Runtimes, TransformersLlamaCutsTheCacheAlone) {
  const auto [policy, changes, unsaid] =
      as_runtime_behaves(lazy_layers(), "transformers", model_of("llama"));
  EXPECT_FALSE(policy.masks_prefill);
  EXPECT_TRUE(policy.rolling);
  EXPECT_EQ(std::get<SimLayerKv>(policy.parts[0]).keep.initial, 0);
  EXPECT_THAT(changes, Contains(HasSubstr("mask is not applied")));
}

TEST(Runtimes, ArchitecturesThatIgnoreTheSettingAreRefused) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"tensorrt-llm", "llama", "passes no window"}, {"tensorrt-llm", "qwen3", "passes no window"},
      {"tensorrt-llm", "phi3", "not known"},         {"transformers", "mistral", "shape error"},
      {"transformers", "phi3", "shape error"},       {"llama.cpp", "llama", "reads no window"},
      {"llama.cpp", "qwen2", "reads no window"},     {"llama.cpp", "phi3", "switches it off"},
      {"duo-attention", "qwen2", "Mistral alone"},   {"mlc-llm", "llama", "Mistral alone"},
      {"mlx-lm", "qwen2", "reads no layer types"},   {"mlx-lm", "gemma2", "reads no layer types"},
      {"sglang", "internlm2", "no code for it"}};
  for (const auto& [runtime, architecture, why] : cases) {
    EXPECT_THAT(refusal(lazy_layers(), runtime, architecture), HasSubstr(why));
    EXPECT_THAT(refusal_of(runtime_named(runtime), architecture), HasSubstr(why));
  }
}

TEST(Runtimes, BudgetsOfHeads) {
  HeadKv part;
  part.select.pooling = Pooling::maximum;
  const auto policy = [&] { return Policy{.name = {}, .parts = {part}}; };
  for (const char* runtime : {"kvpress", "kvcache-factory"})
    EXPECT_THAT(refusal(policy(), runtime), HasSubstr("budgets found beforehand")) << runtime;
  part.fixed = HeadBudgets(4, {10, 30});
  EXPECT_EQ(part_as<HeadKv>(policy(), "kvpress").select.pooling, Pooling::average);
  EXPECT_THAT(as_runtime_behaves(policy(), "kvpress", model_of("llama")).changes,
              Contains(HasSubstr("memory is not freed")));
  const auto factorys = part_as<HeadKv>(policy(), "kvcache-factory");
  EXPECT_EQ(factorys.select.window, 8);
  EXPECT_EQ(factorys.select.pooling, Pooling::maximum);
  EXPECT_EQ(factorys.fixed, part.fixed);
  EXPECT_EQ(part_as<HeadKv>(policy(), "vllm").fixed, part.fixed);
  EXPECT_THAT(refusal(policy(), "sglang"), HasSubstr("HeadKV"));
}

TEST(Runtimes, Kvpress) {
  const auto [policy, changes, unsaid] =
      as_runtime_behaves(lazy_layers(), "kvpress", model_of("llama"));
  EXPECT_EQ(std::get<SimLayerKv>(policy.parts[0]).keep.initial, 4);
  EXPECT_FALSE(policy.rolling || policy.masks_prefill);
  EXPECT_THAT(changes, ElementsAre(HasSubstr("prompt length")));
  const auto by_input = part_as<SimLayerKv>(parse_policy("simlayerkv:recent=256"), "kvpress");
  EXPECT_EQ(by_input.identify, SimLayerKv::Identify::prefill);
  EXPECT_EQ(by_input.w_last, 1);
  EXPECT_TRUE(by_input.without_own_key);
  EXPECT_EQ(by_input.keep.recent, 255);
  EXPECT_THAT(as_runtime_behaves(lazy_heads(), "kvpress", model_of("llama")).changes,
              ElementsAre(HasSubstr("memory is not freed")));
  EXPECT_EQ(part_as<DynamicKv>(budgets(Pooling::maximum), "kvpress").select.pooling,
            Pooling::average);
  EXPECT_THAT(refusal(parse_policy("dynamickv"), "kvpress"), HasSubstr("budgets found beforehand"));
  EXPECT_THAT(as_runtime_behaves(parse_policy("lagkv"), "kvpress", model_of("llama")).changes,
              Contains(HasSubstr("nothing is cut while decoding")));
  EXPECT_THAT(refusal(parse_policy("local"), "kvpress"), HasSubstr("variants"));
  EXPECT_THAT(refusal(parse_policy("pod"), "kvpress"), HasSubstr("PoD"));
  EXPECT_THAT(refusal(parse_policy("simlayerkv:granularity=head"), "kvpress"),
              HasSubstr("not for heads"));
}

TEST(Runtimes, DuoAttentionRollsWithFirstTokens) {
  for (const Policy& given : {lazy_layers(), lazy_heads()}) {
    const auto [policy, changes, unsaid] =
        as_runtime_behaves(given, "duo-attention", model_of("mistral"));
    EXPECT_EQ(std::get<SimLayerKv>(policy.parts[0]).keep.initial, 4);
    EXPECT_TRUE(policy.rolling);
    EXPECT_FALSE(policy.masks_prefill);
    EXPECT_THAT(changes, ElementsAre("the window keeps its size while decoding"));
  }
}

TEST(Runtimes, Repositories) {
  Policy policy = lazy_layers();
  std::get<SimLayerKv>(policy.parts[0]).threshold = 0.7;
  const auto [theirs, changes, unsaid] =
      as_runtime_behaves(policy, "simlayerkv", model_of("llama"));
  const auto& part = std::get<SimLayerKv>(theirs.parts[0]);
  EXPECT_FALSE(part.fixed);
  EXPECT_EQ(part.threshold, 0.7);
  EXPECT_EQ(part.keep.recent, 1024);
  EXPECT_THAT(changes,
              ElementsAre(HasSubstr("fixed layers are not used"), HasSubstr("1024 recent tokens")));
  EXPECT_THAT(refusal(parse_policy("streaming"), "simlayerkv"), HasSubstr("threshold alone"));

  EXPECT_FALSE(part_as<DynamicKv>(budgets(), "dynamickv").fixed);
  EXPECT_THAT(as_runtime_behaves(parse_policy("dynamickv:update=4"), "dynamickv", model_of("llama"))
                  .changes,
              Contains(HasSubstr("no interval of updates")));
  EXPECT_THAT(as_runtime_behaves(parse_policy("dynamickv"), "dynamickv", model_of("llama")).changes,
              IsEmpty());
  EXPECT_THAT(as_runtime_behaves(parse_policy("lagkv"), "lagkv", model_of("llama")).changes,
              IsEmpty());
  EXPECT_THAT(refusal(parse_policy("l2"), "lagkv"), HasSubstr("variants"));
  EXPECT_THAT(refusal(lazy_layers(), "lagkv"), HasSubstr("fixed lazy layers"));

  const auto head_kv = part_as<DynamicKv>(budgets(), "kvcache-factory");
  EXPECT_EQ(head_kv.select.window, 8);
  EXPECT_EQ(head_kv.select.budget, 120);  // 112 in the mean, and the window
  EXPECT_EQ(head_kv.select.pooling, Pooling::maximum);
  EXPECT_THAT(*head_kv.fixed, ElementsAre(100, 120, 80, 148));
}

TEST(Runtimes, WhatPatchesAModelKnowsItsArchitecture) {
  EXPECT_THAT(refusal(budgets(), "dynamickv", "phi3"), HasSubstr("changes nothing of others"));
  EXPECT_THAT(refusal(budgets(), "kvcache-factory", "qwen2"), HasSubstr("Llama and Mistral alone"));
  EXPECT_EQ(refusal(budgets(), "dynamickv", "qwen2"), "");
}

TEST(Runtimes, OneSettingForAllLayers) {
  const auto [policy, changes, unsaid] =
      as_runtime_behaves(parse_policy("streaming:recent=100"), "openvino", model_of("llama"));
  const auto& part = std::get<Streaming>(policy.parts[0]);
  EXPECT_EQ(part.keep.initial, 32);
  EXPECT_EQ(part.keep.recent, 160);
  EXPECT_TRUE(policy.rolling);
  EXPECT_EQ(part_as<H2o>(budgets(), "openvino").budget, 128);
  EXPECT_THAT(refusal(lazy_layers(), "mlc-llm", "mistral"), HasSubstr("all layers or none"));
  const auto mlc = as_runtime_behaves(parse_policy("streaming"), "mlc-llm", model_of("mistral"));
  EXPECT_EQ(std::get<Streaming>(mlc.policy.parts[0]).keep.initial, 4);
  EXPECT_TRUE(mlc.policy.masks_prefill && mlc.policy.rolling);
  EXPECT_THAT(refusal(parse_policy("streaming"), "mlx-lm"), HasSubstr("a full layer"));
}

TEST(Runtimes, WhatNoneIsGiven) {
  EXPECT_THAT(refusal(parse_policy("simlayerkv"), "vllm"), HasSubstr("fixed beforehand"));
  for (const auto& one : {std::pair{lazy_layers(), "minference"},
                          {lazy_heads(), "kvcache-factory"},
                          {lazy_layers(), "openvino"},
                          {budgets(), "tensorrt-llm"},
                          {budgets(), "transformers"}}) {
    SCOPED_TRACE(one.second);
    EXPECT_NE(as_runtime_behaves(one.first, one.second, model_of("llama")).not_simulated, "");
    EXPECT_THAT(error_of([&] { simulated_in_runtime(one.first, one.second, model_of("llama")); }),
                HasSubstr("not simulated"));
  }
  EXPECT_THAT(refusal(budgets(), "transformers", "qwen2"), HasSubstr("different sizes"));
  EXPECT_THAT(refusal(parse_policy("h2o"), "kvpress"), HasSubstr("a ratio by hand"));
  EXPECT_THAT(refusal(parse_policy("h2o"), "transformers-cache"), HasSubstr("a score selects"));
  EXPECT_THAT(refusal(parse_policy("quest"), "vllm"), HasSubstr("baseline"));
  EXPECT_THAT(refusal(parse_policy("simlayerkv+lagkv"), "kvpress"), HasSubstr("one method"));
  EXPECT_THAT(refusal(parse_policy("simlayerkv:opposite=1"), "kvpress"), HasSubstr("control"));
  for (const char* runtime : {"transformers-cache", "kvpress"})
    EXPECT_THAT(refusal(parse_policy("dynamickv:heads=query"), runtime),
                HasSubstr("'heads=query' is for 'kvatlas evaluate'"));
  EXPECT_THAT(refusal(parse_policy("pod:prefill=shared"), "transformers-cache"),
              HasSubstr("'prefill=shared' is for 'kvatlas evaluate'"));
}

/// Runtimes that replace a model's attention or its caches by their own are not given what those
/// lack.
TEST(Runtimes, WhatTheirAttentionDoesNotKnow) {
  EXPECT_THAT(refusal(parse_policy("pod"), "transformers-cache", "gpt_oss"), HasSubstr("no sinks"));
  EXPECT_THAT(refusal(parse_policy("full+kv4"), "transformers-cache", "llama4"),
              HasSubstr("no chunks"));
  EXPECT_THAT(refusal(lazy_layers(), "sglang", "llama4"), HasSubstr("chunks"));
  EXPECT_THAT(refusal(parse_policy("lagkv"), "lagkv", "gpt_oss"), HasSubstr("4.48 to 4.53"));
  EXPECT_THAT(refusal(parse_policy("lagkv"), "kvpress", "gpt_oss"), HasSubstr("windows"));
  EXPECT_THAT(refusal(lazy_heads(), "minference", "qwen3"), HasSubstr("one of Llama's"));
  // Scores by queries that kvpress computes anew.
  EXPECT_THAT(refusal(budgets(), "kvpress", "qwen3_moe"), HasSubstr("queries anew"));
  EXPECT_THAT(refusal(parse_policy("simlayerkv"), "kvpress", "olmo2"), HasSubstr("queries anew"));
  EXPECT_NO_THROW(as_runtime_behaves(lazy_layers(), "kvpress", model_of("qwen3_moe")));
  EXPECT_NO_THROW(as_runtime_behaves(budgets(), "kvpress", model_of("qwen3")));
}

TEST(Runtimes, NoneIsGivenLayersThatAreNotAlike) {
  ModelInfo model = model_of("new");
  EXPECT_EQ(why_no_runtime(model), "");
  model.cached_values = {32, 32, 0, 0};
  EXPECT_THAT(why_no_runtime(model), HasSubstr("different numbers"));
  model.latent_rank = 24;
  EXPECT_THAT(why_no_runtime(model), HasSubstr("one latent"));
  model.layer_numbers = {3, 7, 11, 15};
  EXPECT_THAT(why_no_runtime(model), HasSubstr("without attention"));
}

TEST(Runtimes, BudgetsThatHoldWhileDecoding) {
  for (const auto& runtime : runtimes())
    if (!runtime.takes(Form::decoding)) {
      EXPECT_THAT(
          refusal(parse_policy("decoding:by=tova"), runtime.name.c_str()),
          testing::AllOf(HasSubstr(runtime.title), HasSubstr("cannot run 'decoding:by=tova'"),
                         HasSubstr("a budget that holds while tokens are generated")))
          << runtime.name;
    }
  const auto kvpress = [](const char* text) {
    return as_runtime_behaves(parse_policy(text), "kvpress", model_of("llama"));
  };
  const auto tova = kvpress("decoding:by=tova");
  EXPECT_TRUE(std::get<Decoding>(tova.policy.parts.at(0)).whole_prompt);
  EXPECT_THAT(tova.changes, ElementsAre(HasSubstr("leaves the prompt whole")));
  EXPECT_EQ(tova.not_simulated, "");
  EXPECT_EQ(kvpress("decoding:by=snapkv,window=1,kernel=1,prompt=whole").not_simulated, "");
  EXPECT_THAT(kvpress("decoding:by=snapkv,window=8,kernel=1").not_simulated,
              HasSubstr("last token's place"));
  for (const char* by : {"h2o", "l2", "rkv", "streaming"})
    EXPECT_THAT(refusal(parse_policy(str("decoding:by=", by)), "kvpress"),
                HasSubstr(str("its presses know no '", by, "'")));
  EXPECT_THAT(refusal(parse_policy("decoding:by=tova"), "tensorrt-llm"),
              HasSubstr("by TriAttention alone"));
  const auto triattention = parse_policy("decoding:by=triattention,every=128");
  EXPECT_THAT(as_runtime_behaves(triattention, "tensorrt-llm", model_of("llama")).not_simulated,
              HasSubstr("statistics from a file"));
  ModelInfo windows = model_of("mistral");
  windows.windows.assign(static_cast<std::size_t>(windows.layers), 32);
  EXPECT_THROW(as_runtime_behaves(triattention, "tensorrt-llm", windows), Error);
}

TEST(Runtimes, SelectionsAreRefusedByName) {
  for (const char* text :
       {"adakv", "chunkkv", "criticalkv", "tova", "keydiff", "expected-attention", "kvzip"})
    for (const auto& runtime : runtimes()) {
      SCOPED_TRACE(str(text, " in ", runtime.name));
      const auto policy = parse_policy(text);
      // vLLM's attention does not see what these score by.
      const bool unseen =
          runtime.name == "vllm" && (policy.parts[0].index() == Part(CriticalKv{}).index() ||
                                     policy.parts[0].index() == Part(ExpectedAttention{}).index());
      if (unseen || !runtime.takes(form_of(policy.parts[0]).value())) {
        EXPECT_THAT(
            refusal(policy, runtime.name.c_str()),
            testing::AllOf(HasSubstr(runtime.title), HasSubstr(str("cannot run '", text, "'"))));
        continue;
      }
      EXPECT_EQ(policy_text(as_runtime_behaves(policy, runtime.name, model_of("llama")).policy),
                text);
    }
  EXPECT_EQ(part_as<AdaKv>(parse_policy("adakv:pooling=max"), "kvpress").select.pooling,
            Pooling::average);
  EXPECT_THAT(as_runtime_behaves(parse_policy("adakv"), "kvpress", model_of("llama")).changes,
              Contains(HasSubstr("memory is not freed")));
  EXPECT_THAT(refusal(parse_policy("adakv:heads=query"), "kvpress"), HasSubstr("'heads=query'"));
  EXPECT_THAT(refusal(parse_policy("kvzip"), "kvpress", "gemma3"), HasSubstr("no Gemma 3"));
  // Beside a part that is taken, too.
  EXPECT_THAT(refusal(parse_policy("simlayerkv+tova"), "transformers-cache"),
              HasSubstr("it cannot take tokens that a score selects"));
}

TEST(Runtimes, OurCacheChangesNothing) {
  for (const char* text : {"simlayerkv:granularity=head+lagkv:variant=l2+kv4+rolling", "pod",
                           "dynamickv", "streaming", "full+kv2"}) {
    const auto [policy, changes, unsaid] =
        as_runtime_behaves(parse_policy(text), "transformers-cache", model_of("llama"));
    EXPECT_EQ(policy_text(policy), policy_text(parse_policy(text)));
    EXPECT_THAT(changes, IsEmpty());
  }
}

TEST(Runtimes, OurBitsAreNotTheirs) {
  for (const char* text : {"full+kv4", "lagkv+kv4"}) {
    const auto [policy, changes, unsaid] =
        as_runtime_behaves(parse_policy(text), "kvpress", model_of("llama"));
    EXPECT_EQ(policy.kv_bits, 16);
    EXPECT_THAT(changes, Contains(HasSubstr("16 bits, not in 4")));
  }
}

}  // namespace
}  // namespace kvatlas::calibrate
