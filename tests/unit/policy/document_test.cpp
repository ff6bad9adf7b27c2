// SPDX-License-Identifier: Apache-2.0
// The policy document: round trips, canonical bytes, versions, and hostile text.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/places.hpp"
#include "tests/unit/policy/documents.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing_support::error_of;

json full_json() { return json::parse(document_text(full_document())); }

std::string refusal(const json& document) {
  try {
    parse_document(document.dump());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unreadable) << error.what();
    return error.what();
  }
  return "";
}

/// The refusal of the full document with one value set anew.
std::string refusal_with(const char* pointer, const json& value) {
  json document = full_json();
  document[json::json_pointer(pointer)] = value;
  return refusal(document);
}

TEST(Document, FullRoundTrip) {
  const Document before = full_document();
  const std::string text = document_text(before);
  const Document after = parse_document(text);
  EXPECT_EQ(document_text(after), text);
  EXPECT_EQ(after.model.name, "Tiny");
  EXPECT_EQ(after.model.kv_heads, 2);
  EXPECT_EQ(after.provenance.seed, 7u);
  EXPECT_THAT(after.provenance.lengths, ElementsAre(128, 512));
  EXPECT_EQ(after.sections.size(), 8u);
  EXPECT_EQ(after.sections["simlayerkv"]["curve"][0]["score"], 0.9875);
  EXPECT_EQ(after.runtime, "vllm");
  EXPECT_EQ(after.pareto[0]["score"], 0.333333333);
  EXPECT_TRUE(after.unknown.empty());
}

TEST(Document, RandomRoundTrips) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto text = document_text(random_document(seed));
    EXPECT_EQ(document_text(parse_document(text)), text) << seed;
  }
}

TEST(Document, CanonicalBytes) {
  Document document;
  document.model = {"m", "llama", "", 2, 2, 1, 4};
  Streaming part;
  document.sections["baseline"] = section_of(part);
  document.sections["baseline"]["savings"] = {
      {"nothing", json::object()}, {"share", 0.1 + 0.2}, {"whole", 2.0}, {"small", -0.0}};
  EXPECT_EQ(document_text(document), R"({
  "baseline": {
    "name": "streaming",
    "result": {},
    "savings": {
      "nothing": {},
      "share": 0.3,
      "small": 0,
      "whole": 2
    },
    "settings": {
      "initial": 4,
      "recent": 1024
    }
  },
  "kv_bits": 16,
  "model": {
    "architecture": "llama",
    "fingerprint": "",
    "head_dim": 4,
    "heads": 2,
    "kv_heads": 1,
    "layers": 2,
    "name": "m"
  },
  "provenance": {
    "lengths": [],
    "profile": "",
    "samples": 0,
    "seed": 0,
    "tasks": [],
    "tool_version": ""
  },
  "schema": "kvatlas.policy/1.0"
}
)");
  const auto full = document_text(full_document());
  EXPECT_THAT(full, HasSubstr("\"lazy_layers\": [false, true, true, false]"));
  EXPECT_THAT(full, HasSubstr("\"lowest\": [\n        [0, 0, 2, 2],\n        [0, 1, 1, 1],"));
}

TEST(Document, PartsComeBackFromSections) {
  const Document document = parse_document(document_text(full_document()));
  const auto lazy = std::get<SimLayerKv>(part_of("simlayerkv", document.sections["simlayerkv"]));
  EXPECT_EQ(lazy.threshold, 0.7);
  ASSERT_TRUE(lazy.fixed);
  EXPECT_EQ(*lazy.fixed, (LazyHeads{{0}, {1}, {1}, {0}}));
  const auto pod = std::get<Pod>(part_of("pod", document.sections["pod"]));
  EXPECT_THAT(pod.lowest[0], ElementsAre(0, 0, 2, 2));
  const auto heads = std::get<SimLayerKv>(part_of("heads", document.sections["heads"]));
  EXPECT_TRUE(heads.per_head);
  EXPECT_EQ(heads.keep.initial, 64);
  EXPECT_EQ(heads.fixed->at(3), (std::vector<std::uint8_t>{0, 1}));
  SimLayerKv by_head;
  by_head.fixed = LazyHeads{{1, 0}, {1}};
  EXPECT_EQ(*std::get<SimLayerKv>(part_of("simlayerkv", section_of(by_head))).fixed,
            *by_head.fixed);
}

