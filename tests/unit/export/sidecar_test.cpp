// SPDX-License-Identifier: Apache-2.0
// The folder that lays scales over a checkpoint, byte for byte; checkpoints of all kinds; and what
// is read back of them.
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/exporters.hpp"
#include "export/importers.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::exporting {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json tiny_config() {
  return {{"model_type", "llama"},  {"hidden_size", 16},        {"intermediate_size", 16},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 4},          {"vocab_size", 8},          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},   {"torch_dtype", "float32"}, {"tie_word_embeddings", true}};
}

class Sidecar : public testing::Test {
 protected:
  void single() {
    folder_.write("config.json", config_.dump());
    folder_.write("tokenizer.json", "{}");
    folder_.write("model.safetensors",
                  safetensors_of({{"model.embed_tokens.weight", counting({8, 16})}}));
  }
  ExportRequest request() const {
    ExportRequest out;
    out.runtime = "vllm";
    out.length = 64;
    out.checkpoint = open_checkpoint(folder_.path());
    out.scales = ScalesRequest{{{{0.5}, {0.25}}, {{2}, {1}}, {{4}, {3}}}, "Of a test.", {}, {}};
    return out;
  }
  ExportedPolicy exported(const ExportRequest& request) const {
    calibrate::Document document;
    document.model = importing::model_of_config(config_);
    document.model.name = "tiny";
    document.sections["precision"] = {{"settings", {{"keys", "fp8"}, {"values", "fp8"}}}};
    return export_document(document, request).policies.at(0);
  }
  ExportedPolicy exported() const { return exported(request()); }
  std::string refused(const ExportRequest& request) const {
    return refusal([&] { exported(request); });
  }
  static std::string file(const ExportedPolicy& of, const std::string& path) {
    for (const auto& one : of.files)
      if (one.path == path) return one.content;
    ADD_FAILURE() << "no file " << path;
    return "";
  }
  std::string patched() const { return file(exported(), "model/config.json"); }

  TemporaryFolder folder_;
  json config_ = tiny_config();
};

TEST_F(Sidecar, EveryByteOfATinyOne) {
  single();
  const auto out = exported();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("model.layers.0.self_attn.k_scale":{"data_offsets":[0,4],"dtype":"F32","shape":[1]},)"
      R"("model.layers.0.self_attn.q_scale":{"data_offsets":[4,8],"dtype":"F32","shape":[1]},)"
      R"("model.layers.0.self_attn.v_scale":{"data_offsets":[8,12],"dtype":"F32","shape":[1]},)"
      R"("model.layers.1.self_attn.k_scale":{"data_offsets":[12,16],"dtype":"F32","shape":[1]},)"
      R"("model.layers.1.self_attn.q_scale":{"data_offsets":[16,20],"dtype":"F32","shape":[1]},)"
      R"("model.layers.1.self_attn.v_scale":{"data_offsets":[20,24],"dtype":"F32","shape":[1]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(file(out, "model/kv_scales.safetensors"),
            safetensors_bytes(padded, bytes_of_floats({0.5F, 4, 2, 0.25F, 3, 1})));
  json config = config_;
  config["quantization_config"] = json::parse(
      R"({"quant_method": "compressed-tensors", "format": "dense",
          "quantization_status": "frozen", "config_groups": {}, "ignore": [],
          "kv_cache_scheme": {"num_bits": 8, "type": "float", "symmetric": true,
                              "strategy": "tensor", "dynamic": false}})");
  EXPECT_EQ(file(out, "model/config.json"), config.dump(2) + '\n');
  json map = {{"model.embed_tokens.weight", "model.safetensors"}};
  for (const char* layer : {"0", "1"})
    for (const char* side : {"k", "q", "v"})
      map[std::string("model.layers.") + layer + ".self_attn." + side + "_scale"] =
          "kv_scales.safetensors";
  EXPECT_EQ(json::parse(file(out, "model/model.safetensors.index.json")),
            (json{{"metadata", json::object()}, {"weight_map", map}}));
  EXPECT_EQ(file(out, "vllm.yaml"), "block-size: 64\nkv-cache-dtype: fp8\n");
  EXPECT_THAT(file(out, "README.txt"), HasSubstr("vllm serve model --config vllm.yaml"));
  ASSERT_EQ(out.links.size(), 2u);
  EXPECT_EQ(out.links[0].path, "model/model.safetensors");
  EXPECT_EQ(out.links[0].target, fs::canonical(folder_.path()) / "model.safetensors");
  EXPECT_EQ(out.links[1].path, "model/tokenizer.json");
}

