// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "analyzer/checkpoint/safetensors.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/rules/fp8_scales.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/rules/precision.hpp"
#include "export/commands.hpp"
#include "export/importers.hpp"

namespace kvatlas {
namespace {

namespace fs = std::filesystem;
using calibrate::Document;
using importing::ImportRequest;

struct ImportOptions {
  std::string format, file, output, config;
  ImportRequest request;
  std::string name, architecture;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::string rule, by;
  bool force = false;
};

std::string text_of(const fs::path& path) {
  return read_text_file(path, importing::kLargestPattern);
}

Document imported(const ImportOptions& options, const ImportRequest& request) {
  const fs::path path = options.file;
  return in_context(printable(options.file, 400), [&] {
    if (options.format == "duo-attention") {
      if (!fs::is_directory(path))
        fail(ErrorCode::usage, "expected a folder with full_attention_heads.tsv and config.json");
      return importing::import_duo_attention(text_of(path / "full_attention_heads.tsv"),
                                             text_of(path / "config.json"), request);
    }
    if (options.format == "headkv") return importing::import_headkv(text_of(path), request);
    return importing::import_minference(text_of(path), request);
  });
}

/// The cache of a checkpoint, or FP8 by a profile's ranges.
Document imported_cache(const ImportOptions& options, const ImportRequest& request) {
  const fs::path path = options.file;
  return in_context(printable(options.file, 400), [&] {
    if (!fs::is_directory(path)) {
      if (!profile::is_profile(path))
        fail(ErrorCode::usage, "expected a checkpoint's folder, or a profile of --capture ranges");
      const profile::Reader profile(path);
      auto scales = calibrate::fp8_scales(
          calibrate::read_ranges(profile),
          calibrate::ScaleRule::parse(options.rule.empty() ? "amax" : options.rule),
          options.by == "head" ? calibrate::ScalesBy::head : calibrate::ScalesBy::layer);
      return importing::import_ranges(calibrate::model_info(profile.header()), std::move(scales),
                                      request);
    }
    if (!options.rule.empty() || !options.by.empty())
      fail(ErrorCode::usage, "--scales and --scales-by are for a profile: a checkpoint has scales");
    const auto checkpoint = exporting::open_checkpoint(path);
    const bool named = std::find(checkpoint.others.begin(), checkpoint.others.end(),
                                 "hf_quant_config.json") != checkpoint.others.end();
    const auto quantisation =
        named ? parse_json(text_of(model::file_in_folder(path, "hf_quant_config.json")), 16)
              : nlohmann::json();
    return importing::import_kv_cache(checkpoint, quantisation, exporting::scales_in(checkpoint),
                                      request);
  });
}

/// What the command line says of the model; the rest is taken from config.json.
calibrate::ModelInfo known_model(const ImportOptions& options) {
  calibrate::ModelInfo known;
  if (!options.config.empty())
    known = in_context(printable(options.config, 400), [&] {
      return importing::model_of_config(parse_json(text_of(options.config), 64));
    });
  if (!options.name.empty()) known.name = options.name;
  if (!options.architecture.empty()) known.architecture = options.architecture;
  if (options.heads != 0) known.heads = options.heads;
  if (options.kv_heads != 0) known.kv_heads = options.kv_heads;
  if (options.head_dim != 0) known.head_dim = options.head_dim;
  return known;
}

void check_words(const ImportOptions& options) {
  const auto only = [&](bool given, const char* option, std::string_view format) {
    if (given && options.format != format)
      fail(ErrorCode::usage, option, " is for ", format, " alone");
  };
  only(options.request.sparsity.has_value(), "--sparsity", "duo-attention");
  only(options.request.share.has_value(), "--share", "headkv");
  only(!options.rule.empty(), "--scales", "kv-cache");
  only(!options.by.empty(), "--scales-by", "kv-cache");
  if (options.format == "kv-cache" &&
      (options.request.threshold || options.request.initial || options.request.recent))
    fail(ErrorCode::usage, "--threshold, --initial and --recent are for patterns of heads");
  if (options.request.threshold && options.format == "minference")
    fail(ErrorCode::usage, "--threshold is for numbers, and minference's patterns have kinds");
  if (options.request.threshold && (options.request.sparsity || options.request.share))
    fail(ErrorCode::usage, "--threshold and ", options.request.share ? "--share" : "--sparsity",
         " choose the same heads: give one of them");
}

void run_import(const ImportOptions& options) {
  check_words(options);
  ImportRequest request = options.request;
  request.model = known_model(options);
  request.tool_version = KVATLAS_VERSION;
  const bool cache = options.format == "kv-cache";
  const auto document = cache ? imported_cache(options, request) : imported(options, request);
  calibrate::write_document(document, options.output, options.force);
  if (cache) {
    const auto policy = calibrate::policies_of(document).front();
    const auto layers = calibrate::formats_of(policy, document.model.layers);
    const auto& part = std::get<calibrate::Precision>(policy.parts.front());
    std::cout << options.output << ": " << calibrate::formats_text(layers)
              << (part.scales ? "; with scales\n" : "; without scales\n");
    return;
  }
  const auto& section = document.sections.at("heads");
  std::size_t lazy = 0, heads = 0;
  for (const auto& row : section.at("result").at("lazy_heads")) {
    heads += row.size();
    lazy += static_cast<std::size_t>(std::count(row.begin(), row.end(), nlohmann::json(true)));
  }
  const auto& settings = section.at("settings");
  std::cout << options.output << ": " << lazy << " of " << heads << " KV heads keep the first "
            << settings.at("initial") << " and the last " << settings.at("recent")
            << " tokens, the others everything\n";
}

void add_model_options(CLI::App& command, ImportOptions& options) {
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{65536});
  add_option(command, "--config", options.config, "FILE",
             "the checkpoint's config.json, which says what the pattern's file does not");
  add_option(command, "--heads", options.heads, "N", "query heads a layer")->check(count);
  add_option(command, "--kv-heads", options.kv_heads, "N", "KV heads a layer")->check(count);
  add_option(command, "--head-dim", options.head_dim, "N", "dimensions of a head")->check(count);
  add_option(command, "--name", options.name, "NAME", "what the model is called");
  add_option(command, "--architecture", options.architecture, "NAME",
             "the model's architecture, such as llama or qwen2");
}

}  // namespace

