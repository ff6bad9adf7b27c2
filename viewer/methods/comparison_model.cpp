// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/comparison_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_front.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "viewer/methods/choices_document.hpp"
#include "viewer/methods/method_row.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Method;
using nlohmann::json;

/// The settings of a section that tell policies of its kind apart.
std::string setting_text(const Method& method, const json& settings) {
  if (method.setting)
    return str(method.setting, " ", str(settings.at(method.setting).get<double>()));
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
                       ? size_text(report_in<calibrate::PrecisionReport>(section, method).size)
                       : setting_text(method, settings);
  policy.needs_training = method.needs_training;
  add_policy(std::move(policy), *found, model);
}

/// What the section's policy keeps of each layer; nothing where it tells none apart.
std::optional<ComparisonModel::Strip> strip_of(const Method& method, const json& section,
                                               std::int64_t layers) {
  const MethodRow* row = find_row(method.name);
  if (!row || !row->strip) return std::nullopt;
  ComparisonModel::Strip strip{method.title, {}, {}, {}};
  row->strip(calibrate::part_of(method.name, section), section, static_cast<std::size_t>(layers),
             strip);
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
  const std::optional<Measured> measured = entry.measured;
  const Measured* found = measured_for(model, measured);
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
    for (const Method& method : calibrate::kSections)
      if (method.needs_training && entry.sections.contains(method.name))
        policy.needs_training = true;
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

void add_policy(ComparedPolicy policy, Measured measured, ComparisonModel& model) {
  policy.kept_share = measured.kept_share;
  policy.score = measured.score;
  policy.prompts =
      prompts_text(measured.samples, measured.texts, measured.held_out.value_or(false));
  if (measured.tasks.size() > 1)
    for (const auto& [task, of_task] : measured.tasks)
      if (std::find(model.tasks.begin(), model.tasks.end(), task) == model.tasks.end())
        model.tasks.push_back(task);
  if (std::isnan(model.full.mean)) model.full = measured.full;
  policy.measured = std::move(measured);
  model.policies.push_back(std::move(policy));
}

ComparisonModel comparison_model(std::span<const calibrate::Document> documents,
                                 const std::string& task) {
  ComparisonModel model;
  model.task = task;
  struct Section {
    const Method* method;
    const json* content;
    calibrate::MethodReport report;
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
      auto report = report_in<calibrate::MethodReport>(*found, method);
      std::string title = composed              ? parts_title(family, document.kv_bits)
                          : report.name.empty() ? method.title
                                                : parts_title(report.name);
      sections.push_back({&method, &*found, std::move(report), std::move(title),
                          !composed || document.compose.front() == method.name});
    }
    if (task.empty()) add_front(document, d, model);
  }
  for (const auto& [method, section, report, title, measured_whole] : sections)
    if (measured_whole) add_measured(*method, *section, title, report.measured, false, model);
  for (const auto& [method, section, report, title, measured_whole] : sections) {
    for (const auto& [member, beside] : method->controls)
      if (member && section->contains(member))
        add_measured(*method, *section, beside,
                     calibrate::read_report<calibrate::ControlReport>(
                         section->at(member), str(method->name, ".", member))
                         .measured,
                     true, model);
    const MethodRow* row = find_row(method->name);
    if (task.empty() && row) {
      if (std::isnan(model.full.mean) && report.full) model.full = *report.full;
      row->add_searched(*section, model);
    }
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
  if (const MethodRow* row = find_row(policy.section)) row->choose(policy, choices);
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
