// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas render`: one picture into a file, without a display.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/draw/headless.hpp"
#include "viewer/draw/map_makers.hpp"
#include "viewer/draw/pictures.hpp"
#include "viewer/models/commands.hpp"

namespace kvatlas {

namespace {

using namespace viewer;

struct Options {
  std::vector<std::filesystem::path> files;
  std::string what, at, region, size, colours = "viridis";
  std::filesystem::path output;
  std::optional<std::string> task, identify, pooling, form, score;
  std::optional<std::int64_t> sample, length, initial, recent, w_last, budget, window, kernel;
  std::optional<double> threshold, share, delta, least_share, wanted_compression, saving;
  bool per_head = false, divergence = false, against_kept = false;
  bool dark = false, transparent = false, force = false;
  double scale = 1;
};

void print_list() {
  std::cout << "what             shows                                            needs\n";
  const auto column = [](std::string text, std::size_t width) {
    text.resize(std::max(width, text.size() + 1), ' ');
    return text;
  };
  for (const auto& maker : picture_makers())
    std::cout << column(maker.what, 17) << column(maker.title, 49) << maker.needs << '\n';
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

// What options take, in the order of their enumerations.
const std::vector<std::string> kIdentify = {"decode", "prefill"};
const std::vector<std::string> kPooling = {"avg", "max"};
const std::vector<std::string> kForm = {"raw", "scaled", "exact"};
const std::vector<std::string> kScore = {"score", "digits-prefix", "digits-in-place", "attention"};

/// Takes one of the words, if it is given: the command line has checked it.
template <class Enum>
void take_word(const std::optional<std::string>& from, const std::vector<std::string>& words,
               Enum& to) {
  if (from) to = static_cast<Enum>(std::find(words.begin(), words.end(), *from) - words.begin());
}

template <class To, class From>
void take(const std::optional<From>& from, To& to) {
  if (from) to = *from;
}

PictureRequest request_of(const Options& options, const PictureSource& source) {
  PictureRequest request;
  Choices& choices = request.choices;
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
    if (!options.at.empty()) {
      request.at = parse_place(options.at);
      const auto& header = profile.header();
      if (request.at->layer >= header.n_layers || request.at->head >= header.n_heads)
        fail(ErrorCode::usage, "--at ", printable(options.at), ": the model has ", header.n_layers,
             " layers and ", header.n_heads, " heads, counted from 0");
    }
  }
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
  take_word(options.identify, kIdentify, choices.lazy_arrays.identify);
  take(options.w_last, choices.lazy_arrays.w_last);
  take(options.threshold, choices.lazy.threshold);
  take(options.share, choices.lazy.share);
  take(options.delta, choices.blocks.delta);
  take(options.saving, choices.blocks.wanted_saving);
  if (options.per_head) choices.lazy.per_head = choices.blocks.per_query_head = true;
  choices.blocks.show_divergence = options.divergence;
  take(options.window, choices.budget_counts.window);
  take(options.kernel, choices.budget_counts.kernel);
  take_word(options.pooling, kPooling, choices.budget_counts.pooling);
  take(options.budget, choices.budgets.budget);
  take_word(options.form, kForm, choices.budgets.form);
  take_word(options.score, kScore, choices.sweep.score);
  choices.sweep.against_kept = options.against_kept;
  take(options.least_share, choices.sweep.least_share);
  take(options.wanted_compression, choices.sweep.wanted_compression);
  return request;
}

/// What was given on the command line, for the file.
std::string settings_text(const CLI::App& command) {
  std::string out;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name.rfind("--", 0) != 0 || name == "--output" ||
        name == "--force" || name == "--help")
      continue;
    out += (out.empty() ? "" : " ") + name;
    if (option->get_expected_max() > 0)
      for (const auto& value : option->results()) out += " " + printable(value, 200);
  }
  return out;
}

void run_render(const Options& options, const CLI::App& command) {
  if (options.what.empty())
    fail(ErrorCode::usage, "--what is missing: say what to draw (--what list shows all)");
  if (options.what == "list") return print_list();
  const PictureMaker& maker = picture_maker(options.what);
  if (options.files.empty())
    fail(ErrorCode::usage, "render needs a profile or a policy document to draw from");
  if (options.output.empty())
    fail(ErrorCode::usage, "-o is missing: the file to write, .png, .svg or .csv");
  ImageOptions image{options.scale, options.transparent, parse_size(options.size)};
  const ColourMap colours = colour_map_named(options.colours);
  const OpenedFiles files = open_files(options.files);
  const PictureRequest request = request_of(options, files.source);
  const Headless headless;
  Theme theme = make_theme(options.dark, Headless::font());
  theme.colours = colours;
  const PicturePtr picture = maker.make(files.source, request);
  save_picture(
      *picture, theme, image,
      origin_of(files.source, files.profile_path, files.baseline_path, settings_text(command)),
      options.output, options.force);
  std::cout << options.output.string() << '\n';
}

}  // namespace