TEST_F(Sidecar, AnIndexKeepsItsNames) {
  folder_.write("config.json", config_.dump());
  const json index = {{"metadata", {{"total_size", 512}}},
                      {"weight_map",
                       {{"model.embed_tokens.weight", "model-00001-of-00002.safetensors"},
                        {"model.norm.weight", "model-00002-of-00002.safetensors"}}}};
  folder_.write("model.safetensors.index.json", index.dump());
  const auto map =
      json::parse(file(exported(), "model/model.safetensors.index.json")).at("weight_map");
  EXPECT_EQ(map.size(), 8u);
  EXPECT_EQ(map.at("model.norm.weight"), "model-00002-of-00002.safetensors");
}

TEST_F(Sidecar, HeadsHaveScalesOfTheirOwn) {
  single();
  auto asked = request();
  asked.scales->scales = {{{0.5, 1}, {2}}, {{3, 4}, {5, 6}}, {{7, 8}, {9, 10}}};
  const auto out = exported(asked);
  EXPECT_THAT(file(out, "model/config.json"), HasSubstr("\"strategy\": \"attn_head\""));
  EXPECT_THAT(file(out, "model/config.json"), HasSubstr("\"total_num_kv_heads\": 2"));
  const auto scales = file(out, "model/kv_scales.safetensors");
  EXPECT_THAT(scales, HasSubstr(R"("dtype":"F32","shape":[4,1,1])"));
  EXPECT_TRUE(
      scales.ends_with(bytes_of_floats({0.5F, 1, 7, 7, 8, 8, 3, 4, 2, 2, 9, 9, 10, 10, 5, 6})));
  asked.scales->scales.keys[0] = {1, 2, 3};
  EXPECT_THAT(refused(asked), HasSubstr("2 KV heads, and there are scales of 3"));
}

TEST_F(Sidecar, ModelOptimizersNames) {
  single();
  auto asked = request();
  asked.modelopt_names = true;
  const auto scales = file(exported(asked), "model/kv_scales.safetensors");
  EXPECT_THAT(scales, HasSubstr("model.layers.1.self_attn.v_proj.v_scale"));
  EXPECT_THAT(scales, testing::Not(HasSubstr("q_scale")));
}

