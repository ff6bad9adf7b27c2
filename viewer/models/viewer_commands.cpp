// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/viewer_commands.hpp"

#include <memory>
#include <utility>

#include "base/options.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "viewer/maps/colour_maps.hpp"
#include "viewer/models/picture_list.hpp"

namespace kvatlas::viewer {

const std::vector<std::string> kFormWords = {"raw", "scaled", "exact"};
const std::vector<std::string> kScoreWords = {"score", "digits-prefix", "digits-in-place",
                                              "attention"};

namespace {

constexpr const char* kViewExamples = R"(Examples:
  kvatlas view p.h5 policy.json                      a profile, and the policy calibrated from it
  kvatlas view p.h5 --screen lazy --at L12.H3        straight to a place
  kvatlas view new.h5 --baseline old.h5              two profiles, compared
  kvatlas view 'kvatlas:/data/p.h5#screen=maps&at=L12.H3'   a link that "Copy link" made

Without a display, 'kvatlas render' draws one chart or map and 'kvatlas report' makes a page.)";

void add_view(CLI::App& app, std::function<void(const ViewOptions&)> run) {
  CLI::App* command = app.add_subcommand("view", "Look at profiles and policies in a window");
  const auto options = std::make_shared<ViewOptions>();
  command
      ->add_option("files", options->files,
                   "profiles (.h5), policy documents (.json) and links (kvatlas:…)")
      ->type_name("FILE");
  command->add_option("--baseline", options->baseline, "a profile to compare with")
      ->type_name("FILE");
  command->add_option("--screen", options->screen, "the screen to begin with, such as lazy")
      ->type_name("NAME");
  command->add_option("--at", options->at, "the layer and head to begin with, such as L12.H3")
      ->type_name("PLACE");
  command->add_flag("--dark", options->dark, "use dark colours, this time only");
  command->footer(kViewExamples);
  command->callback([options, run = std::move(run)] { run(*options); });
}

/// The options that were given, but for those that say where the file goes.
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

void add_render(CLI::App& app, std::function<void(const RenderOptions&)> run) {
  CLI::App* command = app.add_subcommand(
      "render", "Draw one chart or map to a PNG, SVG, PDF or CSV file, without a window");
  const auto options = std::make_shared<RenderOptions>();
  RenderOptions& o = *options;
  command
      ->add_option("files", o.files,
                   "a profile (.h5), a second one as baseline, documents, or kept tokens (.jsonl)")
      ->type_name("FILE");
  command->add_option("--what", o.what, "what to draw; 'list' shows all")->type_name("NAME");
  command->add_option("-o,--output", o.output, "the file to write: .png, .svg, .pdf or .csv")
      ->type_name("FILE");
  command->add_flag("--force", o.force, "replace the output if it exists");

  const char* const kLook = "Look";
  auto* size = command
                   ->add_option("--size", o.size,
                                "size in pixels at scale 1 (default: what suits the picture)")
                   ->type_name("WxH")
                   ->group(kLook);
  command
      ->add_option("--column", o.column,
                   "as wide as one column of a paper (3.5 inches), or as two (7.16 inches)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{2}))
      ->excludes(size)
      ->group(kLook);
  command
      ->add_option("--font-size", o.font_size, "points of the text (default: 10; with --column 8)")
      ->check(real_range(4.0, 40.0))
      ->group(kLook);
  command->add_flag("--no-title", o.no_title, "leave out the title")->group(kLook);
  command->add_flag("--no-notes", o.no_notes, "leave out the notes")->group(kLook);
  command->add_flag("--no-legend", o.no_legend, "leave out the legend")->group(kLook);
  command->add_option("--scale", o.scale, "pixels of a PNG for each pixel of --size")
      ->check(real_range(0.1, 16.0))
      ->capture_default_str()
      ->group(kLook);
  command->add_flag("--dark", o.dark, "draw light on dark")->group(kLook);
  command->add_flag("--transparent", o.transparent, "draw no background")->group(kLook);
  command->add_option("--colours,--colors", o.colours, "viridis, cividis, magma or grey")
      ->capture_default_str()
      ->group(kLook);

  const char* const kSamples = "What of the profile";
  command->add_option("--task", o.task, "samples of this task (default: all)")
      ->type_name("NAME")
      ->group(kSamples);
  command->add_option("--sample", o.sample, "one sample, by its index; of kept tokens, one prompt")
      ->check(CLI::NonNegativeNumber)
      ->group(kSamples);
  command->add_option("--at", o.at, "layer and head, such as L12.H3")
      ->type_name("PLACE")
      ->group(kSamples);
  command
      ->add_option(
          "--policy", o.policies,
          "kept: the policy that is shown; given twice, also the one beside it (default: the "
          "first two)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kSamples);
  command
      ->add_option("--generated", o.generated,
                   "kept: how many tokens were generated (default: all)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->group(kSamples);
  command
      ->add_option("--region", o.region,
                   "map: queries 5000 to 5255 and keys 0 to 511 are 5000:5256,0:512 (default: all)")
      ->type_name("Q:Q,K:K")
      ->group(kSamples);
  command
      ->add_option("--length", o.length,
                   "prompt tokens that savings are for (default: the longest)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->group(kSamples);

  // Settings that a document has are its own unless given.
  const char* const kSettings = "Settings (default: a document's, else the published ones)";
  command->add_option("--initial", o.initial, "first tokens kept")->group(kSettings);
  command->add_option("--recent", o.recent, "last tokens kept")->group(kSettings);
  const auto share = [&](const char* name, std::optional<double>& value, const char* help) {
    command->add_option(name, value, help)->check(real_range(0.0, 1.0))->group(kSettings);
  };
  const auto setting = [&](const char* part, const char* key, const char* name, auto& value,
                           const char* help) {
    return calibrate::limit_to_setting(command->add_option(name, value, help), part, key)
        ->group(kSettings);
  };
  setting(calibrate::method::kSimLayerKv.name, "threshold", "--threshold", o.threshold,
          "SimLayerKV: mass from which a layer is lazy");
  const auto word = [&](const char* name, std::optional<std::string>& value,
                        const std::vector<std::string>& words, const char* help) {
    command->add_option(name, value, help)
        ->check(CLI::IsMember(words))
        ->type_name("WORD")
        ->group(kSettings);
  };
  setting(calibrate::method::kSimLayerKv.name, "identify", "--identify", o.identify,
          "SimLayerKV: when lazy layers are told apart")
      ->type_name("WORD");
  command->add_option("--w-last", o.w_last, "SimLayerKV: last prompt rows, which prefill looks at")
      ->group(kSettings);
  share("--share", o.share, "SimLayerKV: share of samples from which a layer is lazy for all");
  command
      ->add_flag("--per-head", o.per_head, "decide by KV head (SimLayerKV) or by query head (PoD)")
      ->group(kSettings);
  setting(calibrate::method::kPod.name, "delta", "--delta", o.delta,
          "PoD: similarity that joins layers");
  share("--saving", o.saving, "PoD: share of the cache that the delta is to save");
  command->add_flag("--divergence", o.divergence, "PoD: show divergence in place of similarity")
      ->group(kSettings);
  command->add_option("--budget", o.budget, "DynamicKV: tokens kept a layer, in the mean")
      ->group(kSettings);
  command->add_option("--window", o.window, "DynamicKV: last tokens kept")->group(kSettings);
  command->add_option("--kernel", o.kernel, "DynamicKV: positions that scores are pooled over")
      ->group(kSettings);
  setting(calibrate::method::kDynamicKv.name, "pooling", "--pooling", o.pooling,
          "DynamicKV: how scores are pooled")
      ->type_name("WORD");
  word("--form", o.form, kFormWords, "DynamicKV: which budgets are shown");
  word("--score", o.score, kScoreWords, "LagKV's sweep and needle: what is shown of the answers");
  command
      ->add_flag("--against-kept", o.against_kept,
                 "LagKV: draw over the tokens kept of a partition")
      ->group(kSettings);
  share("--least", o.least_share, "LagKV: least share of the full cache's score");
  share("--compression", o.wanted_compression, "LagKV: least share of the cache to save");
  command->footer(
      "Examples:\n"
      "  kvatlas render --what list\n"
      "  kvatlas render p.h5 policy.json --what lazy --threshold 0.9 -o lazy.png --scale 2\n"
      "  kvatlas render p.h5 --what blocks --at L0.H3 --delta 0.6 -o head3.svg --dark\n"
      "  kvatlas render p.h5 --what map --at L12.H3 --region 5000:5256,0:512 -o part.png\n"
      "  kvatlas render p.h5 --what lazy-layers --column 1 --no-title --no-notes -o figure.pdf\n"
      "  kvatlas render policy.json --what sweep -o sweep.csv");
  command->callback([options, command, run = std::move(run)] {
    options->given = settings_text(*command);
    run(*options);
  });
}

void add_report(CLI::App& app, std::function<void(const ReportOptions&)> run) {
  CLI::App* command =
      app.add_subcommand("report", "Make one HTML page of a profile and its policies");
  const auto options = std::make_shared<ReportOptions>();
  command
      ->add_option("files", options->files,
                   "a profile (.h5) and the documents made from it (.json)")
      ->type_name("FILE");
  command->add_option("-o,--output", options->output, "the page to write")->type_name("FILE");
  command->add_flag("--force", options->force, "replace the output if it exists");
  command->add_option("--title", options->title, "heading (default: the model's name)")
      ->type_name("TEXT");
  command->add_option("--task", options->task, "samples of this task (default: all)")
      ->type_name("NAME");
  command
      ->add_option("--length", options->length,
                   "prompt tokens that savings are for (default: the longest)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->type_name("N");
  command->add_option("--colours,--colors", options->colours, "viridis, cividis, magma or grey")
      ->capture_default_str();
  command->footer(
      "The page is one file that fetches nothing. Its tables sort, its maps zoom and its settings\n"
      "move; without JavaScript it is pictures and tables. It follows the reader's light or dark.\n"
      "\nExample:\n  kvatlas report p.h5 policy.json -o report.html");
  command->callback([options, run = std::move(run)] { run(*options); });
}

}  // namespace

void add_viewer_commands(CLI::App& app, const ViewerCommands& commands) {
  add_view(app, commands.view);
  add_render(app, commands.render);
  add_report(app, commands.report);
}

std::vector<std::string> known_pictures() {
  std::vector<std::string> names = {"list"};
  for (const auto& picture : picture_list()) names.emplace_back(picture.name);
  return names;
}

std::vector<std::string> known_colours() {
  std::vector<std::string> names;
  for (const auto map : kColourMaps)
    if (!is_diverging(map)) names.emplace_back(colour_map_name(map));
  return names;
}

}  // namespace kvatlas::viewer