void add_render_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "render", "Draw one chart or map to a PNG, SVG or CSV file, without a window");
  const auto options = std::make_shared<Options>();
  Options& o = *options;
  command->add_option("files", o.files, "a profile (.h5), a second one as baseline, documents")
      ->type_name("FILE");
  command->add_option("--what", o.what, "what to draw; 'list' shows all")->type_name("NAME");
  command->add_option("-o,--output", o.output, "the file to write: .png, .svg or .csv")
      ->type_name("FILE");
  command->add_flag("--force", o.force, "replace a file that exists");

  const char* const kLook = "Look";
  command->add_option("--size", o.size, "in units of a pixel at scale 1 [what suits the picture]")
      ->type_name("WxH")
      ->group(kLook);
  command->add_option("--scale", o.scale, "pixels a unit, PNG alone")
      ->check(CLI::Range(0.1, 16.0))
      ->capture_default_str()
      ->group(kLook);
  command->add_flag("--dark", o.dark, "light on dark")->group(kLook);
  command->add_flag("--transparent", o.transparent, "no background")->group(kLook);
  command->add_option("--colours,--colors", o.colours, "viridis, cividis, magma or grey")
      ->capture_default_str()
      ->group(kLook);

  const char* const kSamples = "What of the profile";
  command->add_option("--task", o.task, "samples of this task [all]")->group(kSamples);
  command->add_option("--sample", o.sample, "one sample, by its index")->group(kSamples);
  command->add_option("--at", o.at, "layer and head, as L12.H3")->group(kSamples);
  command
      ->add_option("--region", o.region,
                   "map: queries 5000 to 5255 and keys 0 to 511 are 5000:5256,0:512 [all]")
      ->type_name("Q:Q,K:K")
      ->group(kSamples);
  command->add_option("--length", o.length, "prompt tokens that savings are for [the longest]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->group(kSamples);

  // Settings that a document has are its own unless given.
  const char* const kSettings = "Settings [a document's, or the defaults]";
  command->add_option("--initial", o.initial, "first tokens kept")->group(kSettings);
  command->add_option("--recent", o.recent, "last tokens kept")->group(kSettings);
  const auto share = [&](const char* name, std::optional<double>& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(0.0, 1.0))->group(kSettings);
  };
  share("--threshold", o.threshold, "SimLayerKV: mass from which a layer is lazy");
  const auto word = [&](const char* name, std::optional<std::string>& value,
                        const std::vector<std::string>& words, const char* help) {
    command->add_option(name, value, help)
        ->check(CLI::IsMember(words))
        ->type_name("WORD")
        ->group(kSettings);
  };
  word("--identify", o.identify, kIdentify, "SimLayerKV: when layers are told");
  command->add_option("--w-last", o.w_last, "SimLayerKV: prompt rows of prefill")->group(kSettings);
  share("--share", o.share, "SimLayerKV: samples that make a layer lazy");
  command->add_flag("--per-head", o.per_head, "SimLayerKV: by KV head; PoD: by query head")
      ->group(kSettings);
  share("--delta", o.delta, "PoD: similarity that joins layers");
  share("--saving", o.saving, "PoD: share of the cache to find a delta for");
  command->add_flag("--divergence", o.divergence, "PoD: divergence in place of similarity")
      ->group(kSettings);
  command->add_option("--budget", o.budget, "DynamicKV: tokens a layer")->group(kSettings);
  command->add_option("--window", o.window, "DynamicKV: last tokens kept")->group(kSettings);
  command->add_option("--kernel", o.kernel, "DynamicKV: width of the pooling")->group(kSettings);
  word("--pooling", o.pooling, kPooling, "DynamicKV: how scores are pooled");
  word("--form", o.form, kForm, "DynamicKV: which budgets are shown");
  word("--score", o.score, kScore, "LagKV: what the sweep is judged by");
  command->add_flag("--against-kept", o.against_kept, "LagKV: over tokens kept of a partition")
      ->group(kSettings);
  share("--least", o.least_share, "LagKV: share of the full cache's score");
  share("--compression", o.wanted_compression, "LagKV: compression wanted");
  command->footer(
      "Examples:\n"
      "  kvatlas render --what list\n"
      "  kvatlas render p.h5 policy.json --what lazy --threshold 0.9 -o lazy.png --scale 2\n"
      "  kvatlas render p.h5 --what blocks --at L0.H3 --delta 0.6 -o head3.svg --dark\n"
      "  kvatlas render p.h5 --what map --at L12.H3 --region 5000:5256,0:512 -o part.png\n"
      "  kvatlas render policy.json --what sweep -o sweep.csv");
  command->callback([options, command] { run_render(*options, *command); });
}

}  // namespace kvatlas
