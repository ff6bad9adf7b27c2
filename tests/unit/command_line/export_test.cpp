// SPDX-License-Identifier: Apache-2.0
// `kvatlas export` and `kvatlas import` as they are called.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "tests/support/places.hpp"
#include "tests/unit/command_line/fixture.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

const std::string kDocuments =
    (kvatlas::testing_support::source_folder() / "tests/unit/export/documents/").string();
const std::string kLazyLayers = kDocuments + "lazy_layers.json";

bool is_there(const std::string& path) { return std::filesystem::is_regular_file(path); }

TEST_F(CommandLine, ExportRefuses) {
  const auto out = write_file("in_the_way", "");
  const auto refuses = [&](int status, std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    return refusal(status, words);
  };
  EXPECT_THAT(refuses(2, {}), HasSubstr("needs a policy"));
  EXPECT_THAT(refuses(2, {kLazyLayers}), HasSubstr("--to is missing"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "vllm"}), HasSubstr("-o is missing"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "vllm", "-o", out, "--json"}), HasSubstr("--list"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "toaster", "-o", out}),
              AllOf(HasSubstr("no runtime 'toaster'"), HasSubstr("kvpress")));
  EXPECT_THAT(refuses(3, {"absent.json", "--to", "vllm", "-o", out}), HasSubstr("absent.json"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "vllm", "-o", out}), HasSubstr("is a file"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "lagkv", "-o", out}),
              HasSubstr("cannot take fixed lazy layers"));
  EXPECT_THAT(refuses(2, {kLazyLayers, "--to", "vllm", "--method", "lagkv", "-o", out}),
              HasSubstr("no policy 'lagkv'"));
  EXPECT_THAT(refuses(2, {"lagkv:lag=8", "--to", "lagkv", "-o", out}), HasSubstr("--config"));
  EXPECT_THAT(refuses(3, {kLazyLayers, "--to", "vllm", "--config", kLazyLayers, "-o", out}),
              HasSubstr("model_type"));
  EXPECT_THAT(
      refuses(2, {kLazyLayers, "--to", "vllm", "--config", model() + "/config.json", "-o", out}),
      HasSubstr("of a model with 1 layers, the policy of one with 6"));
}

TEST_F(CommandLine, ExportWritesAFolder) {
  const auto out = write_file("here", "") + ".out";
  const std::vector<std::string> words = {"export", kLazyLayers, "--to", "vllm", "-o", out};
  const auto done = run_kvatlas(words);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, out + "/vllm.yaml\n" + out + "/README.txt\n");
  EXPECT_TRUE(is_there(out + "/vllm.yaml") && is_there(out + "/README.txt"));
  EXPECT_THAT(refusal(2, words), HasSubstr("is there already; --force replaces it"));
  auto forced = words;
  forced.emplace_back("--force");
  EXPECT_EQ(run_kvatlas(forced).status, 0);
}

TEST_F(CommandLine, ExportMakesAFolderOfEachRuntime) {
  const auto out = write_file("here", "") + ".out";
  const auto done = run_kvatlas({"export", kDocuments + "by_input.json", "--to", "all", "-o", out});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("kvatlas: vllm: simlayerkv (fixed)\n"),
                    HasSubstr("kvatlas: lagkv: nothing (kvatlas export ... --to lagkv says why)\n"),
                    HasSubstr("kvatlas: kvpress: simlayerkv\n")));
  EXPECT_TRUE(is_there(out + "/vllm/vllm.yaml") && is_there(out + "/kvpress/load_press.py"));
  EXPECT_FALSE(std::filesystem::exists(out + "/lagkv"));
  // One alone says how often inputs decide otherwise.
  const auto one =
      run_kvatlas({"export", kDocuments + "by_input.json", "--to", "vllm", "-o", out + ".vllm"});
  EXPECT_THAT(one.err, HasSubstr("12.5 % of the layers and inputs"));
}

TEST_F(CommandLine, ExportTakesAPolicyAsText) {
  const auto out = write_file("here", "") + ".out";
  const auto done =
      run_kvatlas({"export", "lagkv:lag=64+kv4", "--to", "transformers-cache", "--config",
                   model() + "/config.json", "--length", "512", "-o", out});
  EXPECT_EQ(done.status, 0) << done.err;
  const auto document = calibrate::read_document(out + "/policy.json");
  EXPECT_EQ(document.model.kv_heads, TinySizes::kv_heads);
  EXPECT_EQ(document.kv_bits, 4);
  EXPECT_EQ(document.sections.at("lagkv").at("settings").at("lag"), 64);
}

TEST_F(CommandLine, ExportListsTheMatrix) {
  const std::string list = run_kvatlas({"export", "--list"}).out;
  EXPECT_THAT(list, AllOf(HasSubstr("\nvllm "), HasSubstr("  g  other tokens are kept")));
  expect_narrow(list);
  const json matrix = json::parse(run_kvatlas({"export", "--list", "--json"}).out);
  EXPECT_EQ(matrix.size(), 17u);
  EXPECT_EQ(matrix.at(0).at("forms").at("lagkv").at("fit"), "exact");
}

TEST_F(CommandLine, ImportWritesADocument) {
  const auto table = write_file("duo/full_attention_heads.tsv", "1.0\t0.0\n0.0\t0.0\n");
  write_file("duo/config.json", R"({"sink_size": 4, "recent_size": 60})");
  const auto folder = table.substr(0, table.rfind('/'));
  const auto config = write_file(
      "config.json",
      R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8})");
  const auto output = folder + "/policy.json";
  const std::vector<std::string> words = {"import",   "duo-attention", folder,   "-o",  output,
                                          "--config", config,          "--name", "Tiny"};
  const auto done = run_kvatlas(words);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("3 of 4 KV heads keep the first 4 and the last 60 tokens"));
  const auto document = calibrate::read_document(output);
  EXPECT_EQ(document.model.name, "Tiny");
  EXPECT_EQ(document.model.architecture, "llama");
  EXPECT_EQ(document.sections.at("heads").at("result").at("lazy_heads"),
            json::parse("[[false, true], [true, true]]"));
  EXPECT_THAT(refusal(2, words), HasSubstr("is there already; --force replaces it"));
  auto forced = words;
  forced.insert(forced.end(), {"--force", "--kv-heads", "4"});
  EXPECT_THAT(refusal(3, forced), HasSubstr("the file has 2 KV heads a layer, the model 4"));
  forced.back() = "2";
  EXPECT_EQ(run_kvatlas(forced).status, 0);
  // What is written is exported again as it was.
  const auto out = folder + "/out";
  EXPECT_EQ(
      run_kvatlas({"export", output, "--to", "duo-attention", "--length", "512", "-o", out}).status,
      0);
  EXPECT_EQ(run_kvatlas({"import", "duo-attention", out, "-o", folder + "/again.json", "--config",
                         config, "--name", "Tiny"})
                .status,
            0);
  EXPECT_EQ(calibrate::document_text(calibrate::read_document(folder + "/again.json")),
            calibrate::document_text(document));
}

}  // namespace
}  // namespace kvatlas
