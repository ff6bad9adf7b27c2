// SPDX-License-Identifier: Apache-2.0
// Others' head patterns: what they become, what is refused, and that a pattern which was exported
// comes back as the same policy.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str.hpp"
#include "export/exporters.hpp"
#include "export/importers.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::importing {
namespace {

using calibrate::Document;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::Random;

const char* const kSizes = R"({"sink_size": 4, "recent_size": 60})";

/// Four query heads and two KV heads a layer.
ImportRequest request() {
  ImportRequest request;
  request.model = {"Tiny", "llama", "", 0, 4, 2, 8};
  request.tool_version = "0.1.0";
  return request;
}

json lazy_heads(const Document& document) {
  return document.sections.at("heads").at("result").at("lazy_heads");
}

json settings(const Document& document) { return document.sections.at("heads").at("settings"); }

TEST(ImportDuoAttention, ZerosAndOnesAreTakenAsTheyAre) {
  const auto document = import_duo_attention(
      "# scores\n1.0\t0.0\r\n\n0.000000000000000000e+00\t1.2\n-0.1\t1", kSizes, request());
  EXPECT_EQ(lazy_heads(document), json::parse("[[false,true],[true,false],[true,false]]"));
  EXPECT_EQ(settings(document), (json{{"initial", 4}, {"recent", 60}}));
  EXPECT_EQ(document.model.layers, 3);
  EXPECT_EQ(document.provenance.tool_version, "0.1.0");
}

TEST(ImportDuoAttention, SparsityIsTheQuantileRule) {
  // Of 8 numbers the quantile at s lies at rank 7 s: those below it become lazy.
  const char* table = "0.9\t0.1\n0.5\t0.7\n0.3\t0.2\n0.8\t1\n";
  for (const auto& [sparsity, count] :
       {std::pair{0.0, 0}, {0.1, 1}, {0.25, 2}, {0.5, 4}, {0.9, 7}, {1.0, 8}}) {
    auto asked = request();
    asked.sparsity = sparsity;
    int lazy = 0;
    for (const auto& row : lazy_heads(import_duo_attention(table, kSizes, asked)))
      for (const bool flag : row) lazy += flag ? 1 : 0;
    EXPECT_EQ(lazy, count) << sparsity;
  }
  auto asked = request();
  asked.sparsity = 0.5;
  EXPECT_EQ(lazy_heads(import_duo_attention(table, kSizes, asked)),
            json::parse("[[false,true],[true,false],[true,true],[false,false]]"));
  // Equal numbers: lower layers, then lower heads, first.
  EXPECT_EQ(lazy_heads(import_duo_attention("0.5\t0.5\n0.5\t0.5", kSizes, asked)),
            json::parse("[[true,true],[false,false]]"));
}

TEST(ImportDuoAttention, ThresholdAndSizesOfTheRequest) {
  auto asked = request();
  asked.threshold = 0.5;
  asked.initial = 0;
  asked.recent = 7;
  const auto document = import_duo_attention("0.5\t0.49\n1\t0", kSizes, asked);
  EXPECT_EQ(lazy_heads(document), json::parse("[[false,true],[false,true]]"));
  EXPECT_EQ(settings(document), (json{{"initial", 0}, {"recent", 7}}));
}

TEST(ImportDuoAttention, Refusals) {
  const auto refusal = [](std::string_view table, std::string_view config = kSizes) {
    return error_of([&] { import_duo_attention(table, config, request()); });
  };
  EXPECT_THAT(refusal("0.5\t1\n"), HasSubstr("give --sparsity"));
  EXPECT_THAT(refusal("1\t0\n1\n"), HasSubstr("line 2: found 1 numbers, expected 2"));
  EXPECT_THAT(refusal("1\tnan\n"), HasSubstr("line 1: found 'nan'"));
  EXPECT_THAT(refusal("1\tinf\n"), HasSubstr("line 1: found 'inf'"));
  EXPECT_THAT(refusal("1 0\n"), HasSubstr("line 1: found '1 0', expected numbers with tabs"));
  EXPECT_THAT(refusal("1\t\n"), HasSubstr("line 1: found ''"));
  EXPECT_THAT(refusal(""), HasSubstr("names no heads"));
  EXPECT_THAT(refusal("1\t0\t1\n"), HasSubstr("the file has 3 KV heads a layer, the model 2"));
  EXPECT_THAT(refusal("1\t0\n", "{}"), HasSubstr("'sink_size' is missing"));
  EXPECT_THAT(refusal("1\t0\n", "[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("1\t0\n", R"({"sink_size": -1, "recent_size": 5})"), HasSubstr("found -1"));
  EXPECT_THAT(refusal("1\t0\n", R"({"sink_size": 1, "recent_size": 0})"), HasSubstr("found 0"));
  EXPECT_THAT(refusal("1\t0\n", R"({"sink_size": 1, "recent_size": 1e300})"),
              HasSubstr("expected a number of tokens"));
  std::string tall;
  for (int layer = 0; layer < 5000; ++layer) tall += "1\t0\n";
  EXPECT_THAT(refusal(tall), HasSubstr("expected at most 4096 layers"));
  EXPECT_THAT(refusal(std::string(20000, '\t')), HasSubstr("found ''"));
}

TEST(ImportHeadKv, AKvHeadHasTheMeanOfItsQueryHeads) {
  const char* text =
      R"({"0-0": [1, 0], "0-1": [0.1], "0-2": [0.9], "0-3": [0.8],
          "1-0": [0.2], "1-1": [0.2], "1-2": [0], "1-3": [0.5]})";
  auto asked = request();
  asked.threshold = 0.3;  // of 0.3, 0.85, 0.2, 0.25
  EXPECT_EQ(lazy_heads(import_headkv(text, asked)), json::parse("[[false,false],[true,true]]"));
  asked.threshold.reset();
  asked.share = 0.25;
  const auto document = import_headkv(text, asked);
  EXPECT_EQ(lazy_heads(document), json::parse("[[true,false],[true,true]]"));
  EXPECT_EQ(settings(document), (json{{"initial", 4}, {"recent", 1024}}));
  asked.share = 1;
  EXPECT_EQ(lazy_heads(import_headkv(text, asked)), json::parse("[[false,false],[false,false]]"));
}

TEST(ImportHeadKv, Refusals) {
  const auto refusal = [](std::string_view text) {
    auto asked = request();
    asked.share = 0.5;
    return error_of([&] { import_headkv(text, asked); });
  };
  const std::string three = R"("0-0": [1], "0-1": [1], "0-2": [1])";
  EXPECT_THAT(refusal("{"), HasSubstr("JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected an object of heads"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("expected an object of heads"));
  EXPECT_THAT(refusal("{" + three + "}"), HasSubstr("the file has 3 query heads a layer"));
  EXPECT_THAT(refusal("{" + three + R"(, "1-0": [1]})"), HasSubstr("expected 6"));
  EXPECT_THAT(refusal("{" + three + R"(, "0-00": [1]})"), HasSubstr("found 4 heads, expected 3"));
  EXPECT_THAT(
      refusal(R"({"0-0": [1], "0-00": [1], "1-0": [1], "1-2": [1], "0-1": [1], "1-1":[1]})"),
      HasSubstr("named twice"));
  EXPECT_THAT(refusal("{" + three + R"(, "0-9": [1]})"), HasSubstr("some are missing"));
  EXPECT_THAT(refusal(R"({"18446744073709551615-1": [1]})"), HasSubstr("some are missing"));
  EXPECT_THAT(refusal(R"({"99999999999999999999-1": [1]})"), HasSubstr("expected LAYER-HEAD"));
  for (const char* key : {"0", "0-", "-1", "0-1-2", "a-b", "0 -1", ""})
    EXPECT_THAT(refusal(str("{\"", key, "\": [1]}")), HasSubstr("expected LAYER-HEAD")) << key;
  for (const char* list : {"1", "[]", "[\"x\"]", "[null]", "[1e308, 1e308]", "{}"})
    EXPECT_THAT(refusal("{" + three + R"(, "0-3": )" + list + "}"),
                HasSubstr("expected a list of numbers"))
        << list;
  EXPECT_THAT(error_of([&] { import_headkv("{}", request()); }), HasSubstr("give --share"));
}

TEST(ImportMinference, AKvHeadIsLazyIfAllItsQueryHeadsAre) {
  const char* text = R"([
    {"0": ["stream_llm", 4, 60, 1], "1": ["stream_llm", 4, 60, 0.5], "2": ["stream_llm", 4, 60, 1]},
    {"3": ["block_sparse", 10, 20, 1], "2": ["vertical_and_slash", 1000, 6096, 1]}, {}])";
  const auto document = import_minference(text, request());
  EXPECT_EQ(lazy_heads(document), json::parse("[[true,false],[false,false],[false,false]]"));
  EXPECT_EQ(settings(document), (json{{"initial", 4}, {"recent", 60}}));
}

