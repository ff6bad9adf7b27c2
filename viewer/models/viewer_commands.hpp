// SPDX-License-Identifier: Apache-2.0
// The options of the viewer's commands, without Qt: `kvatlas` shows their help and hands them on to
// `kvatlas-viewer`, which carries them out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kvatlas::viewer {

struct ViewOptions {
  std::vector<std::string> files;
  std::string baseline, screen, at;
  bool dark = false;
};

struct RenderOptions {
  std::vector<std::filesystem::path> files;
  std::string what, at, region, size, colours = "viridis";
  std::filesystem::path output;
  std::vector<std::string> policies;
  std::optional<std::string> task, identify, pooling, form, score;
  std::optional<std::int64_t> sample, generated, length, initial, recent, w_last, budget, window,
      kernel;
  std::optional<double> threshold, share, delta, least_share, wanted_compression, saving;
  bool per_head = false, divergence = false, against_kept = false;
  bool dark = false, transparent = false, force = false;
  bool no_title = false, no_notes = false, no_legend = false;
  std::optional<std::int64_t> column;
  std::optional<double> font_size;
  double scale = 1;
  /// The options that were given, as one text, which pictures carry along.
  std::string given;
};

struct ReportOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path output;
  std::string title, task, colours = "viridis";
  std::int64_t length = 0;
  bool force = false;
};

// The words that options of `render` take, in the order of the enumerations that they stand for.
extern const std::vector<std::string> kFormWords, kScoreWords;

/// What each command does once its options are read.
struct ViewerCommands {
  std::function<void(const ViewOptions&)> view;
  std::function<void(const RenderOptions&)> render;
  std::function<void(const ReportOptions&)> report;
};
/// Adds `view`, `render` and `report`.
void add_viewer_commands(CLI::App& app, const ViewerCommands& commands);

/// The values of "--what" and "--colours", for the completions of shells.
std::vector<std::string> known_pictures();
std::vector<std::string> known_colours();

}  // namespace kvatlas::viewer