void add_import_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "import", "Turn head patterns and cache formats of other projects into a policy document");
  auto options = std::make_shared<ImportOptions>();
  auto& request = options->request;
  const auto share = real_range(0.0, 1.0);
  add_option(*command, "format", options->format, "FORMAT",
             "duo-attention, headkv, minference or kv-cache")
      ->required()
      ->check(CLI::IsMember({"duo-attention", "headkv", "minference", "kv-cache"}));
  add_option(
      *command, "file", options->file, "FILE",
      "the file of the pattern; for duo-attention its folder; for kv-cache a checkpoint's folder "
      "or a profile")
      ->required();
  add_option(*command, "-o,--output", options->output, "FILE", "the policy document to write")
      ->required();
  add_option(*command, "--sparsity", request.sparsity, "S",
             "duo-attention: share of KV heads that become lazy, the lowest numbers first")
      ->check(share);
  add_option(*command, "--share", request.share, "S",
             "headkv: share of KV heads that stay full, the highest numbers first")
      ->check(share);
  add_option(*command, "--threshold", request.threshold, "X",
             "duo-attention, headkv: heads with a lower number become lazy");
  // An imported pattern is kept as streaming heads.
  const auto standard = [](const char* key) {
    return " (default: the file's; headkv: " + calibrate::default_text("streaming", key) + ")";
  };
  calibrate::limit_to_setting(add_option(*command, "--initial", request.initial, "N",
                                         "first tokens that lazy heads keep" + standard("initial")),
                              "streaming", "initial");
  calibrate::limit_to_setting(add_option(*command, "--recent", request.recent, "N",
                                         "last tokens that lazy heads keep" + standard("recent")),
                              "streaming", "recent");
  add_option(
      *command, "--scales", options->rule, "RULE",
      "kv-cache, of a profile: amax (largest magnitude / 448), a percentile such as p99.9, mse "
      "or kl (default: amax)");
  add_option(*command, "--scales-by", options->by, "WHAT",
             "kv-cache, of a profile: a scale for each layer, or for each KV head (default: layer)")
      ->check(CLI::IsMember({"layer", "head"}));
  add_model_options(*command, *options);
  command->add_flag("--force", options->force, "replace the output if it exists");
  command->footer(
      "Formats\n"
      "  duo-attention  a folder with full_attention_heads.tsv (a row a layer, a column a KV "
      "head)\n"
      "                 and config.json (sink_size, recent_size). Zeros and ones are taken as "
      "they\n"
      "                 are; other numbers need --sparsity or --threshold. DuoAttention adds "
      "noise\n"
      "                 of up to 1e-6 to break ties: here lower layers, then lower heads, become\n"
      "                 lazy first.\n"
      "  headkv         JSON, \"layer-head\" -> list of numbers, over query heads: scores, or\n"
      "                 capacities in tokens. A KV head has the mean of its query heads.\n"
      "  minference     JSON, a list over layers of objects head -> [kind, x, y, score], over "
      "query\n"
      "                 heads. A KV head is lazy if all of its query heads are stream_llm.\n"
      "  kv-cache       the folder of a checkpoint that says how its cache is stored\n"
      "                 (kv_cache_scheme of llm-compressor, kv_cache_quantized_layers or\n"
      "                 kv_cache_quant_algo of Model Optimizer), with its scales; or a profile of\n"
      "                 --capture ranges, of which scales are made\n"
      "\nExamples:\n"
      "  kvatlas import duo-attention attn_patterns/Llama-3/ --sparsity 0.5 --config config.json "
      "-o duo.json\n"
      "  kvatlas import headkv heads.json --share 0.3 --config config.json --recent 512 -o "
      "headkv.json\n"
      "  kvatlas import minference Phi_3_best_pattern.json --heads 32 --kv-heads 32 --head-dim 96 "
      "-o phi.json\n"
      "  kvatlas import kv-cache ./Llama-3.1-8B-FP8-KV -o cache.json");
  command->callback([options] { run_import(*options); });
}

}  // namespace kvatlas
