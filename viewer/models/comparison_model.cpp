// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/comparison_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/rules.hpp"
#include "kernels/base/bytes.hpp"
#include "kernels/base/error.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;

struct Method {
  const char *section, *title, *setting;  // the member that a search moves; may be nullptr
  bool needs_training;
  const char* controls[2];  // members that were measured beside it
};
constexpr Method kMethods[] = {
    {"simlayerkv", "SimLayerKV", "threshold", false, {"static", "opposite"}},
    {"pod", "PoD", "delta", true, {nullptr, nullptr}},
    {"dynamickv", "DynamicKV", "budget", false, {nullptr, nullptr}},
    {"lagkv", "LagKV", nullptr, false, {"local", "l2"}},
    {"heads", "Imported heads", nullptr, false, {nullptr, nullptr}},
    {"baseline", "Baseline", nullptr, false, {nullptr, nullptr}}};

const char* control_title(const std::string& control) {
  if (control == "static") return "SimLayerKV, the same layers for all inputs";
  if (control == "opposite") return "SimLayerKV, as many layers of the smallest mass";
  if (control == "local") return "LocalKV";
  return "L2 norm";
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

void add_measured(const Method& method, const json& section, const std::string& title,
                  const json& measured, bool control, ComparisonModel& model) {
  auto found = measured_of(measured);
  if (!found) return;
  const json& settings = member_of(section, "settings");
  ComparedPolicy policy;
  policy.name = policy.method = title;
  if (!control && method.setting) {
    policy.section = method.section;
    policy.value = number_in(settings, method.setting);
  }
  policy.setting = setting_text(method, settings);
  policy.kept_share = found->kept_share;
  policy.score = found->score;
  policy.needs_training = method.needs_training;
  for (const auto& [task, score] : found->tasks)
    if (std::find(model.tasks.begin(), model.tasks.end(), task) == model.tasks.end())
      model.tasks.push_back(task);
  if (std::isnan(model.full.mean)) model.full = found->full;
  policy.measured = std::move(found);
  model.policies.push_back(std::move(policy));
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
      policy.section = method.section;
      policy.value = number_in(point, method.setting);
      policy.setting = setting_text(method, point);
      policy.kept_share = kept_of(method, section, point);
      policy.score = {number_in(point, "score"), number_in(point, "low"), number_in(point, "high")};
      add(std::move(policy));
    }
  } else if (std::string(method.section) == "lagkv" && member_of(section, "sweep").is_array() &&
             !member_of(section, "sweep").empty()) {
    const SweepModel sweep = sweep_model(section);
    for (std::size_t i = 0; i < sweep.candidates.size(); ++i) {
      const auto& candidate = sweep.candidates[i];
      ComparedPolicy policy;
      policy.method = policy.name =
          candidate.own() ? method.title : control_title(candidate.variant);
      policy.section = candidate.own() ? method.section : "";
      policy.setting = str("lag ", candidate.lag, ", ratio ", candidate.ratio);
      policy.lag_candidate = static_cast<int>(i);
      policy.kept_share = 1 - candidate.compression;
      policy.score = candidate.score;
      add(std::move(policy));
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

void add_strip(const Method& method, const json& section, ComparisonModel& model) {
  const std::string name = method.section;
  ComparisonModel::Strip strip{method.title, {}, {}};
  if (name == "simlayerkv") {
    strip.unit = "share of samples in which the layer stays full";
    for (const double rate : numbers_of(member_of(section, "lazy_rates")))
      strip.values.push_back(1 - rate);
    if (strip.values.empty())
      for (const double lazy : flags_of(member_of(member_of(section, "result"), "lazy_layers")))
        strip.values.push_back(1 - lazy);
  } else if (name == "pod") {
    strip.unit = "share of heads that keep keys of their own";
    strip.values = own_keys(member_of(member_of(section, "result"), "lowest"),
                            static_cast<std::size_t>(model.layers));
  } else if (name == "dynamickv") {
    strip.unit = "tokens, as a share of the most";
    strip.values = numbers_of(member_of(member_of(section, "result"), "budgets"));
    const double most =
        strip.values.empty() ? 0 : *std::max_element(strip.values.begin(), strip.values.end());
    for (double& value : strip.values) value = most > 0 ? value / most : 0;
  }
  if (strip.values.size() == static_cast<std::size_t>(model.layers))
    model.strips.push_back(std::move(strip));
}

std::string bytes_at(double share, const ComparisonModel& model,
                     const ComparisonSettings& settings) {
  const double bytes = share * model.full_bytes_per_token * static_cast<double>(settings.length);
  return std::isnan(bytes) ? "-" : bytes_str(std::llround(bytes));
}

Chart pareto_chart(const ComparisonModel& model, const ComparisonSettings& settings,
                   ComparisonView& view) {
  Chart chart;
  chart.title = "Score against the cache kept";
  chart.x = {"KV kept", "share", {}, {{0, 1}}};
  chart.y = {"score", "", {}, {{0, 1}}};
  std::map<std::string, std::size_t> series;
  std::vector<const ComparedPolicy*> all;
  const auto add = [&](const ComparedPolicy& policy, Emphasis emphasis) {
    if (std::isnan(policy.kept_share)) return;
    const auto [found, is_new] = series.try_emplace(policy.method, chart.points.size());
    if (is_new) {
      chart.points.push_back({policy.method, {}, static_cast<int>(chart.points.size())});
      view.series.emplace_back();
    }
    chart.points[found->second].points.push_back({policy.kept_share, policy.score.mean,
                                                  policy.name + ", " + policy.setting,
                                                  policy.score.low, policy.score.high, emphasis});
    view.series[found->second].push_back(&policy);
    all.push_back(&policy);
  };
  for (const auto& policy : model.policies) add(policy, Emphasis::strong);
  for (const auto& policy : model.searched) add(policy, Emphasis::faint);
  std::vector<double> costs, gains;
  for (const auto* policy : all) {
    costs.push_back(policy->kept_share);
    gains.push_back(policy->score.mean);
  }
  Line front{"best of all", {}, Emphasis::strong, true};
  std::set<const ComparedPolicy*> on_front;
  for (const auto i : calibrate::pareto_front(costs, gains)) {
    front.points.push_back({costs[i], gains[i], all[i]->name});
    on_front.insert(all[i]);
  }
  chart.lines.push_back(std::move(front));
  // The intervals of all would hide the points.
  for (std::size_t s = 0; s < view.series.size(); ++s)
    for (std::size_t i = 0; i < view.series[s].size(); ++i)
      if (!view.series[s][i]->measured && on_front.count(view.series[s][i]) == 0)
        chart.points[s].points[i].low = chart.points[s].points[i].high = kNoNumber;
  if (!std::isnan(model.full.mean)) chart.marks.push_back({"full cache", model.full.mean, false});
  if (settings.share)
    chart.marks.push_back({"compared at", *settings.share, true, true, Emphasis::strong});
  chart.notes.push_back(
      "filled points were measured as calibrated, hollow ones in a search; intervals (95 %) of "
      "these are in "
      "the table");

  auto& columns = chart.table.columns;
  columns = {{"policy"},
             {"setting"},
             {"KV kept", "share"},
             {str("kept at ", settings.length, " tokens")},
             {"score"},
             {"low"},
             {"high"},
             {"change", "points"}};
  for (const auto& task : model.tasks) columns.push_back({task});
  for (const char* title : {"KL", "agreement", "needs training", "front"})
    columns.push_back({title, std::string(title) == "KL" ? "nat" : ""});
  for (const auto* policy : all) {
    const auto& measured = policy->measured;
    auto& row = chart.table.rows.emplace_back();
    row = {policy->name,       policy->setting,
           policy->kept_share, bytes_at(policy->kept_share, model, settings),
           policy->score.mean, policy->score.low,
           policy->score.high, measured ? measured->change.mean : kNoNumber};
    for (const auto& task : model.tasks)
      row.push_back(measured && measured->tasks.count(task) ? measured->tasks.at(task).mean
                                                            : kNoNumber);
    row.push_back(measured ? measured->kl.mean : kNoNumber);
    row.push_back(measured ? measured->agreement.mean : kNoNumber);
    row.push_back(policy->needs_training ? "yes" : "no");
    row.push_back(on_front.count(policy) ? "yes" : "");
  }
  return chart;
}

/// Of each method the best setting that keeps no more than the share.
Chart equal_chart(const ComparisonModel& model, double share, const ComparisonSettings& settings,
                  ComparisonView& view) {
  std::vector<const ComparedPolicy*> best;
  const auto offer = [&](const ComparedPolicy& policy) {
    if (std::isnan(policy.kept_share) || policy.kept_share > share + 1e-9) return;
    for (auto*& other : best)
      if (other->method == policy.method) {
        const bool better =
            policy.score.mean > other->score.mean ||
            (policy.score.mean == other->score.mean && policy.kept_share < other->kept_share);
        if (better) other = &policy;
        return;
      }
    best.push_back(&policy);
  };
  for (const auto& policy : model.policies) offer(policy);
  for (const auto& policy : model.searched) offer(policy);
  std::stable_sort(best.begin(), best.end(),
                   [](const auto* a, const auto* b) { return a->score.mean > b->score.mean; });
  Chart chart;
  chart.title = str("At ", percent_text(share), " of the cache, ", bytes_at(share, model, settings),
                    " at ", settings.length, " tokens");
  chart.x = {"policies, the best first", "", {}, {{-0.5, static_cast<double>(best.size()) - 0.5}}};
  if (best.empty()) chart.x.range = {{0, 1}};
  chart.y = {"score", "", {}, {{0, 1}}};
  chart.table.columns = {{"policy"}, {"setting"}, {"score"},
                         {"low"},    {"high"},    {"KV kept", "share"}};
  // Series and the line before them stand where the other chart has them, so that they look alike.
  chart.lines.push_back({"", {}});
  for (const auto& series : view.pareto.points) chart.points.push_back({"", {}, series.shape});
  for (std::size_t i = 0; i < best.size(); ++i) {
    const auto& policy = *best[i];
    const auto x = static_cast<double>(i);
    chart.x.ticks.push_back({x, str(i + 1)});
    const auto same =
        std::find_if(view.pareto.points.begin(), view.pareto.points.end(),
                     [&](const Points& points) { return points.label == policy.method; });
    auto& series = chart.points[static_cast<std::size_t>(same - view.pareto.points.begin())];
    series.label = policy.method;
    series.points.push_back({x, policy.score.mean, policy.name + ", " + policy.setting,
                             policy.score.low, policy.score.high, Emphasis::strong});
    chart.table.rows.push_back({policy.name, policy.setting, policy.score.mean, policy.score.low,
                                policy.score.high, policy.kept_share});
    view.at_equal_bytes.push_back({best[i]});
  }
  if (!std::isnan(model.full.mean)) chart.marks.push_back({"full cache", model.full.mean, false});
  if (best.empty()) chart.notes.push_back("no policy keeps as little");
  return chart;
}

Chart strips_chart(const ComparisonModel& model) {
  Chart chart;
  if (model.strips.empty()) return chart;
  chart.title = "What each policy keeps of each layer";
  chart.x = layer_axis(model.layers);
  chart.y = {"policy", ""};
  Matrix matrix{"kept of the layer", "share", {}, {}, {}};
  for (std::int64_t l = 0; l < model.layers; ++l) matrix.column_labels.push_back(str(l));
  chart.table.columns = {{"layer"}};
  for (const auto& strip : model.strips) {
    matrix.row_labels.push_back(strip.policy);
    matrix.values.insert(matrix.values.end(), strip.values.begin(), strip.values.end());
    chart.table.columns.push_back({strip.policy, strip.unit});
    chart.notes.push_back(str(strip.policy, ": ", strip.unit));
  }
  for (std::int64_t l = 0; l < model.layers; ++l) {
    auto& row = chart.table.rows.emplace_back();
    row.push_back(static_cast<double>(l));
    for (const auto& strip : model.strips) row.push_back(strip.values[static_cast<std::size_t>(l)]);
  }
  chart.matrices.push_back(std::move(matrix));
  return chart;
}

}  // namespace

ComparisonModel comparison_model(std::span<const calibrate::Document> documents) {
  ComparisonModel model;
  std::vector<std::pair<const Method*, const json*>> sections;
  for (const auto& document : documents) {
    const calibrate::CacheShape shape{document.model.layers, document.model.kv_heads,
                                      document.model.head_dim};
    if (model.layers == 0) {
      model.layers = shape.layers;
      model.full_bytes_per_token = shape.bytes_per_token();
    } else if (model.layers != shape.layers) {
      continue;  // of another model
    }
    for (const Method& method : kMethods)
      if (const auto found = document.sections.find(method.section);
          found != document.sections.end())
        sections.emplace_back(&method, &*found);
  }
  for (const auto& [method, section] : sections) {
    const std::string name = text_in(*section, "name");
    add_measured(*method, *section, name.empty() ? method->title : name,
                 member_of(*section, "measured"), false, model);
  }
  for (const auto& [method, section] : sections) {
    for (const char* control : method->controls)
      if (control)
        add_measured(*method, *section, control_title(control),
                     member_of(member_of(*section, control), "measured"), true, model);
    add_searched(*method, *section, model);
    add_strip(*method, *section, model);
  }
  // LagKV's policy is one of the candidates of its sweep.
  for (auto& policy : model.policies)
    for (const auto& candidate : model.searched)
      if (candidate.lag_candidate >= 0 && candidate.name == policy.name &&
          candidate.setting == policy.setting) {
        policy.section = candidate.section;
        policy.lag_candidate = candidate.lag_candidate;
      }
  if (model.policies.empty() && model.searched.empty() && model.strips.empty())
    fail(
        ErrorCode::usage,
        "no open document has scores or layers of a policy: 'kvatlas calibrate --model' makes one, "
        "and 'kvatlas evaluate -o' adds what it measures");
  return model;
}

ComparisonView comparison_view(const ComparisonModel& model, const ComparisonSettings& settings) {
  ComparisonView view;
  if (!model.policies.empty() || !model.searched.empty()) {
    view.pareto = pareto_chart(model, settings, view);
    if (settings.share) view.equal = equal_chart(model, *settings.share, settings, view);
  }
  view.strips = strips_chart(model);
  return view;
}

Choices with_policy(Choices choices, const ComparedPolicy& policy) {
  if (policy.section == "simlayerkv") choices.lazy.threshold = policy.value;
  if (policy.section == "pod") choices.blocks.delta = policy.value;
  if (policy.section == "dynamickv")
    choices.budgets.budget = static_cast<std::int64_t>(policy.value);
  if (policy.section == "lagkv") choices.lag_candidate = policy.lag_candidate;
  return choices;
}

}  // namespace kvatlas::viewer