/// What is inline and what is a section say the same, for every name and each of its keys.
TEST(Document, InlinePoliciesSurviveTheSection) {
  const std::string lazy =
      "simlayerkv:threshold=0.5,initial=1,recent=2,identify=prefill,w_last=3,granularity=head,"
      "opposite=1";
  for (const std::string& text : std::vector<std::string>{
           "streaming:recent=9",
           "window:recent=9",
           lazy,
           "pod:delta=0.25,initial=1,recent=2,granularity=head,tau=0.5,blocks=p.h5",
           "dynamickv:window=8,budget=64,kernel=5,pooling=max,r_max=2.5,update=3",
           "lagkv:sink=1,lag=64,ratio=1/6",
           "local:lag=64",
           "l2:lag=64",
           "snapkv:budget=64",
           "pyramidkv:budget=64",
           "h2o:budget=64",
           "headkv:budget=64,safeguard=0.5",
           "adakv:budget=64,pooling=max,safeguard=0.5",
           "chunkkv:budget=64,chunk=9",
           "criticalkv:window=8,share=0.25,epsilon=0.5",
           "tova:budget=64",
           "keydiff:budget=64",
           "expected-attention:sink=2,future=64,covariance=0,values=0",
           "expected-attention:epsilon=0.25",
           "kvzip:budget=64,sink=2,chunk=9,layerwise=1",
           "decoding:budget=64,every=32,by=rkv,window=8,kernel=5,lambda=0.25",
           "decoding:by=streaming,initial=2,prompt=whole",
           "pyramid-layers:layers=0",
           "random-layers:threshold=0.5,from=upper,seed=18446744073709551615",
           "minicache:t=0.5,retain=0",
           "quest:page=4,budget=64",
           "quest:page=1,budget=1",
           "share-values:delta=1,recent=0",
           "vertical-slash:vertical=30,slash=100,last=1"}) {
    const Part part = parse_policy(text).parts.at(0);
    Document document = full_document();
    document.compose.clear();
    document.kv_bits = 16;
    document.sections = json::object();
    document.sections[section_name(part)] = section_of(part);
    const auto policies = policies_of(parse_document(document_text(document)));
    ASSERT_THAT(policies, SizeIs(1));
    EXPECT_EQ(policy_text(policies[0]), text);
  }
}

/// The schema lists the settings that the code writes, no more and no fewer.
TEST(Document, SchemaListsTheSettings) {
  const json schema = json::parse(document_schema());
  const auto listed = [&](const char* section) {
    std::set<std::string> keys;
    for (const auto& [key, value] :
         schema["properties"][section]["properties"]["settings"]["properties"].items())
      keys.insert(key);
    return keys;
  };
  std::map<std::string, std::set<std::string>> written;
  for (const char* text : {"streaming",
                           "simlayerkv",
                           "pod:blocks=p.h5",
                           "dynamickv",
                           "headkv",
                           "lagkv",
                           "snapkv",
                           "pyramidkv",
                           "adakv",
                           "chunkkv",
                           "criticalkv",
                           "h2o:heavy=8",
                           "tova",
                           "keydiff",
                           "expected-attention",
                           "kvzip",
                           "decoding",
                           "pyramid-layers",
                           "random-layers:layers=1",
                           "minicache",
                           "share-values:delta=0.25",
                           "quest",
                           "vertical-slash:vertical=100,slash=200,last=32,initial=4,recent=9"}) {
    const Part part = parse_policy(text).parts.at(0);
    const json section = section_of(part);
    for (const auto& [key, value] : section["settings"].items())
      written[section_name(part)].insert(key);
  }
  for (const auto& [section, keys] : written) EXPECT_EQ(listed(section.c_str()), keys) << section;
}

