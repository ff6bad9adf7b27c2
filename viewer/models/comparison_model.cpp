// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/comparison_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_front.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "viewer/models/precision_model.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Method;
using nlohmann::json;

const char* control_title(const Method& method, const std::string& member) {
  for (const auto& control : method.controls)
    if (control.member && control.member == member) return control.title;
  return method.title;
}

std::string setting_text(const Method& method, double value) {
  return str(method.setting, " ", str(value));
}

/// The settings of a section that tell policies of its kind apart.
std::string setting_text(const Method& method, const json& settings) {
  if (method.setting) return setting_text(method, settings.at(method.setting).get<double>());
  std::string text;
  for (const char* key : {"lag", "ratio", "budget", "recent", "page"}) {
    const auto value = settings.find(key);
    if (value == settings.end()) continue;
    text += str(text.empty() ? "" : ", ", key, " ",
                value->is_string() ? value->get<std::string>() : str(value->get<double>()));
  }
  return text;
}

std::string size_text(double size) {
  return std::isnan(size) ? "16 bits" : "size " + percent_text(size);
}

void add_policy(ComparedPolicy policy, Measured measured, ComparisonModel& model) {
  policy.kept_share = measured.kept_share;
  policy.score = measured.score;
  policy.prompts = prompts_text(measured.samples, measured.texts, measured.held_out);
  if (measured.tasks.size() > 1)
    for (const auto& [task, of_task] : measured.tasks)
      if (std::find(model.tasks.begin(), model.tasks.end(), task) == model.tasks.end())
        model.tasks.push_back(task);
  if (std::isnan(model.full.mean)) model.full = measured.full;
  policy.measured = std::move(measured);
  model.policies.push_back(std::move(policy));
}

/// What was measured on the prompts that the model is of.
const Measured* measured_for(const ComparisonModel& model, const std::optional<Measured>& all) {
  if (!all || model.task.empty()) return all ? &*all : nullptr;
  const auto found = all->tasks.find(model.task);
  return all->tasks.size() > 1 && found != all->tasks.end() ? &found->second : nullptr;
}

void add_measured(const Method& method, const json& section, const std::string& title,
                  const std::optional<Measured>& measured, bool control, ComparisonModel& model) {
  const Measured* found = measured_for(model, measured);
  if (!found) return;
  const json settings =
      calibrate::method::kHeads.is(method.name)
          ? section.at("settings")
          : calibrate::section_of(calibrate::part_of(method.name, section)).at("settings");
  ComparedPolicy policy;
  policy.name = policy.method = title;
  if (!control && method.setting) {
    policy.section = method.name;
    policy.value = settings.at(method.setting).get<double>();
  }
  policy.setting = calibrate::method::kPrecision.is(method.name)
                       ? size_text(section.value("size", kNoNumber))
                       : setting_text(method, settings);
  policy.needs_training = method.needs_training;
  add_policy(std::move(policy), *found, model);
}

/// A setting that a search tried, and the share that it keeps.
struct TriedSetting {
  calibrate::CurvePoint point;
  double kept_share = kNoNumber;
};

template <class Report>
std::vector<TriedSetting> tried_in(const Report& report, const auto& kept_share) {
  std::vector<TriedSetting> out;
  for (const calibrate::CurvePoint& point : report.curve) out.push_back({point, kept_share(point)});
  return out;
}

/// Curves say the share kept, or it is what a sweep says of the same setting.
std::vector<TriedSetting> tried_settings(const Method& method, const json& section) {
  if (calibrate::method::kSimLayerKv.is(method.name))
    return tried_in(report_in<calibrate::SimLayerKvReport>(section, method),
                    [](const auto& point) { return 1 / point.kv_ratio; });
  if (!calibrate::method::kPod.is(method.name))
    return tried_in(report_in<calibrate::BudgetReport>(section, method),
                    [](const auto& point) { return point.kept_share; });
  const auto pod = report_in<calibrate::PodReport>(section, method);
  return tried_in(pod, [&](const auto& point) {
    for (const auto& at : pod.sweep)
      if (std::abs(at.delta - point.setting) <= 1e-9 && !at.savings.empty())
        return 1 - at.savings.back().saved;
    return kNoNumber;
  });
}

