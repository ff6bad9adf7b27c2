// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/choices_document.hpp"

#include <gmock/gmock.h>

#include "calibrate/methods/dynamickv.hpp"
#include "calibrate/methods/lagkv.hpp"
#include "calibrate/methods/pod.hpp"
#include "calibrate/methods/simlayerkv.hpp"
#include "export/exporters.hpp"
#include "tests/support/measured.hpp"
#include "tests/support/precision_section.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Document;
using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChoicesDocument : public testing::Test {
 protected:
  ChoicesDocument() {
    choices_.lazy_arrays.keep = {4, 64};
    choices_.lazy.threshold = 0.7;
    choices_.lazy.length = 1000;
    choices_.blocks.proximal = {4, 64};
    choices_.blocks.delta = 0.6;
    choices_.budgets.budget = 64;
  }
  const profile::Reader& reader() const { return profile_.reader(); }
  Document made(const std::vector<std::string>& sections,
                const std::vector<Document>& documents = {}) const {
    const auto samples = all_samples(reader());
    return choices_document(reader(), samples, choices_,
                            MethodReader(reader(), samples, choices_, documents).all(), documents,
                            sections);
  }
  /// As it is written and read again.
  static Document read_again(const Document& document) {
    return calibrate::parse_document(calibrate::document_text(document));
  }
  static void expect_same(const json& viewed, const json& calibrated) {
    EXPECT_EQ(calibrate::canonical_json(viewed), calibrate::canonical_json(calibrated));
  }
  static std::string exported(const Document& document, const std::string& runtime) {
    exporting::ExportRequest request;
    request.runtime = runtime;
    const auto result = exporting::export_document(document, request);
    return result.policies.empty() ? "" : result.policies.front().files.front().content;
  }

  OpenProfile profile_;
  Choices choices_;
};

TEST_F(ChoicesDocument, LazyLayersAsTheCommandLineHasThem) {
  calibrate::Request request;
  request.lengths = {1000};
  const calibrate::Evidence evidence(reader(), request);
  calibrate::SimLayerRequest lazy;
  lazy.policy.keep = {4, 64};
  lazy.threshold = 0.7;
  for (const bool fixed : {false, true})
    for (const bool per_head : {false, true}) {
      lazy.fixed = choices_.lazy.fixed = fixed;
      lazy.policy.per_head = choices_.lazy.per_head = per_head;
      const Document document = read_again(made({"simlayerkv"}));
      expect_same(document.sections["simlayerkv"],
                  calibrate::calibrate_simlayerkv(evidence, lazy, nullptr).section);
      EXPECT_EQ(document.model.fingerprint, "0123456789abcdef");
      EXPECT_EQ(document.provenance.profile, calibrate::profile_fingerprint(reader()));
      EXPECT_EQ(document.provenance.samples, 12);
      EXPECT_THAT(document.provenance.lengths, ElementsAre(300));
    }
}

TEST_F(ChoicesDocument, BlocksAndBudgetsAsTheCommandLineHasThem) {
  const calibrate::Evidence evidence(reader(), {});
  calibrate::PodRequest pod;
  pod.policy.proximal = {4, 64};
  pod.delta = 0.6;
  calibrate::DynamicRequest dynamic;
  dynamic.policy.select.budget = 64;
  const Document document = read_again(made({"pod", "dynamickv"}));
  const auto blocks = calibrate::calibrate_pod(evidence, pod, nullptr).section;
  const auto budgets = calibrate::calibrate_dynamickv(evidence, dynamic, nullptr).section;
  for (const char* member : {"settings", "result", "samples"}) {
    expect_same(document.sections["pod"][member], blocks[member]);
    expect_same(document.sections["dynamickv"][member], budgets[member]);
  }
  expect_same(document.sections["pod"]["keys_dropped"], blocks["keys_dropped"]);
}

TEST_F(ChoicesDocument, TheSweepsCandidateAsChosen) {
  const calibrate::Evidence evidence(reader(), {});
  calibrate::LagRequest request;
  request.lags = {32, 64};
  request.ratios = {"1/2", "1/4"};
  Document swept = made({"pod"});
  swept.sections = {{"lagkv", calibrate::calibrate_lagkv(evidence, request, nullptr).section}};
  const SweepModel model = sweep_model(swept.sections["lagkv"]);
  for (std::size_t i = 0; i < model.candidates.size(); ++i) {
    choices_.lag_candidate = static_cast<int>(i);
    const auto settings = read_again(made({"lagkv"}, {swept})).sections["lagkv"]["settings"];
    EXPECT_EQ(settings["lag"], model.candidates[i].lag);
    EXPECT_EQ(settings["ratio"], model.candidates[i].ratio);
    EXPECT_EQ(settings["variant"], model.candidates[i].variant);
  }
  choices_.lag_candidate = 99;
  EXPECT_THAT(refusal([&] { made({"lagkv"}, {swept}); }), HasSubstr("choose one"));
  EXPECT_THAT(refusal([&] { made({"lagkv"}); }), HasSubstr("kvatlas calibrate lagkv"));
}