TEST(Document, Policies) {
  Document document = full_document();
  auto policies = policies_of(document);
  ASSERT_THAT(policies, SizeIs(1));
  EXPECT_EQ(policies[0].name, "simlayerkv:threshold=0.7+lagkv+kv4");
  EXPECT_THAT(policies[0].parts, SizeIs(2));
  document.compose.clear();
  EXPECT_THAT(policies_of(document), SizeIs(8));
  // The bits of the document are of all policies but the one that says itself how numbers are
  // stored.
  for (const Policy& policy : policies_of(document))
    EXPECT_EQ(policy.kv_bits, policy.section == "precision" ? 16 : 4) << policy.name;
  const auto budgets = [&](const std::string& task) {
    return *std::get<DynamicKv>(policies_of(document, task).at(2).parts.at(0)).fixed;
  };
  EXPECT_THAT(budgets(""), ElementsAre(100, 120, 80, 148));
  EXPECT_THAT(budgets("needle"), ElementsAre(90, 130, 80, 148));
  // Fixed budgets are told from the text of the policy that finds them for each prompt.
  const std::string text = policy_text(policies_of(document).at(2));
  EXPECT_EQ(policies_of(document).at(2).name, text + " (one for all)");
  EXPECT_EQ(policies_of(document, "needle").at(2).name, text + " (for needle)");
  document.sections["dynamickv"]["result"].erase("budgets");
  EXPECT_EQ(policies_of(document).at(2).name, text);
  EXPECT_THAT(error_of([&] { budgets("passkey"); }),
              AllOf(HasSubstr("no budgets for task 'passkey'"), HasSubstr("needle")));
}

TEST(Document, NewerMinorVersionIsKept) {
  json newer = full_json();
  newer["schema"] = "kvatlas.policy/1.7";
  newer["hints"] = {{"a", 1}};
  const Document document = parse_document(newer.dump());
  EXPECT_EQ(document.unknown["hints"]["a"], 1);
  EXPECT_EQ(json::parse(document_text(document)), newer);
  // A setting that is not understood may not be passed over: the policy would be another.
  newer["lagkv"]["settings"]["warmup"] = 3;
  EXPECT_THAT(refusal(newer), AllOf(HasSubstr("lagkv"), HasSubstr("warmup")));
}

TEST(Document, OtherSchemasAreRefusedByName) {
  EXPECT_THAT(refusal_with("/schema", "kvatlas.policy/2.0"),
              AllOf(HasSubstr("'kvatlas.policy/2.0'"), HasSubstr("newer major")));
  for (const char* schema :
       {"kvatlas.policy/1", "kvatlas.policy/1.", "kvatlas.policy/1.0x", "kvatlas.policy/0.9",
        "kvatlas.profile/1.0", "", "kvatlas.policy/99999999999999999999.0"})
    EXPECT_THAT(refusal_with("/schema", schema), HasSubstr("expected kvatlas.policy/1.0"))
        << schema;
  EXPECT_THAT(refusal_with("/schema", 1), HasSubstr("no 'schema'"));
  EXPECT_THAT(refusal(json::array()), HasSubstr("no policy document"));
  EXPECT_THAT(refusal_with("/simlayerkw", json::object()), HasSubstr("no member 'simlayerkw'"));
}

TEST(Document, WindowsOfTheModelComeBack) {
  Document document = full_document();
  EXPECT_FALSE(json::parse(document_text(document))["model"].contains("windows"));
  document.model.windows = {512, 0, 512, 512};
  const std::string text = document_text(document);
  EXPECT_THAT(text, HasSubstr("\"windows\": [512, 0, 512, 512]"));
  EXPECT_EQ(parse_document(text).model.windows, document.model.windows);
}

TEST(Document, WhatLayersCacheComesBack) {
  Document document = full_document();
  document.model.layer_numbers = {3, 7, 11, 15};
  document.model.cached_values = {32, 32, 32, 64};
  document.model.latent_rank = 24;
  document.sections = nlohmann::json::object();
  document.compose.clear();
  document.kv_bits = 16;
  document.kv_residual = 0;
  const ModelInfo model = parse_document(document_text(document)).model;
  EXPECT_EQ(model.layer_numbers, document.model.layer_numbers);
  EXPECT_EQ(model.cached_values, document.model.cached_values);
  EXPECT_EQ(model.latent_rank, 24);
  EXPECT_THAT(refusal_with("/model/layer_numbers", {3, 7, 7, 15}),
              HasSubstr("model.layer_numbers are not distinct and ascending"));
  EXPECT_THAT(refusal_with("/model/cached_values", {32}), HasSubstr("model.cached_values has 1"));
}