void add_searched(const Method& method, const json& section, ComparisonModel& model) {
  const auto add = [&](ComparedPolicy policy) {
    if (std::isnan(policy.kept_share) || std::isnan(policy.score.mean)) return;
    policy.needs_training = method.needs_training;
    policy.prompts = "the samples of the choice";
    model.searched.push_back(std::move(policy));
  };
  const auto full = report_in<calibrate::MethodReport>(section, method).full;
  if (std::isnan(model.full.mean) && full) model.full = *full;
  if (method.setting) {
    for (const auto& [point, kept_share] : tried_settings(method, section)) {
      ComparedPolicy policy;
      policy.name = policy.method = method.title;
      policy.section = method.name;
      policy.value = point.setting;
      policy.setting = setting_text(method, point.setting);
      policy.kept_share = kept_share;
      policy.score = point.score;
      add(std::move(policy));
    }
  } else if (calibrate::method::kLagKv.is(method.name) && section.contains("sweep")) {
    const SweepModel sweep = sweep_model(section);
    for (std::size_t i = 0; i < sweep.candidates.size(); ++i) {
      const auto& candidate = sweep.candidates[i];
      ComparedPolicy policy;
      policy.method = policy.name =
          candidate.own() ? method.title : control_title(method, candidate.variant);
      policy.section = candidate.own() ? method.name : "";
      policy.setting = str("lag ", candidate.lag, ", ratio ", candidate.ratio);
      policy.candidate = static_cast<int>(i);
      policy.kept_share = 1 - candidate.compression;
      policy.score = candidate.score;
      add(std::move(policy));
    }
  } else if (calibrate::method::kPrecision.is(method.name) && section.contains("curve")) {
    const PrecisionModel precision = precision_model(section);
    for (std::size_t i = 0; i < precision.curve.size(); ++i) {
      const auto& point = precision.curve[i];
      ComparedPolicy policy;
      policy.method = policy.name = method.title;
      policy.section = method.name;
      policy.setting = size_text(point.size);
      policy.candidate = static_cast<int>(i);
      policy.kept_share = point.size;
      policy.score = point.score;
      add(std::move(policy));
    }
    for (const auto& one : precision.uniform) {
      ComparedPolicy policy;
      policy.method = policy.name = "One format in all layers";
      policy.setting = calibrate::facts_of(one.format).word;
      add_policy(std::move(policy), one.measured, model);
    }
  }
}

/// Of [head][layer], the lowest layers of blocks: the share of heads whose layer keeps its own
/// keys.
std::vector<double> own_keys(const calibrate::Blocks& lowest, std::size_t layers) {
  if (lowest.empty()) return {};
  std::vector<double> out(layers, 0);
  for (const auto& head : lowest)
    for (std::size_t l = 0; l < layers && l < head.size(); ++l)
      if (head[l] == static_cast<std::int64_t>(l)) out[l] += 1 / static_cast<double>(lowest.size());
  return out;
}

/// Tokens of each layer as a share of the most.
std::vector<double> shares_of_most(std::vector<double> tokens) {
  const double most = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  for (double& value : tokens) value = most > 0 ? value / most : 0;
  return tokens;
}

/// What a part keeps of each layer.
struct StripOf {
  ComparisonModel::Strip& strip;
  const json& section;
  std::size_t layers;

  void operator()(const calibrate::SimLayerKv& part) const {
    const auto report =
        report_in<calibrate::SimLayerKvReport>(section, calibrate::method::kSimLayerKv);
    strip.word = "samples";
    strip.unit = "share of samples in which the layer stays full";
    if (report.samples > 0) strip.unit += str(", of ", report.samples);
    for (const double rate : report.lazy_rates) strip.values.push_back(1 - rate);
    if (!strip.values.empty() || !part.fixed) return;
    for (const auto& row : *part.fixed)
      if (row.size() == 1) strip.values.push_back(row.front() != 0 ? 0 : 1);
  }
  void operator()(const calibrate::Pod& part) const {
    strip.word = "heads";
    strip.unit = "share of heads that keep keys of their own";
    strip.values = own_keys(part.lowest, layers);
  }
  void operator()(const calibrate::DynamicKv& part) const {
    if (part.fixed) set_budgets({part.fixed->begin(), part.fixed->end()});
  }
  void operator()(const calibrate::HeadKv& part) const {
    std::vector<double> means;
    for (const auto& row : part.fixed.value_or(calibrate::HeadBudgets{}))
      means.push_back(calibrate::mean_of(std::vector<double>(row.begin(), row.end())));
    set_budgets(std::move(means));
  }
  void operator()(const calibrate::Precision& part) const {
    strip.word = "bytes";
    strip.unit = "bytes, as a share of those at 16 bits";
    for (const auto& layer : part.fixed.value_or(LayerFormats{}))
      strip.values.push_back((calibrate::facts_of(layer.keys).bytes_per_value +
                              calibrate::facts_of(layer.values).bytes_per_value) /
                             (2 * calibrate::facts_of(calibrate::KvFormat::f16).bytes_per_value));
  }
  void operator()(const auto&) const {}

