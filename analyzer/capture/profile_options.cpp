// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/profile_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas::capture {
namespace {

using profile::CaptureSettings;

struct Part {
  const char* name;
  bool CaptureSettings::*member;
  bool standard;
};
constexpr Part kParts[] = {{"lazy", &CaptureSettings::lazy, true},
                           {"js", &CaptureSettings::js, true},
                           {"scores", &CaptureSettings::scores, true},
                           {"kept", &CaptureSettings::kept, true},
                           {"norms", &CaptureSettings::norms, true},
                           {"next", &CaptureSettings::next, true},
                           {"columns", &CaptureSettings::columns, true},
                           {"maps", &CaptureSettings::maps, true},
                           {"heatmap", &CaptureSettings::heatmap, false},
                           {"argmax", &CaptureSettings::argmax, false},
                           {"agreement", &CaptureSettings::agreement, false},
                           {"heads", &CaptureSettings::heads, false},
                           {"queries", &CaptureSettings::queries, false},
                           {"covariance", &CaptureSettings::covariance, false},
                           {"values", &CaptureSettings::values, false},
                           {"ranges", &CaptureSettings::ranges, false}};

void choose_parts(const std::vector<std::string>& names, CaptureSettings& settings) {
  for (const auto& part : kParts) settings.*part.member = false;
  for (const auto& name : names) {
    bool known = name == "default" || name == "all" || name == "none";
    for (const auto& part : kParts)
      if (name == part.name || name == "all" || (name == "default" && part.standard))
        known = settings.*part.member = true;
    if (!known)
      fail(ErrorCode::usage, "--capture ", quoted(name), ": choose of default, all, none, ",
           join(kParts, ", ", &Part::name));
  }
}

void choose_window_kinds(const CaptureOptions& options, CaptureSettings& settings) {
  settings.window_kinds.clear();
  for (const auto window : options.windows)
    for (const auto kernel : options.kernels)
      for (const auto& pooling : options.poolings) {
        if (pooling != "avg" && pooling != "max")
          fail(ErrorCode::usage, "--poolings ", quoted(pooling), ": choose of avg and max");
        settings.window_kinds.push_back(
            {window, kernel, pooling == "avg" ? Pooling::average : Pooling::maximum});
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

void add_once(std::vector<std::int64_t>& values, std::int64_t value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

}  // namespace

CaptureOptions::CaptureOptions() {
  for (const auto& proximity : settings.proximities) {
    add_once(initial, proximity.initial);
    add_once(recent, proximity.recent);
  }
  for (const auto& kind : settings.window_kinds) {
    add_once(windows, kind.window);
    add_once(kernels, kind.kernel);
  }
}

void add_capture_options(CLI::App& command, CaptureOptions& options) {
  const auto list = [&](const char* name, auto& to, const char* help, const char* type) {
    return command.add_option(name, to, help)
        ->delimiter(',')
        ->type_name(type)
        ->default_str(join(to, ","))
        ->group("Statistics");
  };
  const auto numbers = [&](const char* name, std::vector<std::int64_t>& to, const char* help) {
    return list(name, to, help, "N,...");
  };
  const auto number = [&](const char* name, std::int64_t& to, const char* help) {
    command.add_option(name, to, help)->capture_default_str()->type_name("N")->group("Statistics");
  };
  profile::CaptureSettings& s = options.settings;
  list(
      "--capture", options.capture,
      "what is captured: default, all, none, or parts. Of default: lazy (masses for SimLayerKV and "
      "PoD), js (layer similarity), scores (DynamicKV's counts), kept (attention that selections "
      "keep), norms, next (best next tokens), columns and maps (of the first samples only: another "
      "pass over queries and keys). On request: heatmap (masses along the prompt), argmax (next "
      "token at every position), agreement (next token under proximal attention: a forward pass a "
      "count), heads (how far back each attends, for DuoAttention), queries (means and magnitudes "
      "before RoPE, for other software), covariance (of their channels: large), values (how alike "
      "the values of layers are), ranges (magnitudes of keys, values and queries, for FP8 scales)",
      "PART,...");
  number("--map-samples", s.map_samples,
         "first samples, of which columns, maps and --keep are taken");
  command
      .add_option("--map-type", options.map_type,
                  "how maps and last rows are stored: uint8, to be looked at (steps of 9 %, 256 "
                  "blocks a side), or exactly (512 blocks a side), float16 or float32")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group("Statistics");
  numbers("--initial", options.initial, "first tokens of the windows that are profiled");
  numbers("--recent", options.recent, "last tokens of these windows; every pair is profiled");
  number("--last-rows", s.mass_rows, "last prompt rows whose masses are stored");
  number("--js-rows", s.js_rows, "last prompt rows that layers are compared by");
  number("--new", s.generated, "generated tokens whose masses are stored, the first included");
  numbers("--budgets", s.budgets, "tokens that DynamicKV, SnapKV and H2O keep in a layer");
  numbers("--windows", options.windows,
          "last prompt rows, whose mean attention scores the other tokens");
  numbers("--kernels", options.kernels, "positions that scores are pooled over, odd");
  list("--poolings", options.poolings, "how scores are pooled: avg, max", "KIND,...");
  number("--sink", s.sink, "first tokens that LagKV always keeps");
  number("--skip-queries", s.skip_queries, "first tokens that the statistics of queries leave out");
  numbers("--lags", s.lags, "LagKV's partition sizes");
  list("--ratios", s.ratios, "shares of a partition that LagKV keeps", "R,...");
  list(
      "--keep", options.keep,
      "raw data of the first samples: qkv (queries, keys, values of --keep-layers), scores (window "
      "scores)",
      "WHAT,...");
  numbers("--keep-layers", options.keep_layers, "layers of --keep qkv")
      ->default_str("first, middle, last");
}

profile::CaptureSettings settle_capture(const CaptureOptions& options, const model::Config& config,
                                        std::int64_t longest) {
  CaptureSettings settings = options.settings;
  choose_parts(options.capture, settings);
  profile::require_distinct("--initial", options.initial);
  profile::require_distinct("--recent", options.recent);
  settings.proximities.clear();
  for (const auto i : options.initial)
    for (const auto r : options.recent) settings.proximities.push_back({i, r});
  choose_window_kinds(options, settings);
  choose_kept(options, config, settings);
  bool known = false;
  for (const profile::Type type : {profile::Type::u8, profile::Type::f16, profile::Type::f32})
    if (options.map_type == profile::type_name(type)) {
      settings.map_type = type;
      known = true;
    }
  if (!known)
    fail(ErrorCode::usage, "--map-type ", quoted(options.map_type),
         ": choose uint8, float16 or float32");
  if (settings.agreement)
    for (std::int64_t count = 16;; count *= 2) {
      settings.agreement_counts.push_back(count);
      if (count >= longest) break;
    }
  settings.check(config);
  return settings;
}

}  // namespace kvatlas::capture
