// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas render`: one picture into a file, without a display.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "viewer/draw/commands.hpp"
#include "viewer/draw/headless.hpp"
#include "viewer/draw/map_makers.hpp"
#include "viewer/draw/pictures.hpp"
#include "viewer/methods/choices_document.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kOwnPoints = 10;  // of text, where nothing else is said

void print_list() {
  const auto row = [](const std::string& name, const std::string& title, const std::string& needs) {
    std::cout << row_text({{name, 17}, {title, 46}, {needs, 33}});
  };
  row("what", "shows", "needs");
  for (const auto& picture : picture_list()) row(picture.name, picture.title, picture.needs);
}

QSizeF parse_size(const std::string& text) {
  if (text.empty()) return {};
  int width = 0, height = 0;
  const char* const end = text.data() + text.size();
  const auto by = std::from_chars(text.data(), end, width);
  const bool crossed = by.ec == std::errc() && by.ptr != end && *by.ptr == 'x';
  const auto last = crossed ? std::from_chars(by.ptr + 1, end, height) : by;
  if (!crossed || last.ec != std::errc() || last.ptr != end || width < 1 || height < 1)
    fail(ErrorCode::usage, "--size: ", quoted(text), " is no size: expected as 1280x720");
  return QSizeF(width, height);
}

/// Takes one of the words, if it is given: the command line has checked it.
template <class Words, class Enum>
void take_word(const std::optional<std::string>& from, const Words& words, Enum& to) {
  if (from) to = static_cast<Enum>(std::find(words.begin(), words.end(), *from) - words.begin());
}

template <class To, class From>
void take(const std::optional<From>& from, To& to) {
  if (from) to = *from;
}

PictureRequest request_of(const RenderOptions& options, const PictureSource& source) {
  PictureRequest request;
  Choices& choices = request.choices;
  request.policies = options.policies;
  request.generated = options.generated;
  if (!options.at.empty()) request.at = parse_place(options.at);
  if (source.kept && !source.profile && options.sample)
    request.sample = static_cast<std::size_t>(*options.sample);
  if (source.profile) {
    const auto& profile = *source.profile;
    choices = initial_choices(profile.header(), profile.samples(), source.documents);
    take(options.task, choices.task);
    request.positions = sample_positions(profile, choices.task);
    if (options.sample) {
      const auto& samples = profile.samples();
      const auto found = std::find_if(samples.begin(), samples.end(), [&](const auto& sample) {
        return sample.index == *options.sample;
      });
      if (found == samples.end())
        fail(ErrorCode::usage, "the profile has no sample ", *options.sample, " among its ",
             samples.size());
      request.sample = static_cast<std::size_t>(found - samples.begin());
      if (!options.task) request.positions = {*request.sample};
    }
    if (request.at) {
      const auto& header = profile.header();
      if (request.at->layer >= header.n_layers || request.at->head >= header.n_heads)
        fail(ErrorCode::usage, "--at ", printable(options.at), ": the model has ", header.n_layers,
             " layers and ", header.n_heads, " heads, counted from 0");
    }
  }
  take(options.task, choices.task);
  if (!options.region.empty()) {
    if (options.what != "map")
      fail(ErrorCode::usage, "--region is a part of a map: it goes with --what map");
    request.region = parse_region(options.region);
  }
  if (options.length) set_length(choices, *options.length);
  take(options.initial, choices.lazy_arrays.keep.initial);
  take(options.recent, choices.lazy_arrays.keep.recent);
  take(options.initial, choices.blocks.proximal.initial);
  take(options.recent, choices.blocks.proximal.recent);
  take_word(options.identify,
            calibrate::setting_words(calibrate::method::kSimLayerKv.name, "identify"),
            choices.lazy_arrays.identify);
  take(options.w_last, choices.lazy_arrays.w_last);
  take(options.threshold, choices.lazy.threshold);
  take(options.share, choices.lazy.share);
  take(options.delta, choices.blocks.delta);
  take(options.saving, choices.blocks.wanted_saving);
  if (options.per_head) choices.lazy.per_head = choices.blocks.per_query_head = true;
  choices.blocks.show_divergence = options.divergence;
  take(options.window, choices.budget_counts.window);
  take(options.kernel, choices.budget_counts.kernel);
  take_word(options.pooling,
            calibrate::setting_words(calibrate::method::kDynamicKv.name, "pooling"),
            choices.budget_counts.pooling);
  take(options.budget, choices.budgets.budget);
  take_word(options.form, kFormWords, choices.budgets.form);
  take_word(options.score, kScoreWords, choices.sweep.score);
  choices.sweep.against_kept = options.against_kept;
  take(options.least_share, choices.sweep.least_share);
  take(options.wanted_compression, choices.sweep.wanted_compression);
  return request;
}

/// As wide as the columns of a paper. A narrow picture is higher than it would be when shrunk, for
/// its text is not shrunk; a prompt's text takes the same room in another shape.
QSizeF column_size(std::int64_t columns, QSizeF own, bool is_text, double points) {
  constexpr double kOne = 3.5 * 96, kTwo = 7.16 * 96, kLeastShape = 0.75, kSpare = 1.1;
  const double width = columns == 1 ? kOne : kTwo, shape = own.height() / own.width();
  const double text =
      kSpare * own.width() * own.height() * std::pow(points / kOwnPoints, 2) / width;
  const double height =
      is_text ? text : width * (columns == 1 ? std::max(shape, kLeastShape) : shape);
  return QSizeF(std::round(width), std::round(height));
}

Theme theme_of(const RenderOptions& options, ColourMap colours) {
  QFont font = Headless::font();
  font.setPointSizeF(options.font_size.value_or(options.column ? 8 : kOwnPoints));
  Theme theme = make_theme(options.dark, font);
  theme.colours = colours;
  theme.titles = !options.no_title;
  theme.notes = !options.no_notes;
  theme.legends = !options.no_legend;
  return theme;
}

}  // namespace

void run_render(const RenderOptions& options) {
  if (options.what.empty())
    fail(ErrorCode::usage, "--what is missing: say what to draw (--what list shows all)");
  if (options.what == "list") return print_list();
  const PictureKind kind = picture_named(options.what).kind;
  if (options.files.empty())
    fail(ErrorCode::usage, "render needs a profile or a policy document to draw from");
  if (options.output.empty())
    fail(ErrorCode::usage, "-o is missing: the file to write, .png, .svg, .pdf or .csv");
  ImageOptions image{options.scale, options.transparent, parse_size(options.size)};
  const ColourMap colours = colour_map_named(options.colours);
  const OpenedFiles files = open_files(options.files);
  const PictureRequest request = request_of(options, files.source);
  const Headless headless;
  const PicturePtr picture = Pictures(files.source, request).make(kind);
  const Theme theme = theme_of(options, colours);
  const bool is_text = kind == PictureKind::text || kind == PictureKind::kept;
  if (options.column)
    image.size = column_size(*options.column, picture->size(), is_text, theme.font.pointSizeF());
  save_picture(*picture, theme, image,
               origin_of(files.source, files.profile_path, files.baseline_path, options.given),
               options.output, options.force);
  std::cout << options.output.string() << '\n';
}

}  // namespace kvatlas::viewer