 private:
  void set_budgets(std::vector<double> tokens) const {
    strip.word = "tokens";
    strip.unit = "tokens, as a share of the most";
    strip.values = shares_of_most(std::move(tokens));
  }
};

/// What the section's policy keeps of each layer; nothing where it tells none apart.
std::optional<ComparisonModel::Strip> strip_of(const Method& method, const json& section,
                                               std::int64_t layers) {
  if (calibrate::method::kHeads.is(method.name)) return std::nullopt;  // as they were imported
  ComparisonModel::Strip strip{method.title, {}, {}, {}};
  std::visit(StripOf{strip, section, static_cast<std::size_t>(layers)},
             calibrate::part_of(method.name, section));
  if (strip.values.size() != static_cast<std::size_t>(layers)) return std::nullopt;
  return strip;
}

/// "simlayerkv+lagkv" or the text of such a policy -> "SimLayerKV + LagKV".
std::string parts_title(const std::string& text, int kv_bits = 16) {
  std::string title;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('+', from), text.size());
    const auto part = text.substr(from, end - from);
    const auto word = part.substr(0, part.find(':'));
    if (word == "kv4" || word == "kv2")
      kv_bits = word[2] - '0';
    else
      title += str(title.empty() ? "" : " + ", calibrate::title_of(word));
    from = end + 1;
  }
  if (title.empty()) title = "Full cache";
  return kv_bits < 16 ? str(title, ", ", kv_bits, " bits") : title;
}

/// A policy that was tried beside the document's own.
void add_compared(const json& json_of_entry, ComparisonModel& model) {
  const auto entry = calibrate::read_report<calibrate::ComparedEntry>(json_of_entry, "compared");
  const Measured* found = measured_for(model, entry.measured);
  if (!found) return;
  ComparedPolicy policy;
  policy.setting = entry.policy;
  policy.name = policy.method = parts_title(policy.setting);
  if (!entry.runtime.empty()) policy.name += " as " + entry.runtime;
  add_policy(std::move(policy), *found, model);
}

/// The points of a search's front, and what was asked of it.
void add_front(const calibrate::Document& document, std::size_t index, ComparisonModel& model) {
  double bytes_of_whole = kNoNumber;  // every point says its bytes and their share
  for (std::size_t i = 0; i < document.pareto.size(); ++i) {
    const auto entry =
        calibrate::read_report<calibrate::FrontEntry>(document.pareto[i], str("pareto.", i));
    ComparedPolicy policy;
    policy.method = parts_title(entry.family, entry.kv_bits);
    policy.name = policy.method;
    policy.setting = entry.policy;
    policy.kept_share = entry.kept_share;
    policy.score = entry.score;
    policy.prompts = prompts_text(entry.samples, entry.texts);
    policy.front_point = {{index, i}};
    policy.chosen = entry.chosen;
    policy.needs_training = entry.sections.contains(calibrate::method::kPod.name);
    if (i == 0) bytes_of_whole = entry.bytes / entry.kept_share;
    if (!std::isnan(policy.kept_share) && !std::isnan(policy.score.mean))
      model.searched.push_back(std::move(policy));
  }
  if (document.search.empty()) return;
  const auto search = calibrate::read_report<calibrate::SearchReport>(document.search, "search");
  if (std::isnan(model.full.mean)) model.full.mean = search.full_score;
  if (std::isnan(model.least_score))
    model.least_score = search.full_score - search.max_loss_points / 100;
  if (std::isnan(model.most_share)) model.most_share = search.most_bytes / bytes_of_whole;
}

}  // namespace