TEST(ImportMinference, Refusals) {
  const auto refusal = [](std::string_view text, bool sizes = false) {
    auto asked = request();
    if (sizes) asked.initial = 4, asked.recent = 9;
    return error_of([&] { import_minference(text, asked); });
  };
  const char* sizes = R"([{"0": ["stream_llm", 4, 60, 1], "1": ["stream_llm", 8, 60, 1]}])";
  EXPECT_THAT(refusal(sizes), HasSubstr("layer 0, head 1: found a window of 8 initial and 60"));
  EXPECT_EQ(refusal(sizes, true), "");
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a list of layers"));
  EXPECT_THAT(refusal("{}"), HasSubstr("expected a list of layers"));
  EXPECT_THAT(refusal("[[]]"), HasSubstr("layer 0: expected an object"));
  EXPECT_THAT(refusal(R"([{"4": ["stream_llm", 4, 60, 1]}])"), HasSubstr("from 0 to 3"));
  EXPECT_THAT(refusal(R"([{"-1": ["stream_llm", 4, 60, 1]}])"), HasSubstr("from 0 to 3"));
  EXPECT_THAT(refusal(R"([{"0": ["a_shape", 4, 60, 1]}])"), HasSubstr("found the kind 'a_shape'"));
  EXPECT_THAT(refusal(R"([{"0": ["stream_llm", 4, 60]}])"), HasSubstr("expected [kind"));
  EXPECT_THAT(refusal(R"([{"0": ["stream_llm", 4.5, 60, 1]}])"), HasSubstr("found 4.5"));
  EXPECT_THAT(refusal(R"([{"0": ["stream_llm", 4, 1e18, 1]}])"), HasSubstr("found 1e+18"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("deep"));
  auto wide = request();
  wide.model.heads = wide.model.kv_heads = 65536;
  EXPECT_THAT(error_of([&] { import_minference("[{}]", wide); }), HasSubstr("expected at most"));
}

TEST(ImportModel, WhatConfigJsonSays) {
  const auto model = model_of_config(json::parse(
      R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 512,
          "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2}})"));
  EXPECT_EQ(model.architecture, "gemma3");
  EXPECT_EQ(model.layers, 3);
  EXPECT_EQ(model.heads, 8);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model_of_config(json::parse(R"({"num_attention_heads": 8})")).kv_heads, 8);
  const auto refusal = [](const char* text) {
    return error_of([&] { model_of_config(json::parse(text)); });
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal(R"({"head_dim": "x"})"), HasSubstr("'head_dim': found \"x\""));
  EXPECT_THAT(refusal(R"({"num_hidden_layers": 1e9})"), HasSubstr("from 1 to 4096"));
}