TEST(Policies, WhatACacheCannotDoIsRefused) {
  const auto why_not = [](const std::string& policy, const ModelInfo& model) {
    return error_of([&] { check_cache(parse_policy(policy), model); });
  };
  ModelInfo latent, shared, sizes, plain;
  for (ModelInfo* model : {&latent, &shared, &sizes}) model->cached_values = {40, 40};
  latent.latent_rank = 32;
  shared.cached_values[1] = 0;
  sizes.cached_values[1] = 80;
  EXPECT_NO_THROW(check_cache(parse_policy("lagkv+kv4"), plain));
  for (const ModelInfo* model : {&latent, &shared, &sizes})
    EXPECT_NO_THROW(check_cache(parse_policy("streaming"), *model));
  for (const char* policy :
       {"simlayerkv", "tova", "chunkkv", "decoding:by=tova", "decoding:by=streaming"})
    EXPECT_NO_THROW(check_cache(parse_policy(policy), latent)) << policy;
  for (const char* policy :
       {"snapkv", "dynamickv", "adakv", "criticalkv", "h2o", "keydiff", "expected-attention",
        "kvzip", "decoding", "lagkv", "pod", "minicache", "quest"})
    EXPECT_THAT(why_not(policy, latent), HasSubstr("one latent for all heads")) << policy;
  for (const ModelInfo* model : {&latent, &shared, &sizes}) {
    EXPECT_THAT(why_not("share-values", *model), HasSubstr("values cannot be compared"));
    EXPECT_NO_THROW(check_cache(parse_policy("vertical-slash"), *model));
  }
  for (const char* policy : {"simlayerkv", "tova", "chunkkv"})
    EXPECT_THAT(why_not(policy, shared), HasSubstr("read the keys of others")) << policy;
  EXPECT_THAT(why_not("lagkv", sizes), HasSubstr("heads of different sizes"));
  EXPECT_NO_THROW(check_cache(parse_policy("snapkv+kv4"), sizes));
  for (const ModelInfo* model : {&latent, &shared})
    for (const char* policy : {"kv4", "precision"})
      EXPECT_THAT(why_not(policy, *model), HasSubstr("is not simulated")) << policy;
}

TEST(Document, FormatsByLayer) {
  json all = full_json();
  all["compose"] = {"precision", "simlayerkv"};
  all["kv_bits"] = 16;
  const auto policies = policies_of(parse_document(all.dump()));
  ASSERT_EQ(policies.size(), 1u);
  EXPECT_EQ(formats_of(policies[0], 4).at(1), (KvFormats{KvFormat::q8_0, KvFormat::q4_0}));
  EXPECT_THAT(policies[0].name, HasSubstr("(by layer)"));
  EXPECT_THAT(refusal_with("/precision/result/keys", {"fp8", "fp8", "fp8"}),
              HasSubstr("formats of 3 layers' keys and of 4 layers' values"));
  EXPECT_THAT(refusal_with("/precision/result/keys/2", "fp4"),
              HasSubstr("precision.result.keys.2: "));
  json three = all;
  three["precision"]["result"] = {{"keys", {"16", "16", "16"}}, {"values", {"16", "16", "16"}}};
  EXPECT_THAT(refusal(three), HasSubstr("result.keys has 3 entries, and the model has 4 layers"));
  all["kv_bits"] = 4;
  EXPECT_THAT(refusal(all), HasSubstr("both say how numbers are stored"));
}