TEST_F(Sidecar, QuantisedCheckpoints) {
  single();
  const auto with = [&](json settings) {
    config_["quantization_config"] = std::move(settings);
    single();
    return error_of([&] { patched(); });
  };
  const json packed = {{"quant_method", "compressed-tensors"},
                       {"format", "pack-quantized"},
                       {"config_groups", {{"a", {{"weights", {{"num_bits", 4}}}}}}}};
  EXPECT_EQ(with(packed), "");
  const json found = json::parse(patched()).at("quantization_config");
  EXPECT_EQ(found.at("format"), "pack-quantized");
  EXPECT_EQ(found.at("kv_cache_scheme").at("strategy"), "tensor");
  json has = packed;
  has["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}};
  EXPECT_THAT(with(has), HasSubstr("has scales of keys and values already"));
  EXPECT_EQ(with({{"quant_method", "fp8"}}), "");
  EXPECT_EQ(json::parse(patched()).at("quantization_config"), (json{{"quant_method", "fp8"}}));
  auto by_head = request();
  by_head.scales->scales.keys[0] = {1, 2};
  EXPECT_THAT(refused(by_head), HasSubstr("one scale a layer"));
  EXPECT_THAT(with({{"quant_method", "awq"}, {"bits", 4}}), HasSubstr("quantised by 'awq'"));
  EXPECT_THAT(with({{"quant_method", "gptq"}, {"bits", 4}}), HasSubstr("quantised by 'gptq'"));
  EXPECT_THAT(with({{"quant_method", "bitsandbytes"}}), HasSubstr("bitsandbytes"));
}

TEST_F(Sidecar, WhatIsNoCheckpointIsRefused) {
  EXPECT_THAT(error_of([&] { open_checkpoint(folder_.path() / "none"); }),
              HasSubstr("is no folder"));
  EXPECT_THAT(error_of([&] { open_checkpoint(folder_.path()); }), HasSubstr("config.json"));
  folder_.write("config.json", config_.dump());
  EXPECT_THAT(error_of([&] { open_checkpoint(folder_.path()); }), HasSubstr("model.safetensors"));
  folder_.write("model.safetensors.index.json", R"({"weight_map": {"a": "../b.safetensors"}})");
  EXPECT_THAT(error_of([&] { open_checkpoint(folder_.path()); }),
              HasSubstr("not the plain name of a .safetensors file"));
  fs::remove(folder_.path() / "model.safetensors.index.json");
  single();
  auto asked = request();
  asked.scales->scales.keys.pop_back();
  EXPECT_THAT(refused(asked), HasSubstr("2 layers with attention, and there are scales of 1"));
  folder_.write("kv_scales.safetensors", "");
  EXPECT_THAT(refused(request()), HasSubstr("holds kv_scales.safetensors already"));
  asked = request();
  asked.checkpoint.reset();
  EXPECT_THAT(refused(asked), HasSubstr("--checkpoint"));
}

TEST_F(Sidecar, FormatsWithScalesOfTheirOwnTakeNone) {
  single();
  for (const char* word : {"int8_per_token_head", "fp8_e5m2"}) {
    calibrate::Document document;
    document.model = importing::model_of_config(config_);
    document.sections["precision"] = {{"settings", {{"keys", word}, {"values", word}}}};
    EXPECT_THAT(refusal([&] { export_document(document, request()); }),
                HasSubstr(std::string("the policy stores ") + word));
  }
}

TEST_F(Sidecar, SglangHasOneNumberForBoth) {
  single();
  auto asked = request();
  asked.runtime = "sglang";
  asked.checkpoint.reset();
  asked.config = config_;
  asked.scales->errors = calibrate::ScaleErrors{1e-4, 2e-4};
  asked.scales->shared_errors = calibrate::ScaleErrors{1e-4, 0.5};
  const auto out = exported(asked);
  EXPECT_EQ(json::parse(file(out, "kv_cache_scales.json")),
            json::parse(R"({"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn",
                            "scaling_factor": {"0": {"0": 2.0, "1": 1.0}}}})"));
  EXPECT_THAT(file(out, "sglang.yaml"),
              HasSubstr("quantization-param-path: \"kv_cache_scales.json\""));
  std::string readme;
  for (const char c : file(out, "README.txt"))
    if (c > ' ' || !readme.ends_with(' ')) readme += c == '\n' ? ' ' : c;
  EXPECT_THAT(readme, HasSubstr("goes from 0.02 % to 50 %"));
  // With a checkpoint it is a folder that has them apart, without those of queries.
  asked.checkpoint = open_checkpoint(folder_.path());
  EXPECT_THAT(file(exported(asked), "model/kv_scales.safetensors"),
              testing::Not(HasSubstr("q_scale")));
}

/// A folder with these scales beside its weights, as they are stored there.
calibrate::Document imported(const TemporaryFolder& folder, json quantisation = nullptr) {
  const auto checkpoint = open_checkpoint(folder.path());
  importing::ImportRequest request;
  request.tool_version = "0.1.0";
  return importing::import_kv_cache(checkpoint, quantisation, scales_in(checkpoint), request);
}