TEST_F(ChoicesDocument, NumberFormatsOfAPointAsChosen) {
  Document calibrated = made({"pod"});
  calibrated.sections = {{"precision", testing_support::precision_section()}};
  EXPECT_THAT(possible_sections(reader(), {&calibrated, 1}), Contains("precision"));
  // The document's own policy stays with all that is known of it, and so does its point.
  for (const int point : {-1, 1}) {
    choices_.precision_point = point;
    const json same = read_again(made({"precision"}, {calibrated})).sections["precision"];
    expect_same(same, calibrated.sections["precision"]);
  }
  choices_.precision_point = 2;
  const json section = read_again(made({"precision"}, {calibrated})).sections["precision"];
  expect_same(section["result"],
              {{"keys", {"16", "q8_0", "q8_0", "16"}}, {"values", {"16", "q8_0", "q8_0", "16"}}});
  EXPECT_FALSE(section.contains("measured"));
  choices_.precision_point = 3;
  EXPECT_THAT(refusal([&] { made({"precision"}, {calibrated}); }), HasSubstr("choose one"));
  EXPECT_THAT(refusal([&] { made({"precision"}); }), HasSubstr("kvatlas calibrate precision"));
}

TEST_F(ChoicesDocument, WhatIsKnownOfThePolicyStays) {
  Document measured = read_again(made({"simlayerkv"}));
  measured.sections["simlayerkv"]["measured"] = testing_support::measured_json(0.9, 0.6);
  EXPECT_TRUE(made({"simlayerkv"}, {measured}).sections["simlayerkv"].contains("measured"));
  Document composed = measured;
  composed.compose = {"simlayerkv", "lagkv"};
  EXPECT_FALSE(made({"simlayerkv"}, {composed}).sections["simlayerkv"].contains("measured"));
  choices_.lazy.threshold = 0.71;
  EXPECT_FALSE(made({"simlayerkv"}, {measured}).sections["simlayerkv"].contains("measured"));
}

TEST_F(ChoicesDocument, IsExported) {
  const Document document = read_again(made({"simlayerkv", "dynamickv"}));
  EXPECT_THAT(exported(document, "transformers"), HasSubstr("sliding_attention"));
  EXPECT_THAT(exported(document, "kvpress"), HasSubstr("0.7"));
}

TEST_F(ChoicesDocument, SaysWhatIsMissing) {
  EXPECT_THAT(refusal([&] { made({}); }), HasSubstr("no policy is chosen"));
  EXPECT_THAT(refusal([&] { made({"quest"}); }), HasSubstr("'quest'"));
  const OpenProfile bare({.lazy = false, .js = false, .scores = false});
  EXPECT_THAT(possible_sections(bare.reader(), {}), IsEmpty());
  EXPECT_THAT(possible_sections(reader(), {}), ElementsAre("simlayerkv", "pod", "dynamickv"));
  EXPECT_THAT(refusal([&] {
                choices_document(bare.reader(), {0}, choices_,
                                 MethodReader(bare.reader(), {0}, choices_, {}).all(), {},
                                 std::vector<std::string>{"simlayerkv"});
              }),
              HasSubstr("--capture lazy"));
}

TEST_F(ChoicesDocument, ReadsBackAsTheSameChoices) {
  choices_.lazy.fixed = true;
  choices_.blocks.per_query_head = true;
  const std::vector<Document> documents = {read_again(made({"simlayerkv", "pod", "dynamickv"}))};
  const Choices again = initial_choices(reader().header(), reader().samples(), documents);
  EXPECT_EQ(again.lazy.threshold, 0.7);
  EXPECT_TRUE(again.lazy.fixed);
  EXPECT_EQ(again.blocks.delta, 0.6);
  EXPECT_TRUE(again.blocks.per_query_head);
  EXPECT_EQ(again.budgets.budget, 64);
}

}  // namespace
}  // namespace kvatlas::viewer
