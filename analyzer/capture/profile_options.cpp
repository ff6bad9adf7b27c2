// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/profile_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "kernels/base/error.hpp"

namespace kvatlas::capture {
namespace {

using profile::CaptureSettings;

struct Part {
  const char* name;
  bool CaptureSettings::*member;
  bool standard;
};
constexpr Part kParts[] = {
    {"lazy", &CaptureSettings::lazy, true},           {"js", &CaptureSettings::js, true},
    {"scores", &CaptureSettings::scores, true},       {"kept", &CaptureSettings::kept, true},
    {"norms", &CaptureSettings::norms, true},         {"next", &CaptureSettings::next, true},
    {"columns", &CaptureSettings::columns, true},     {"maps", &CaptureSettings::maps, true},
    {"heatmap", &CaptureSettings::heatmap, false},    {"argmax", &CaptureSettings::argmax, false},
    {"agreement", &CaptureSettings::agreement, false}};

void choose_parts(const std::vector<std::string>& names, CaptureSettings& settings) {
  for (const auto& part : kParts) settings.*part.member = false;
  for (const auto& name : names) {
    bool known = name == "default" || name == "all" || name == "none";
    for (const auto& part : kParts)
      if (name == part.name || name == "all" || (name == "default" && part.standard))
        known = settings.*part.member = true;
    if (!known)
      fail(ErrorCode::usage, "--capture ", quoted(name),
           ": choose of default, all, none, lazy, js, scores, kept, norms, next, columns, maps, "
           "heatmap, argmax, agreement");
  }
}

void choose_window_kinds(const CaptureOptions& options, CaptureSettings& settings) {
  const auto or_standard = [](std::vector<std::int64_t> values, std::int64_t standard) {
    if (values.empty()) values.push_back(standard);
    return values;
  };
  std::vector<std::string> poolings = options.poolings;
  if (poolings.empty()) poolings = {"avg", "max"};
  settings.window_kinds.clear();
  for (const auto window : or_standard(options.windows, 16))
    for (const auto kernel : or_standard(options.kernels, 7))
      for (const auto& pooling : poolings) {
        if (pooling != "avg" && pooling != "max")
          fail(ErrorCode::usage, "--poolings ", quoted(pooling), ": choose of avg and max");
        settings.window_kinds.push_back(
            {window, kernel,
             pooling == "avg" ? kernels::Pooling::average : kernels::Pooling::maximum});
      }
}

void choose_kept(const CaptureOptions& options, const model::Config& config,
                 CaptureSettings& settings) {
  for (const auto& name : options.keep) {
    if (name == "qkv")
      settings.keep_qkv = true;
    else if (name == "scores")
      settings.keep_scores = true;
    else
      fail(ErrorCode::usage, "--keep ", quoted(name), ": choose of qkv and scores");
  }
  settings.keep_layers = options.keep_layers;
  if (settings.keep_layers.empty())
    settings.keep_layers = {0, config.n_layers / 2, config.n_layers - 1};
  auto& layers = settings.keep_layers;
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
}

}  // namespace

void add_capture_options(CLI::App& command, CaptureOptions& options) {
  const auto numbers = [&](const char* name, std::vector<std::int64_t>& to, const char* help,
                           const char* standard) {
    command.add_option(name, to, help)
        ->delimiter(',')
        ->type_name("N,...")
        ->default_str(standard)
        ->group("Statistics");
  };
  const auto number = [&](const char* name, std::int64_t& to, const char* help) {
    command.add_option(name, to, help)->capture_default_str()->type_name("N")->group("Statistics");
  };
  profile::CaptureSettings& s = options.settings;
  command
      .add_option("--capture", options.capture,
                  "what is captured: lazy (masses for SimLayerKV and PoD), js (layer similarity), "
                  "scores (DynamicKV counts), kept (attention that selections keep), norms, next "
                  "(best next tokens), columns and maps (of the first samples only: another pass "
                  "over queries and keys); on request heatmap (masses along the prompt), argmax "
                  "(next token everywhere), agreement (next token under proximal attention: a "
                  "forward pass a count); default, all")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("PART,...")
      ->group("Statistics");
  number("--map-samples", s.map_samples, "samples that columns, maps and --keep are taken of");
  command.add_option("--map-type", options.map_type, "float16 or float32: how maps are stored")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group("Statistics");
  numbers("--initial", options.initial, "initial tokens of the proximity grid", "4,16");
  numbers("--recent", options.recent, "recent tokens of the grid", "64,240,256,512,1024,4080");
  number("--last-rows", s.mass_rows, "last prompt rows whose masses are taken");
  number("--js-rows", s.js_rows, "last prompt rows that layers are compared by");
  number("--new", s.generated, "generated tokens whose masses are taken, the first included");
  numbers("--budgets", options.budgets, "tokens kept a layer by DynamicKV, SnapKV and H2O",
          "64,96,128,256,512,1024");
  numbers("--windows", options.windows, "last rows that window scores are the mean of", "16");
  numbers("--kernels", options.kernels, "pooling sizes of window scores, odd", "7");
  command.add_option("--poolings", options.poolings, "their pooling: avg, max")
      ->delimiter(',')
      ->default_str("avg,max")
      ->type_name("KIND,...")
      ->group("Statistics");
  number("--sink", s.sink, "LagKV's first tokens that always stay");
  numbers("--lags", options.lags, "LagKV's partition sizes", "64,128,256,512,1024");
  command.add_option("--ratios", options.ratios, "shares of a partition that LagKV keeps")
      ->delimiter(',')
      ->default_str("1/2,1/4,1/6,1/8")
      ->type_name("R,...")
      ->group("Statistics");
  command
      .add_option("--keep", options.keep,
                  "raw data of the first samples: qkv (queries, keys, values of --keep-layers), "
                  "scores (window scores)")
      ->delimiter(',')
      ->type_name("WHAT,...")
      ->group("Statistics");
  numbers("--keep-layers", options.keep_layers, "layers of --keep qkv", "first, middle, last");
}

profile::CaptureSettings settle_capture(const CaptureOptions& options, const model::Config& config,
                                        std::int64_t longest) {
  CaptureSettings settings = options.settings;
  choose_parts(options.capture, settings);
  const auto replace = [](auto& standard, const auto& given) {
    if (!given.empty()) standard = given;
  };
  replace(settings.budgets, options.budgets);
  replace(settings.lags, options.lags);
  replace(settings.ratios, options.ratios);
  std::vector<std::int64_t> initial = {4, 16}, recent = {64, 240, 256, 512, 1024, 4080};
  replace(initial, options.initial);
  replace(recent, options.recent);
  profile::require_distinct("--initial", initial);
  profile::require_distinct("--recent", recent);
  settings.proximities.clear();
  for (const auto i : initial)
    for (const auto r : recent) settings.proximities.push_back({i, r});
  choose_window_kinds(options, settings);
  choose_kept(options, config, settings);
  if (options.map_type != "float16" && options.map_type != "float32")
    fail(ErrorCode::usage, "--map-type ", quoted(options.map_type), ": choose float16 or float32");
  settings.map_float32 = options.map_type == "float32";
  if (settings.agreement)
    for (std::int64_t count = 16;; count *= 2) {
      settings.agreement_counts.push_back(count);
      if (count >= longest) break;
    }
  settings.check(config);
  return settings;
}

}  // namespace kvatlas::capture
