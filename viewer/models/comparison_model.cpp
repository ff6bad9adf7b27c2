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

std::string setting_text(const Method& method, const json& settings) {
  if (method.setting) return str(method.setting, " ", str(number_in(settings, method.setting)));
  std::string text;
  for (const char* key : {"lag", "ratio", "budget", "recent", "page"}) {
    const json& value = member_of(settings, key);
    if (value.is_null()) continue;
    text += str(text.empty() ? "" : ", ", key, " ",
                value.is_string() ? value.get<std::string>() : str(number_in(settings, key)));
  }
  return text;
}

std::string size_text(const json& object) {
  const double size = number_in(object, "size");
  return std::isnan(size) ? "16 bits" : "size " + percent_text(size);
}

void add_policy(ComparedPolicy policy, Measured measured, ComparisonModel& model) {
  policy.kept_share = measured.kept_share;
  policy.score = measured.score;
  policy.prompts = prompts_text(measured.samples, measured.texts, measured.held_out);
  for (const auto& [task, score] : measured.tasks)
    if (std::find(model.tasks.begin(), model.tasks.end(), task) == model.tasks.end())
      model.tasks.push_back(task);
  if (std::isnan(model.full.mean)) model.full = measured.full;
  policy.measured = std::move(measured);
  model.policies.push_back(std::move(policy));
}

/// What was measured on the prompts that the model is of.
std::optional<Measured> measured_for(const ComparisonModel& model, const json& holder) {
  const json& all = member_of(holder, "measured");
  return measured_of(model.task.empty() ? all
                                        : member_of(member_of(all, "tasks"), model.task.c_str()));
}

void add_measured(const Method& method, const json& section, const std::string& title,
                  const json& holder, bool control, ComparisonModel& model) {
  auto found = measured_for(model, holder);
  if (!found) return;
  const json& settings = member_of(section, "settings");
  ComparedPolicy policy;
  policy.name = policy.method = title;
  if (!control && method.setting) {
    policy.section = method.name;
    policy.value = number_in(settings, method.setting);
  }
  policy.setting = calibrate::method::kPrecision.is(method.name) ? size_text(section)
                                                                 : setting_text(method, settings);
  policy.needs_training = method.needs_training;
  add_policy(std::move(policy), std::move(*found), model);
}

/// Share kept at the settings of a search. Curves say it, or it is between those that a sweep says
/// it of.
double kept_of(const Method& method, const json& section, const json& point) {
  if (const double share = number_in(point, "kept_share"); !std::isnan(share)) return share;
  if (const double ratio = number_in(point, "kv_ratio"); ratio > 0) return 1 / ratio;
  const json& sweep = member_of(section, "sweep");
  if (!sweep.is_array()) return kNoNumber;
  for (const json& at : sweep) {
    if (std::abs(number_in(at, method.setting) - number_in(point, method.setting)) > 1e-9) continue;
    const json& savings = member_of(at, "savings");
    if (savings.is_array() && !savings.empty()) return 1 - number_in(savings.back(), "saved");
  }
  return kNoNumber;
}