ComparisonModel comparison_model(std::span<const calibrate::Document> documents,
                                 const std::string& task) {
  ComparisonModel model;
  model.task = task;
  struct Section {
    const Method* method;
    const json* content;
    std::string title;
    bool measured_whole;  // in a composition the first section alone stands for what was measured
  };
  std::vector<Section> sections;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    const auto& document = documents[d];
    if (model.shape.layers == 0)
      model.shape = calibrate::cache_shape(document.model);
    else if (model.shape.layers != document.model.layers)
      continue;  // of another model
    const std::string family = join(document.compose, "+");
    for (const Method& method : calibrate::kSections) {
      const auto found = document.sections.find(method.name);
      if (found == document.sections.end()) continue;
      const bool composed = document.compose.size() > 1;
      const std::string name = found->value("name", "");
      sections.push_back({&method, &*found,
                          composed       ? parts_title(family, document.kv_bits)
                          : name.empty() ? method.title
                                         : parts_title(name),
                          !composed || document.compose.front() == method.name});
    }
    if (task.empty()) add_front(document, d, model);
  }
  for (const auto& [method, section, title, measured_whole] : sections)
    if (measured_whole)
      add_measured(*method, *section, title,
                   report_in<calibrate::MethodReport>(*section, *method).measured, false, model);
  for (const auto& [method, section, title, measured_whole] : sections) {
    for (const auto& [member, beside] : method->controls)
      if (member && section->contains(member))
        add_measured(*method, *section, beside,
                     calibrate::read_report<calibrate::ControlReport>(
                         section->at(member), str(method->name, ".", member))
                         .measured,
                     true, model);
    if (task.empty()) add_searched(*method, *section, model);
    if (auto strip = strip_of(*method, *section, model.shape.layers))
      model.strips.push_back(std::move(*strip));
  }
  for (const auto& document : documents)
    if (document.model.layers == model.shape.layers)
      for (const json& entry : document.compared) add_compared(entry, model);
  // LagKV's policy is one of the candidates of its sweep, and formats are those of a point.
  for (auto& policy : model.policies)
    for (const auto& candidate : model.searched)
      if (candidate.candidate >= 0 && candidate.name == policy.name &&
          candidate.setting == policy.setting) {
        policy.section = candidate.section;
        policy.candidate = candidate.candidate;
      }
  if (!task.empty() && model.policies.empty())
    fail(ErrorCode::usage, "no open document has scores of task ", quoted(task),
         " beside those of others");
  if (model.policies.empty() && model.searched.empty() && model.strips.empty())
    fail(
        ErrorCode::usage,
        "no open document has scores or layers of a policy: 'kvatlas calibrate --model' makes one, "
        "and 'kvatlas evaluate -o' adds what it measures");
  return model;
}

Choices with_policy(Choices choices, const ComparedPolicy& policy) {
  choices.front = {};
  if (calibrate::method::kSimLayerKv.is(policy.section)) choices.lazy.threshold = policy.value;
  if (calibrate::method::kPod.is(policy.section)) choices.blocks.delta = policy.value;
  if (calibrate::method::kDynamicKv.is(policy.section))
    choices.budgets.budget = static_cast<std::int64_t>(policy.value);
  if (calibrate::method::kLagKv.is(policy.section)) choices.lag_candidate = policy.candidate;
  if (calibrate::method::kPrecision.is(policy.section)) choices.precision_point = policy.candidate;
  return choices;
}

Choices with_front(Choices choices, const ComparedPolicy& policy,
                   std::span<const calibrate::Document> documents, const profile::Header* header) {
  const auto [document, point] = policy.front_point.value();
  auto chosen = std::make_shared<calibrate::Document>(
      calibrate::with_front_point(documents[document], point));
  if (header) take_settings(choices, *header, {chosen.get(), 1});
  choices.front = {std::move(chosen), policy.setting};
  return choices;
}

std::vector<ComparisonModel::Strip> strips_of(const calibrate::Document& document) {
  std::vector<ComparisonModel::Strip> strips;
  for (const Method& method : calibrate::kSections)
    if (const auto found = document.sections.find(method.name); found != document.sections.end())
      if (auto strip = strip_of(method, *found, document.model.layers))
        strips.push_back(std::move(*strip));
  return strips;
}

}  // namespace kvatlas::viewer