TEST(ImportModel, WhatIsMissingIsAskedFor) {
  ImportRequest asked;
  const auto refusal = [&] {
    return error_of([&] { import_duo_attention("1\t0\n", kSizes, asked); });
  };
  EXPECT_THAT(refusal(), HasSubstr("give --heads"));
  asked.model.heads = 3;
  EXPECT_THAT(refusal(), HasSubstr("3 query heads and 2 KV heads"));
  asked.model.heads = 4;
  EXPECT_THAT(refusal(), HasSubstr("give --head-dim"));
  asked.model.head_dim = 8;
  EXPECT_EQ(refusal(), "");
  asked.model.layers = 2;
  EXPECT_THAT(refusal(), HasSubstr("the file has 1 layers, the model 2"));
}

std::vector<exporting::ExportFile> exported(const Document& document, const char* runtime) {
  exporting::ExportRequest request;
  request.runtime = runtime;
  request.length = 4096;
  auto files = exporting::export_document(document, request).policies.at(0).files;
  files.pop_back();  // README.txt
  return files;
}

TEST(ImportRoundTrip, WhatWasExportedComesBack) {
  Random random(9);
  for (int round = 0; round < 30; ++round) {
    auto asked = request();
    asked.model.layers = random.integer(2, 12);
    Document document;
    document.model = asked.model;
    document.provenance.tool_version = asked.tool_version;
    json rows = json::array();
    for (std::int64_t layer = 0; layer < asked.model.layers; ++layer)
      rows.push_back({random.integer(0, 1) == 1, random.integer(0, 1) == 1});
    rows[0] = {true, false};  // lazy heads, not layers
    document.sections["heads"] = {{"settings", {{"initial", 4}, {"recent", 60}}},
                                  {"result", {{"lazy_heads", rows}}}};
    const auto text = calibrate::document_text(document);

    const auto duo = exported(document, "duo-attention");
    const auto from_duo = import_duo_attention(duo[0].content, duo[1].content, asked);
    EXPECT_EQ(calibrate::document_text(from_duo), text);
    EXPECT_EQ(exported(from_duo, "duo-attention")[0].content, duo[0].content);

    const auto pattern = exported(document, "minference");
    EXPECT_EQ(calibrate::document_text(import_minference(pattern[0].content, asked)), text);

    const auto scores = exported(document, "kvcache-factory");
    auto cut = asked;
    cut.threshold = 1000;
    cut.recent = 60;
    EXPECT_EQ(calibrate::document_text(import_headkv(scores[0].content, cut)), text);
  }
}

TEST(ImportHostile, BytesChangedAtRandom) {
  Random random(10);
  auto asked = request();
  asked.share = asked.sparsity = 0.5;
  const std::string seeds[] = {
      "0.5\t1\n0\t0.25\n",
      R"({"0-0": [1], "0-1": [1], "0-2": [1], "0-3": [1]})",
      R"([{"0": ["stream_llm", 4, 60, 1], "1": ["block_sparse", 8, 60, 1]}])",
  };
  for (int round = 0; round < 6000; ++round) {
    auto text = seeds[round % 3];
    for (int change = 0; change < 3; ++change)
      text[random.integer(0, static_cast<std::int64_t>(text.size()) - 1)] =
          static_cast<char>(random.integer(0, 255));
    const auto parsed = [&]() -> Document {
      if (round % 3 == 0) return import_duo_attention(text, kSizes, asked);
      return round % 3 == 1 ? import_headkv(text, asked) : import_minference(text, asked);
    };
    try {
      const auto document = parsed();
      EXPECT_FALSE(calibrate::document_text(document).empty());
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    }
  }
}

}  // namespace
}  // namespace kvatlas::importing