TEST(Document, RefusalsNameThePlace) {
  EXPECT_THAT(refusal_with("/simlayerkv/settings/threshold", 1.5),
              AllOf(HasSubstr("simlayerkv.settings.threshold: "), HasSubstr("1.5")));
  EXPECT_THAT(refusal_with("/simlayerkv/settings/recent", "256"),
              AllOf(HasSubstr("simlayerkv.settings.recent: "), HasSubstr("\"256\"")));
  EXPECT_THAT(refusal_with("/simlayerkv/settings/recent", 0), HasSubstr("settings.recent: "));
  EXPECT_THAT(refusal_with("/simlayerkv/settings/recnt", 4), HasSubstr("recnt"));
  EXPECT_THAT(refusal_with("/simlayerkv/result/lazy_layers/2", 1),
              HasSubstr("simlayerkv.result.lazy_layers.2: "));
  EXPECT_THAT(refusal_with("/model/layers", 4.5), HasSubstr("model.layers: "));
  EXPECT_THAT(refusal_with("/model/windows", {512, 0, -1, 0}), HasSubstr("model.windows.2: "));
  EXPECT_THAT(refusal_with("/kv_bits", 8), HasSubstr("kv_bits: "));
  EXPECT_THAT(refusal_with("/baseline/name", "pod"), HasSubstr("baseline.name: "));
  EXPECT_THAT(refusal_with("/baseline/settings/page", 4), HasSubstr("no setting 'page'"));
  // A document of MiniCache whose setting was of the last tokens.
  EXPECT_THAT(refusal_with("/baseline", {{"name", "minicache"},
                                         {"settings", {{"t", 0.6}, {"recent", 1024}}},
                                         {"result", json::object()}}),
              HasSubstr("there is no setting 'recent': not the last tokens stay unmerged but those "
                        "that differ most, and 'retain' says how many"));
  json without = full_json();
  without["model"].erase("layers");
  EXPECT_THAT(refusal(without), AllOf(HasSubstr("model"), HasSubstr("layers")));
}

TEST(Document, RefusalsOfContradictions) {
  EXPECT_THAT(refusal_with("/simlayerkv/result/lazy_layers", {true, false}),
              HasSubstr("2 entries, and the model has 4 layers"));
  EXPECT_THAT(refusal_with("/model/windows", {512, 0}),
              HasSubstr("model.windows has 2 entries, and the model has 4 layers"));
  EXPECT_THAT(refusal_with("/heads/result/lazy_heads/1", {true, false, true}),
              HasSubstr("3 entries, and the model has 2 KV heads"));
  EXPECT_THAT(refusal_with("/simlayerkv/result/lazy_heads", json::array({json::array({true})})),
              HasSubstr("one of them"));
  EXPECT_THAT(refusal_with("/dynamickv/result/budgets", {1, 2, 3}), HasSubstr("3 entries"));
  EXPECT_THAT(refusal_with("/dynamickv/result/tasks/needle", {1}),
              HasSubstr("tasks.needle has 1 entries"));
  EXPECT_THAT(refusal_with("/pod/result/lowest/0", {0, 0, 1, 1}),
              HasSubstr("pod: result.lowest.0.2 is 1"));
  EXPECT_THAT(refusal_with("/pod/result/lowest/0/0", 1), HasSubstr("result.lowest.0.0 is 1"));
  EXPECT_THAT(refusal_with("/lagkv/result/kept", 33), HasSubstr("1/4 of 128 tokens are 32"));
  EXPECT_THAT(refusal_with("/lagkv/settings/ratio", "3/2"), HasSubstr("at most 1"));
  EXPECT_THAT(refusal_with("/baseline/settings/kernel", 4), HasSubstr("must be odd"));
  EXPECT_THAT(refusal_with("/model/kv_heads", 3), HasSubstr("no multiple"));
  EXPECT_THAT(refusal_with("/provenance/lengths", {512, 128}), HasSubstr("ascending"));
  EXPECT_THAT(refusal_with("/provenance/seed", -1), HasSubstr("seed is negative"));
  EXPECT_THAT(refusal_with("/compose", {"lagkv", "lagkv"}), HasSubstr("twice"));
  EXPECT_THAT(refusal_with("/compose", {"lagkv", "dynamickv"}), HasSubstr("both select tokens"));
  json without = full_json();
  without.erase("lagkv");
  EXPECT_THAT(refusal(without), HasSubstr("'lagkv', which the document lacks"));
}