TEST_F(Sidecar, ScalesAreReadBack) {
  config_["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "dense"},
      {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"strategy", "attn_head"}}}};
  const std::string at = "model.layers.";
  std::map<std::string, FloatTensor> tensors = {
      {"model.embed_tokens.weight", counting({8, 16})},
      {at + "0.self_attn.k_scale", {{2, 1, 1}, {0.5F, 1}}},
      {at + "0.self_attn.q_scale", {{4, 1, 1}, {1, 2, 4, 3}}},
      {at + "1.self_attn.k_proj.k_scale", {{}, {0.25F}}},  // as Model Optimizer calls it
      {at + "1.self_attn.v_proj.output_scale", {{1}, {3}}}};
  single();
  folder_.write("model.safetensors", safetensors_of(tensors));
  const auto document = imported(folder_);
  EXPECT_EQ(document.sections.at("precision").at("result").at("scales"),
            json::parse(R"({"keys": [[0.5, 1.0], [0.25]], "values": [[1.0], [3.0]],
                            "queries": [[2.0, 4.0], [1.0]]})"));
  const auto policy = calibrate::policies_of(document).at(0);
  EXPECT_EQ(calibrate::formats_of(policy, document.model.layers).at(1).keys,
            calibrate::KvFormat::fp8);
  for (const FloatTensor& wrong : {FloatTensor{{1}, {0}},
                                   {{1}, {-1}},
                                   {{1}, {std::nanf("")}},
                                   {{3}, {1, 1, 1}},
                                   {{0}, {}},
                                   {{1}, {1}, true}}) {
    tensors[at + "0.self_attn.k_scale"] = wrong;
    folder_.write("model.safetensors", safetensors_of(tensors));
    EXPECT_THAT(error_of([&] { imported(folder_); }),
                HasSubstr("'model.layers.0.self_attn.k_scale'"));
  }
}

TEST_F(Sidecar, ModelOptimizersRecipe) {
  single();
  const auto recipe = [&](json layers) {
    return json{{"producer", {{"name", "modelopt"}}},
                {"quantization",
                 {{"kv_cache_quant_algo", "MIXED_PRECISION"},
                  {"kv_cache_schema_version", 1},
                  {"kv_cache_quantized_layers", std::move(layers)}}}};
  };
  const auto document =
      imported(folder_, recipe({{"model.layers.1.self_attn", {{"quant_algo", "FP8"}}}}));
  EXPECT_EQ(document.sections.at("precision").at("result"),
            json::parse(R"({"keys": ["16", "fp8"], "values": ["16", "fp8"]})"));
  EXPECT_EQ(document.sections.at("precision").at("settings").at("prefill"), "rounded");
  const auto refused = [&](json layers) {
    return error_of([&] { imported(folder_, recipe(std::move(layers))); });
  };
  EXPECT_THAT(refused({{"model.layers.2.self_attn", {{"quant_algo", "FP8"}}}}),
              HasSubstr("the model has no layer 'model.layers.2.self_attn'; its first is"));
  EXPECT_EQ(imported(folder_, recipe({{"model.layers.0.self_attn", {{"quant_algo", "NVFP4"}}}}))
                .sections.at("precision")
                .at("result"),
            json::parse(R"({"keys": ["nvfp4", "16"], "values": ["nvfp4", "16"]})"));
  EXPECT_THAT(refused({{"model.layers.1.self_attn", {{"quant_algo", "INT3"}}}}),
              HasSubstr("found \"INT3\", expected FP8, NVFP4 or FP8_K_NVFP4_V"));
  EXPECT_THAT(refused({{"model.layers.1.self_attn", 3}}), HasSubstr("has no 'quant_algo'"));
  EXPECT_THAT(refused(3), HasSubstr("is no object"));
  EXPECT_THAT(error_of([&] { imported(folder_); }), HasSubstr("does not say how its cache"));
  EXPECT_THAT(error_of([&] {
                imported(folder_, {{"quantization", {{"kv_cache_quant_algo", "INT8"}}}});
              }),
              HasSubstr("'kv_cache_quant_algo': found \"INT8\""));
  config_["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                    {"format", "dense"},
                                    {"kv_cache_scheme", {{"num_bits", 4}, {"type", "int"}}}};
  single();
  EXPECT_THAT(error_of([&] { imported(folder_); }), HasSubstr("'kv_cache_scheme' is"));
}

}  // namespace
}  // namespace kvatlas::exporting
