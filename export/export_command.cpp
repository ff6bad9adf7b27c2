// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "analyzer/config/cache_card.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "export/commands.hpp"
#include "export/exporters.hpp"
#include "export/importers.hpp"
#include "export/query_statistics.hpp"

namespace kvatlas {
namespace {

namespace fs = std::filesystem;
using exporting::ExportedPolicy;

constexpr std::size_t kLargestConfig = std::size_t{16} << 20;
constexpr int kDeepestConfig = 64;

struct Options {
  std::string policy, output, config, ranges, checkpoint, rule = "amax", by = "layer";
  std::string names = "compressed-tensors";
  std::vector<std::string> runtimes;
  exporting::ExportRequest request;
  bool list = false, json = false, force = false;
};

/// A file and the place where it will lie.
struct Target {
  fs::path path;
  std::string content;
};

struct LinkTarget {
  fs::path path, target;
};

/// Links are made before files, so that a folder with a config.json is whole. One that is there and
/// leads elsewhere is replaced with --force; anything else that is there stays.
void make_links(const std::vector<LinkTarget>& links, bool force) {
  for (const auto& [path, target] : links) {
    std::error_code problem;
    if (fs::equivalent(path.parent_path(), target.parent_path(), problem))
      fail(ErrorCode::usage, "the folder ", quoted(path.parent_path().string(), 400),
           " is the checkpoint's own: choose another with -o");
    const auto there = fs::symlink_status(path, problem);
    if (fs::is_symlink(there) && fs::read_symlink(path, problem) == target) continue;
    if (fs::exists(there)) {
      if (!force) fail_exists(path);
      if (!fs::is_symlink(there))
        fail(ErrorCode::usage, quoted(path.string(), 400),
             " is no link, which is not replaced: choose another folder with -o");
      fs::remove(path, problem);
    }
    fs::create_symlink(target, path, problem);
    if (problem)
      fail(ErrorCode::resource, "making the link ", quoted(path.string(), 400),
           " failed: ", problem.message());
  }
}

void check_targets(const Options& options, const std::vector<Target>& targets) {
  if (fs::exists(options.output) && !fs::is_directory(options.output))
    fail(ErrorCode::usage, quoted(options.output, 400), " is a file, expected a folder");
  if (options.force) return;
  for (const auto& target : targets)
    if (fs::exists(target.path)) fail_exists(target.path);
}

void write_targets(const Options& options, const std::vector<Target>& targets,
                   const std::vector<LinkTarget>& links = {}) {
  check_targets(options, targets);
  std::vector<WholeFile> files;
  for (const auto& target : targets) {
    std::error_code problem;
    fs::create_directories(target.path.parent_path(), problem);
    if (problem)
      fail(ErrorCode::resource, "making the folder ",
           quoted(target.path.parent_path().string(), 400), " failed: ", problem.message());
    files.push_back({target.path, target.content});
    // What a link leads to would be written, and that could be the checkpoint's.
    if (!links.empty() && fs::is_symlink(target.path, problem))
      fail(ErrorCode::usage, quoted(target.path.string(), 400),
           " is a link, which is not written through: choose another folder with -o");
  }
  make_links(links, options.force);
  write_whole_files(files, options.force);
}

/// The files below the output folder. Several runtimes have a folder each, and in it several
/// policies of a document have a folder each.
std::vector<Target> targets_of(const Options& options, const fs::path& folder,
                               const std::vector<ExportedPolicy>& policies, bool several) {
  std::vector<Target> targets;
  for (const auto& policy : policies)
    for (const auto& file : policy.files)
      targets.push_back(
          {fs::path(options.output) / folder / (several ? policy.section : "") / file.path,
           file.content});
  return targets;
}

std::vector<LinkTarget> links_of(const Options& options, const fs::path& folder,
                                 const std::vector<ExportedPolicy>& policies, bool several) {
  std::vector<LinkTarget> links;
  for (const auto& policy : policies)
    for (const auto& link : policy.links)
      links.push_back(
          {fs::path(options.output) / folder / (several ? policy.section : "") / link.path,
           link.target});
  return links;
}

/// Tells the user what was exported for one runtime and what was left out; in one line if `brief`.
void report(const std::string& runtime, const exporting::ExportResult& result, bool brief) {
  if (brief) {
    std::cerr << "kvatlas: " << runtime << ':';
    const char* separator = " ";
    for (const auto& policy : result.policies) {
      std::cerr << separator << policy.section << (policy.note.empty() ? "" : " (fixed)");
      separator = ", ";
    }
    separator = "; left out: ";
    for (const auto& reason : result.refused) {
      std::cerr << separator << reason.substr(0, reason.find(':'));
      separator = ", ";
    }
    std::cerr << '\n';
    return;
  }
  for (const auto& policy : result.policies)
    if (!policy.note.empty())
      std::cerr << "kvatlas: note: " << policy.section << ": " << policy.note << '\n';
  for (const auto& reason : result.refused) std::cerr << "kvatlas: left out: " << reason << '\n';
}

std::vector<std::string> wanted_runtimes(const Options& options) {
  std::vector<std::string> names;
  for (const auto& name : options.runtimes) {
    if (name != "all") {
      names.push_back(calibrate::runtime_named(name).name);
      continue;
    }
    for (const auto& runtime : calibrate::runtimes()) names.push_back(runtime.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// The windows of the model's own. Empty where the configuration leaves sizes to its code.
std::vector<std::int64_t> windows_in(const std::string& config) try {
  std::vector<std::int64_t> windows;
  for (const auto& layer : model::read_cache_card(config).layers) windows.push_back(layer.tokens);
  return calibrate::own_windows(windows);
} catch (const Error&) {
  return {};
}

/// Reads config.json into the request, and returns the model that it describes.
calibrate::ModelInfo read_config(Options& options) {
  const auto text = read_text_file(options.config, kLargestConfig);
  return in_context(printable(options.config, 400), [&] {
    options.request.config = parse_json(text, kDeepestConfig);
    auto model = importing::model_of_config(*options.request.config);
    if (model.architecture.empty())
      fail(ErrorCode::unreadable, "'model_type' is missing: expected a checkpoint's config.json");
    model.windows = windows_in(options.config);
    return model;
  });
}

/// The document of a policy that was given as text, such as lagkv:lag=128.
calibrate::Document document_of_text(const std::string& text,
                                     const std::optional<calibrate::ModelInfo>& model) {
  const auto policy = calibrate::parse_policy(text);
  if (!model)
    fail(ErrorCode::usage, quoted(text, 400),
         " does not say of which model: give the checkpoint's config.json with --config");
  if (model->layers == 0 || model->heads == 0 || model->head_dim == 0)
    fail(ErrorCode::usage,
         "config.json leaves num_hidden_layers, num_attention_heads or head_dim to "
         "its code: a policy as text needs them");
  return calibrate::document_of(policy, *model);
}

/// Error(usage) if config.json describes another model. Numbers that it does not give are not
/// compared.
void require_same_model(const calibrate::ModelInfo& found, const calibrate::ModelInfo& expected,
                        const std::string& config) {
  const auto require = [&](const char* what, std::int64_t of_config, std::int64_t of_policy) {
    if (of_config != 0 && of_config != of_policy)
      fail(ErrorCode::usage, printable(config, 400), " is of a model with ", of_config, ' ', what,
           ", the policy of one with ", of_policy);
  };
  require("layers", found.layers, expected.layers);
  require("heads", found.heads, expected.heads);
  require("KV heads", found.kv_heads, expected.kv_heads);
}

/// Scales by what a profile counted, and what they are worth there.
exporting::ScalesRequest scales_of(const Options& options) {
  const profile::Reader profile(options.ranges);
  const auto ranges = calibrate::read_ranges(profile);
  exporting::ScalesRequest out;
  out.scales = calibrate::fp8_scales(
      ranges, calibrate::ScaleRule::parse(options.rule),
      options.by == "head" ? calibrate::ScalesBy::head : calibrate::ScalesBy::layer);
  calibrate::Fp8Scales shared;
  for (const double scale : calibrate::shared_scales(out.scales)) shared.keys.push_back({scale});
  shared.values = shared.keys;
  out.errors = calibrate::errors_under(ranges, out.scales);
  out.shared_errors = calibrate::errors_under(ranges, shared);
  out.origin = calibrate::worth_text(ranges, out.scales, options.rule);
  return out;
}

calibrate::Document open_document(const Options& options,
                                  const std::optional<calibrate::ModelInfo>& model) {
  if (!options.policy.ends_with(".json") && !fs::exists(options.policy))
    return document_of_text(options.policy, model);
  auto document = calibrate::read_document(options.policy);
  if (model) require_same_model(*model, document.model, options.config);
  return document;
}

/// The statistics of a profile, for software that reads them.
void run_statistics_export(const Options& options) {
  const auto wrong = std::find_if_not(options.runtimes.begin(), options.runtimes.end(),
                                      exporting::reads_statistics);
  if (wrong != options.runtimes.end())
    fail(ErrorCode::usage, quoted(options.policy, 400), " is a profile, of which ",
         join(exporting::kStatisticReaders, ", "), " read statistics, not ", quoted(*wrong),
         ": calibrate a policy for it");
  const profile::Reader profile(options.policy);
  std::vector<Target> targets;
  for (const auto& name : options.runtimes)
    for (const auto& file : exporting::export_query_statistics(profile, name))
      targets.push_back(
          {fs::path(options.output) / (options.runtimes.size() > 1 ? name : "") / file.path,
           file.content});
  write_targets(options, targets);
  for (const auto& target : targets) std::cout << target.path.string() << '\n';
  std::cerr << "kvatlas: README.txt beside the files says how they are used\n";
}

void print_list(bool as_json) {
  if (as_json) {
    std::cout << exporting::matrix_json().dump(2) << '\n';
    return;
  }
  std::cout << exporting::matrix_text() << "\nA profile is exported too, as statistics for: "
            << join(exporting::kStatisticReaders, ", ")
            << "\n(of --capture queries; of queries,covariance; of heads)\n";
}

void run_export(Options options) {
  if (options.list) return print_list(options.json);
  if (options.policy.empty())
    fail(ErrorCode::usage, "export needs a policy: a document, or text as lagkv:lag=128");
  if (options.runtimes.empty())
    fail(ErrorCode::usage, "--to is missing: name a runtime, or all (--list shows them)");
  if (options.output.empty()) fail(ErrorCode::usage, "-o is missing: the folder to write to");
  outlive_readers();
  if (profile::is_profile(options.policy)) return run_statistics_export(options);
  const auto& known = calibrate::runtimes();
  for (const auto& name : options.runtimes)
    if (exporting::reads_statistics(name) &&
        std::none_of(known.begin(), known.end(), [&](const auto& one) { return one.name == name; }))
      fail(ErrorCode::usage, name, " reads statistics of a profile, and ",
           quoted(options.policy, 400), " is a policy: give the profile");
  const auto names = wanted_runtimes(options);
  std::optional<calibrate::ModelInfo> model;
  if (!options.checkpoint.empty()) {
    options.request.checkpoint = exporting::open_checkpoint(options.checkpoint);
    if (options.config.empty())
      options.config = (options.request.checkpoint->folder / "config.json").string();
  }
  options.request.modelopt_names = options.names == "modelopt";
  if (!options.ranges.empty())
    options.request.scales =
        in_context(printable(options.ranges, 400), [&] { return scales_of(options); });
  if (!options.config.empty()) model = read_config(options);
  const auto document = open_document(options, model);
  if (const auto why = calibrate::why_no_runtime(document.model); !why.empty())
    fail(ErrorCode::usage, "no runtime is given a policy of a model of architecture ",
         quoted(document.model.architecture), ": ", why,
         "; 'kvatlas evaluate' says what the policy does");
  const bool several =
      document.compose.empty() && document.sections.size() > 1 && options.request.section.empty();
  const bool all = names.size() > 1;
  std::vector<Target> targets;
  std::vector<LinkTarget> links;
  std::vector<std::pair<std::string, exporting::ExportResult>> results;
  for (const auto& name : names) {
    options.request.runtime = name;
    try {
      auto result = exporting::export_document(document, options.request);
      const auto of_runtime = targets_of(options, all ? name : "", result.policies, several);
      targets.insert(targets.end(), of_runtime.begin(), of_runtime.end());
      const auto more = links_of(options, all ? name : "", result.policies, several);
      links.insert(links.end(), more.begin(), more.end());
      results.emplace_back(name, std::move(result));
    } catch (const Error& error) {
      if (!all || error.code() != ErrorCode::usage) throw;
      // Why all that were not asked for by name are given nothing would fill the screen.
      std::cerr << "kvatlas: " << name << ": nothing"
                << (options.runtimes == std::vector<std::string>{"all"}
                        ? str(" (kvatlas export ... --to ", name, " says why)")
                        : str(": ", error.what()))
                << '\n';
    }
  }
  if (targets.empty()) fail(ErrorCode::usage, "none of the runtimes can take the policy");
  write_targets(options, targets, links);
  for (const auto& [name, result] : results) report(name, result, all);
  for (const auto& target : targets) std::cout << target.path.string() << '\n';
  std::cerr << "kvatlas: README.txt beside the files says how they are used, what the runtime does "
               "otherwise, and what that costs\n";
}

}  // namespace

void add_export_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Turn a calibrated policy into the files that a runtime reads");
  auto options = std::make_shared<Options>();
  add_option(*command, "policy", options->policy, "POLICY",
             "a policy document; with --config also a policy as text, such as lagkv:lag=128; or a "
             "profile, for software that reads statistics of queries or heads");
  add_option(*command, "--to", options->runtimes, "RUNTIME",
             "a runtime, several with commas between, or all")
      ->delimiter(',');
  add_option(*command, "-o,--output", options->output, "DIR",
             "the folder to write to; it is made if it is missing");
  add_option(*command, "--length", options->request.length, "N",
             "prompt tokens that ratios are for (default: the longest of the calibration)")
      ->check(whole_range(1, std::int64_t{1} << 24));
  add_option(*command, "--method", options->request.section, "METHOD",
             "take only this method's policy of a document that holds several");
  add_option(*command, "--task", options->request.task, "NAME",
             "take DynamicKV's budgets of this task (default: those of all tasks)");
  command->add_flag("--fixed", options->request.fixed,
                    "fix lazy layers beforehand, even where the runtime could decide by input");
  add_option(*command, "--config", options->config, "FILE",
             "the checkpoint's config.json, so that files that extend it are whole");
  add_option(*command, "--ranges", options->ranges, "PROFILE",
             "of a policy with fp8: make scales by a profile of --capture ranges");
  add_option(*command, "--scales", options->rule, "RULE",
             "how: amax (largest magnitude / 448), a percentile such as p99.9, mse or kl (default: "
             "amax)");
  add_option(*command, "--scales-by", options->by, "WHAT",
             "a scale for each layer, or for each KV head (default: layer)")
      ->check(CLI::IsMember({"layer", "head"}));
  add_option(*command, "--scale-names", options->names, "NAMES",
             "how the scales' tensors are called: as compressed-tensors or modelopt has them "
             "(default: compressed-tensors)")
      ->check(CLI::IsMember({"compressed-tensors", "modelopt"}));
  add_option(*command, "--checkpoint", options->checkpoint, "DIR",
             "the checkpoint that a folder with the scales is laid over; it is left as it is");
  command->add_flag("--force", options->force, "replace files that exist");
  command->add_flag("--list", options->list, "print which runtime takes which policies, and how");
  command->add_flag("--json", options->json, "with --list: print JSON")
      ->needs(command->get_option("--list"));
  command->footer(
      "Beside its files each export has a README.txt: the command that passes them, what the "
      "runtime\n"
      "does otherwise, and what that costs where it was measured (kvatlas evaluate --as RUNTIME "
      "-o).\n"
      "\nExamples:\n"
      "  kvatlas export --list\n"
      "  kvatlas export policy.json --to vllm --method simlayerkv -o vllm/\n"
      "  kvatlas export policy.json --to kvpress --length 8192 -o kvpress/\n"
      "  kvatlas export policy.json --to transformers --config ./Llama-3.1-8B/config.json -o out/\n"
      "  kvatlas export lagkv:lag=128,ratio=1/4 --to lagkv --config config.json --length 8192 -o "
      "lagkv/\n"
      "  kvatlas export policy.json --to all -o runtimes/\n"
      "  kvatlas export precision:keys=fp8,values=fp8 --to vllm --ranges p.h5 --checkpoint "
      "./Llama-3.1-8B --length 1024 -o fp8/\n"
      "  kvatlas export p.h5 --to triattention,expected-attention -o statistics/\n"
      "  kvatlas export p.h5 --to duo-attention -o heads/");
  command->callback([options] { run_export(*options); });
}

}  // namespace kvatlas