TEST(Document, HostileText) {
  const auto refused = [](const std::string& text) {
    return error_of([&] { parse_document(text); });
  };
  EXPECT_THAT(refused(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"schema\": 1e999}"), Not(""));
  EXPECT_THAT(refused("{\"schema\": NaN}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("\xff\xfe"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refused(std::string((std::size_t{64} << 20) + 1, ' ')), HasSubstr("at most"));
  const std::string full = document_text(full_document());
  for (std::size_t length = 0; length + 2 < full.size(); length += 7)
    EXPECT_THAT(refused(full.substr(0, length)), Not("")) << length;
  EXPECT_THAT(refusal_with("/lagkv/settings/ratio", std::string(5'000'000, '1')),
              HasSubstr("lagkv.settings.ratio"));
  EXPECT_THAT(refusal_with("/simlayerkv/result/lazy_layers", std::vector<int>(2'000'000, 7)),
              HasSubstr("does not meet the schema"));
  EXPECT_THAT(refusal_with("/compose", std::vector<std::string>(50'000, "lagkv")), Not(""));
}

TEST(Document, WrongDocumentsAreNotWritten) {
  const auto refused = [](const Document& document) {
    return error_of([&] { document_text(document); });
  };
  Document document = full_document();
  document.sections["simlayerkv"]["savings"] = {{"ratio", std::nan("")}};
  EXPECT_THAT(refused(document),
              AllOf(HasSubstr("simlayerkv: savings: ratio"), HasSubstr("not finite")));
  document = full_document();
  document.model.layers = 0;
  EXPECT_THAT(refused(document), HasSubstr("model.layers: "));
  document = full_document();
  document.model.layers = 5;
  EXPECT_THAT(refused(document), HasSubstr("the model has 5 layers"));
  document = full_document();
  document.model.name = "\xff";
  EXPECT_THAT(refused(document), HasSubstr("not UTF-8"));
  document = full_document();
  document.sections["other"] = json::object();
  EXPECT_THAT(refused(document), HasSubstr("no section 'other'"));
}

std::string format_page() {
  std::ifstream in(kvatlas::testing_support::source_folder() / "docs/policy-format.md");
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(FormatPage, ExampleIsCanonical) {
  const auto page = format_page();
  const std::string fence = "```json\n";
  const auto begin = page.find(fence);
  ASSERT_NE(begin, page.npos);
  const auto start = begin + fence.size();
  const auto example = page.substr(start, page.find("```", start) - start);
  EXPECT_EQ(document_text(parse_document(example)), example);
}

TEST(FormatPage, HoldsTheHelp) { EXPECT_THAT(format_page(), HasSubstr(policy_help())); }

class DocumentFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              str("policy-", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(DocumentFile, WrittenAndRead) {
  const auto path = folder_ / "policy.json";
  write_document(full_document(), path, false);
  EXPECT_EQ(document_text(read_document(path)), document_text(full_document()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "no strays";
}

TEST_F(DocumentFile, NotOverAnother) {
  const auto path = folder_ / "policy.json";
  std::ofstream(path) << "mine";
  try {
    write_document(full_document(), path, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("--force"));
  }
  EXPECT_THAT(error_of([&] { read_document(path); }),
              AllOf(HasSubstr("policy.json': "), HasSubstr("not valid JSON")));
  write_document(full_document(), path, true);
  EXPECT_EQ(read_document(path).model.name, "Tiny");
}

TEST_F(DocumentFile, FailuresLeaveNothing) {
  EXPECT_THAT(error_of([&] { write_document(full_document(), folder_ / "no/p.json", false); }),
              HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { write_document(full_document(), folder_, true); }),
              HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { read_document(folder_ / "absent.json"); }), HasSubstr("absent.json"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST(Document, FourBitsAloneAreTheFullCacheInThem) {
  Document document;
  document.model = {"m", "llama", "f", 4, 4, 2, 8};
  EXPECT_TRUE(policies_of(parse_document(document_text(document))).empty());
  document.kv_bits = 4;
  document.search = {{"trials", 3}};
  const Document read = parse_document(document_text(document));
  ASSERT_EQ(policies_of(read).size(), 1u);
  EXPECT_EQ(policies_of(read)[0].name, "full+kv4");
  EXPECT_EQ(read.search.at("trials"), 3);
}

}  // namespace
}  // namespace kvatlas::calibrate