void add_searched(const Method& method, const json& section, ComparisonModel& model) {
  const auto add = [&](ComparedPolicy policy) {
    if (std::isnan(policy.kept_share) || std::isnan(policy.score.mean)) return;
    policy.needs_training = method.needs_training;
    policy.prompts = "the samples of the choice";
    model.searched.push_back(std::move(policy));
  };
  const json& full = member_of(section, "full");
  if (std::isnan(model.full.mean)) model.full = interval_of(full);
  if (method.setting) {
    const json& curve = member_of(section, "curve");
    if (!curve.is_array()) return;
    for (const json& point : curve) {
      ComparedPolicy policy;
      policy.name = policy.method = method.title;
      policy.section = method.name;
      policy.value = number_in(point, method.setting);
      policy.setting = setting_text(method, point);
      policy.kept_share = kept_of(method, section, point);
      policy.score = {number_in(point, "score"), number_in(point, "low"), number_in(point, "high")};
      add(std::move(policy));
    }
  } else if (calibrate::method::kLagKv.is(method.name) && member_of(section, "sweep").is_array() &&
             !member_of(section, "sweep").empty()) {
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
  } else if (calibrate::method::kPrecision.is(method.name) &&
             member_of(section, "curve").is_array()) {
    const PrecisionModel precision = precision_model(section);
    for (std::size_t i = 0; i < precision.curve.size(); ++i) {
      const auto& point = precision.curve[i];
      ComparedPolicy policy;
      policy.method = policy.name = method.title;
      policy.section = method.name;
      policy.setting = size_text({{"size", point.size}});
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

std::vector<double> flags_of(const json& list) {
  std::vector<double> out;
  if (list.is_array())
    for (const json& value : list) out.push_back(value == true ? 1 : 0);
  return out;
}

/// Of [head][layer], the lowest layers of blocks: the share of heads whose layer keeps its own
/// keys.
std::vector<double> own_keys(const json& lowest, std::size_t layers) {
  std::vector<double> out(layers, 0);
  if (!lowest.is_array() || lowest.empty()) return {};
  for (const json& head : lowest) {
    const auto blocks = numbers_of(head);
    for (std::size_t l = 0; l < layers && l < blocks.size(); ++l)
      if (blocks[l] == static_cast<double>(l)) out[l] += 1 / static_cast<double>(lowest.size());
  }
  return out;
}

/// What the section's policy keeps of each layer; nothing where it tells none apart.
std::optional<ComparisonModel::Strip> strip_of(const Method& method, const json& section,
                                               std::int64_t layers) {
  ComparisonModel::Strip strip{method.title, {}, {}, {}};
  if (calibrate::method::kSimLayerKv.is(method.name)) {
    strip.word = "samples";
    strip.unit = "share of samples in which the layer stays full";
    if (const auto samples = whole_in(section, "samples"); samples > 0)
      strip.unit += str(", of ", samples);
    for (const double rate : numbers_of(member_of(section, "lazy_rates")))
      strip.values.push_back(1 - rate);
    if (strip.values.empty())
      for (const double lazy : flags_of(member_of(member_of(section, "result"), "lazy_layers")))
        strip.values.push_back(1 - lazy);
  } else if (calibrate::method::kPod.is(method.name)) {
    strip.word = "heads";
    strip.unit = "share of heads that keep keys of their own";
    strip.values = own_keys(member_of(member_of(section, "result"), "lowest"),
                            static_cast<std::size_t>(layers));
  } else if (calibrate::method::kDynamicKv.is(method.name) ||
             calibrate::method::kHeadKv.is(method.name)) {
    strip.word = "tokens";
    strip.unit = "tokens, as a share of the most";
    for (const json& budget : member_of(member_of(section, "result"), "budgets"))
      strip.values.push_back(budget.is_array() ? calibrate::mean_of(numbers_of(budget))
                                               : budget.get<double>());
    const double most =
        strip.values.empty() ? 0 : *std::max_element(strip.values.begin(), strip.values.end());
    for (double& value : strip.values) value = most > 0 ? value / most : 0;
  } else if (calibrate::method::kPrecision.is(method.name)) {
    strip.word = "bytes";
    strip.unit = "bytes, as a share of those at 16 bits";
    const auto part = std::get<calibrate::Precision>(calibrate::part_of(method.name, section));
    for (const auto& layer : part.fixed.value_or(LayerFormats{}))
      strip.values.push_back((calibrate::facts_of(layer.keys).bytes_per_value +
                              calibrate::facts_of(layer.values).bytes_per_value) /
                             (2 * calibrate::facts_of(calibrate::KvFormat::f16).bytes_per_value));
  }
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
void add_compared(const json& entry, ComparisonModel& model) {
  auto found = measured_for(model, entry);
  if (!found) return;
  ComparedPolicy policy;
  policy.setting = text_in(entry, "policy");
  policy.name = policy.method = parts_title(policy.setting);
  if (const auto runtime = text_in(entry, "runtime"); !runtime.empty())
    policy.name += " as " + runtime;
  add_policy(std::move(policy), std::move(*found), model);
}

/// The points of a search's front, and what was asked of it.
void add_front(const calibrate::Document& document, std::size_t index, ComparisonModel& model) {
  for (std::size_t i = 0; i < document.pareto.size(); ++i) {
    const json& entry = document.pareto[i];
    ComparedPolicy policy;
    const double bits = number_in(entry, "kv_bits");
    policy.method = parts_title(text_in(entry, "family"), bits > 0 && bits < 16 ? int(bits) : 16);
    policy.name = policy.method;
    policy.setting = text_in(entry, "policy");
    policy.kept_share = number_in(entry, "kept_share");
    policy.score = interval_of(member_of(entry, "score"));
    policy.prompts = prompts_text(whole_in(entry, "samples"), whole_in(entry, "texts"));
    policy.front_point = {{index, i}};
    policy.chosen = member_of(entry, "chosen") == true;
    policy.needs_training =
        member_of(member_of(entry, "sections"), calibrate::method::kPod.name).is_object();
    if (!std::isnan(policy.kept_share) && !std::isnan(policy.score.mean))
      model.searched.push_back(std::move(policy));
  }
  const json& search = document.search;
  const double full = number_in(search, "full_score");
  if (std::isnan(model.full.mean)) model.full.mean = full;
  if (std::isnan(model.least_score))
    model.least_score = full - number_in(search, "max_loss_points") / 100;
  // Bytes that were allowed, as a share: every point says both.
  if (!document.pareto.empty() && std::isnan(model.most_share))
    model.most_share = number_in(search, "most_bytes") *
                       number_in(document.pareto[0], "kept_share") /
                       number_in(document.pareto[0], "bytes");
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
      const std::string name = text_in(*found, "name");
      sections.push_back({&method, &*found,
                          composed       ? parts_title(family, document.kv_bits)
                          : name.empty() ? method.title
                                         : parts_title(name),
                          !composed || document.compose.front() == method.name});
    }
    if (task.empty()) add_front(document, d, model);
  }
  for (const auto& [method, section, title, measured_whole] : sections)
    if (measured_whole) add_measured(*method, *section, title, *section, false, model);
  for (const auto& [method, section, title, measured_whole] : sections) {
    for (const auto& [member, beside] : method->controls)
      if (member) add_measured(*method, *section, beside, member_of(*section, member), true, model);
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
