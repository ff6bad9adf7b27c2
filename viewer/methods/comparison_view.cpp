// SPDX-License-Identifier: Apache-2.0
// The charts of compared policies.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/bytes.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/methods/comparison_model.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

std::string bytes_at(double share, const ComparisonModel& model,
                     const ComparisonSettings& settings) {
  const double bytes = share * model.shape.full_bytes(settings.length);
  return std::isnan(bytes) ? "-" : bytes_str(std::llround(bytes));
}

std::string point_label(const ComparedPolicy& policy) {
  return str(policy.name, ", ", policy.setting, policy.prompts.empty() ? "" : ", on ",
             policy.prompts);
}

double cost_of(const ComparedPolicy& policy, CostAxis axis) {
  if (axis == CostAxis::kept) return policy.kept_share;
  return policy.measured ? read_share(*policy.measured) : kNoNumber;
}

/// Whether a policy keeps less, reads less or scores more than each of the others. Where it is not
/// known what some read, that counts for nobody.
bool is_best_somewhere(const ComparedPolicy& policy,
                       const std::vector<const ComparedPolicy*>& all) {
  return std::none_of(all.begin(), all.end(), [&](const ComparedPolicy* other) {
    const double read = cost_of(policy, CostAxis::read), read_by = cost_of(*other, CostAxis::read);
    const bool reads = !std::isnan(read) && !std::isnan(read_by);
    const bool as_good = other->score.mean >= policy.score.mean &&
                         other->kept_share <= policy.kept_share && (!reads || read_by <= read);
    const bool better = other->score.mean > policy.score.mean ||
                        other->kept_share < policy.kept_share || (reads && read_by < read);
    return as_good && better;
  });
}

/// Of which prompts the scores are. What is of others is not wholly comparable.
std::string prompts_note(const std::vector<const ComparedPolicy*>& all) {
  std::map<std::string, int> of_prompts;
  for (const auto* policy : all)
    ++of_prompts[policy->prompts.empty() ? "prompts that are not known" : policy->prompts];
  if (of_prompts.size() == 1) return "all scores are of " + of_prompts.begin()->first;
  return str(
      "scores are not of the same prompts, so that small differences say nothing: ",
      join(of_prompts, "; ", [](const auto& of) { return str(of.second, " of ", of.first); }),
      " (the table says which)");
}

Chart pareto_chart(const ComparisonModel& model, const ComparisonSettings& settings,
                   ComparisonView& view) {
  Chart chart;
  const bool by_kept = settings.cost == CostAxis::kept;
  chart.title = by_kept ? "Score against the cache kept" : "Score against the cache read a token";
  if (!model.task.empty()) chart.title += ": " + printable(model.task);
  chart.x = {by_kept ? "KV kept" : "KV read a token", "share", {}, {{0, 1}}};
  chart.y = {"score", "", {}, {{0, 1}}};
  std::map<std::string, std::size_t> series;
  std::vector<const ComparedPolicy*> all;
  double most_cost = 1;
  const auto add = [&](const ComparedPolicy& policy, Emphasis emphasis) {
    const double cost = cost_of(policy, settings.cost);
    if (std::isnan(cost)) return;
    most_cost = std::max(most_cost, cost);
    const auto [found, is_new] = series.try_emplace(policy.method, chart.points.size());
    if (is_new) {
      chart.points.push_back({policy.method, {}, static_cast<int>(chart.points.size())});
      view.series.emplace_back();
    }
    chart.points[found->second].points.push_back({cost, policy.score.mean, point_label(policy),
                                                  policy.score.low, policy.score.high, emphasis});
    view.series[found->second].push_back(&policy);
    all.push_back(&policy);
  };
  for (const auto& policy : model.policies) add(policy, Emphasis::strong);
  const auto is_chosen = [&](const ComparedPolicy& policy) {
    if (!policy.front_point) return false;
    return settings.front.document ? policy.setting == settings.front.policy : policy.chosen;
  };
  for (const auto& policy : model.searched)
    add(policy, is_chosen(policy) ? Emphasis::strong : Emphasis::faint);
  std::vector<double> costs, gains;
  for (const auto* policy : all) {
    costs.push_back(cost_of(*policy, settings.cost));
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
    chart.marks.push_back(
        {"compared at", *settings.share, true, Handle::compared_share, Emphasis::strong});
  chart.x.range = {{0, most_cost}};
  if (by_kept && model.most_share > 0 && model.most_share <= 1)
    chart.marks.push_back({"memory allowed", model.most_share, true});
  if (model.least_score > 0) chart.marks.push_back({"loss allowed", model.least_score, false});
  chart.notes.push_back(
      "filled points were measured as calibrated, or are chosen from a front; hollow ones were "
      "tried in a search: their intervals (95 %) are in the table");
  if (!all.empty()) chart.notes.push_back(prompts_note(all));
  if (!by_kept)
    chart.notes.push_back(
        "what a decode step reads, as a share of what it reads of the full cache; known of what "
        "'kvatlas evaluate -o' measured");

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
  for (const Table::Column& column : {Table::Column{"KL median", "nat"},
                                      {"KL mean", "nat"},
                                      {"agreement"},
                                      {"KV read a token", "share"},
                                      {"prompts"},
                                      {"needs training"},
                                      {"front"}})
    columns.push_back(column);
  for (const auto* policy : all) {
    const auto& measured = policy->measured;
    auto& row = chart.table.rows.emplace_back();
    row = {policy->name,       policy->setting,
           policy->kept_share, bytes_at(policy->kept_share, model, settings),
           policy->score.mean, policy->score.low,
           policy->score.high, measured ? change_of(*measured).mean : kNoNumber};
    for (const auto& task : model.tasks)
      row.push_back(measured && measured->tasks.count(task) ? measured->tasks.at(task).score.mean
                                                            : kNoNumber);
    row.push_back(measured ? measured->kl.median.value : kNoNumber);
    row.push_back(measured ? measured->kl.mean : kNoNumber);
    row.push_back(measured ? measured->agreement.mean : kNoNumber);
    row.push_back(cost_of(*policy, CostAxis::read));
    row.push_back(policy->prompts);
    row.push_back(policy->needs_training ? "yes" : "no");
    row.push_back(is_best_somewhere(*policy, all) ? "yes" : "");
  }
  return chart;
}

/// Of each method the best setting that costs no more than the share.
Chart equal_chart(const ComparisonModel& model, double share, const ComparisonSettings& settings,
                  ComparisonView& view) {
  std::vector<const ComparedPolicy*> best;
  const auto offer = [&](const ComparedPolicy& policy) {
    const double cost = cost_of(policy, settings.cost);
    if (std::isnan(cost) || cost > share + 1e-9) return;
    for (auto*& other : best)
      if (other->method == policy.method) {
        const bool better =
            policy.score.mean > other->score.mean ||
            (policy.score.mean == other->score.mean && cost < cost_of(*other, settings.cost));
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
  chart.title = settings.cost == CostAxis::kept
                    ? str("At ", percent_text(share), " of the cache, ",
                          bytes_at(share, model, settings), " at ", settings.length, " tokens")
                    : str("At ", percent_text(share), " of the cache's bytes read a token");
  const std::string chart_cost = settings.cost == CostAxis::kept ? "KV kept" : "KV read a token";
  chart.x = {"policies, the best first", "", {}, {{-0.5, static_cast<double>(best.size()) - 0.5}}};
  if (best.empty()) chart.x.range = {{0, 1}};
  chart.y = {"score", "", {}, {{0, 1}}};
  chart.table.columns = {{"policy"}, {"setting"},           {"score"},  {"low"},
                         {"high"},   {chart_cost, "share"}, {"prompts"}};
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
    auto& series = chart.points[same - view.pareto.points.begin()];
    series.label = policy.method;
    series.points.push_back({x, policy.score.mean, point_label(policy), policy.score.low,
                             policy.score.high, Emphasis::strong});
    chart.table.rows.push_back({policy.name, policy.setting, policy.score.mean, policy.score.low,
                                policy.score.high, cost_of(policy, settings.cost), policy.prompts});
    view.at_equal_bytes.push_back({best[i]});
  }
  if (!std::isnan(model.full.mean)) chart.marks.push_back({"full cache", model.full.mean, false});
  chart.notes.push_back(
      best.empty()
          ? str("no policy ", settings.cost == CostAxis::kept ? "keeps" : "reads", " as little")
          : prompts_note(best));
  return chart;
}

Chart strips_chart(const ComparisonModel& model, const Choices::Front& front) {
  Chart chart;
  auto strips = model.strips;
  if (front.document && front.document->model.layers == model.shape.layers)
    for (auto& strip : strips_of(*front.document)) {
      strip.policy = "chosen: " + strip.policy;
      strips.push_back(std::move(strip));
    }
  if (strips.empty()) return chart;
  chart.title = "What each policy keeps of each layer";
  chart.x = layer_axis(model.shape.layers);
  chart.y = {"policy", ""};
  Matrix matrix{"kept of the layer", "share", {}, {}, {}};
  if (strips.size() > 1)
    chart.notes.push_back(
        "what a row counts stands behind its name: compare the layers of a row, not rows");
  for (std::int64_t l = 0; l < model.shape.layers; ++l) matrix.column_labels.push_back(str(l));
  chart.table.columns = {{"layer"}};
  for (const auto& strip : strips) {
    matrix.row_labels.push_back(str(strip.policy, ", ", strip.word));
    matrix.values.insert(matrix.values.end(), strip.values.begin(), strip.values.end());
    chart.table.columns.push_back({strip.policy, strip.unit});
    chart.notes.push_back(str(strip.policy, ": ", strip.unit));
  }
  for (std::int64_t l = 0; l < model.shape.layers; ++l) {
    auto& row = chart.table.rows.emplace_back();
    row.push_back(static_cast<double>(l));
    for (const auto& strip : strips) row.push_back(strip.values[l]);
  }
  chart.matrices.push_back(std::move(matrix));
  return chart;
}

/// The score of each question about one context, a line a policy.
Chart turns_chart(const ComparisonModel& model) {
  Chart chart;
  chart.table.columns = {{"policy"}, {"setting"}, {"turn"}, {"score"}, {"low"}, {"high"}};
  const auto add = [&](const std::string& name, const std::string& setting,
                       const std::vector<calibrate::TurnScore>& turns, Emphasis emphasis) {
    Line line{setting.empty() ? name : name + ", " + setting, {}, emphasis};
    for (const auto& [turn, samples, score] : turns) {
      const auto at = static_cast<double>(turn);
      line.points.push_back({at, score.mean, line.label, score.low, score.high});
      chart.table.rows.push_back({name, setting, at, score.mean, score.low, score.high});
      if (emphasis == Emphasis::reference) chart.x.ticks.push_back({at, std::to_string(turn)});
    }
    chart.lines.push_back(std::move(line));
  };
  for (const auto& policy : model.policies) {
    if (!policy.measured || policy.measured->turns.size() < 2) continue;
    if (chart.lines.empty())
      add("full cache", "", policy.measured->full_turns, Emphasis::reference);
    add(policy.name, policy.setting, policy.measured->turns, Emphasis::normal);
  }
  if (chart.lines.empty()) return {};
  chart.title = "Score of each question about one context";
  chart.x.title = "turn";
  chart.y = {"score", "", {}, {{0, 1}}};
  chart.notes.push_back(
      "with --conversation the cache is cut once, behind the first question: what looks at the "
      "question keeps what that one needs");
  return chart;
}

/// What each measured policy held while it generated its answers.
Chart memory_chart(const ComparisonModel& model) {
  constexpr double kMiB = 1024.0 * 1024.0;
  Chart chart;
  chart.table.columns = {{"policy"}, {"setting"}, {"generated tokens"}, {"held", "MiB"}};
  const auto add = [&](const std::string& name, const std::string& setting,
                       const calibrate::HeldOverTokens& held, Emphasis emphasis) {
    Line line{setting.empty() ? name : name + ", " + setting, {}, emphasis};
    for (std::size_t i = 0; i < std::min(held.tokens.size(), held.bytes.size()); ++i) {
      const auto tokens = static_cast<double>(held.tokens[i]);
      line.points.push_back({tokens, held.bytes[i] / kMiB, line.label});
      chart.table.rows.push_back({name, setting, tokens, held.bytes[i] / kMiB});
    }
    chart.lines.push_back(std::move(line));
  };
  for (const auto& policy : model.policies) {
    if (!policy.measured || !policy.measured->held || !policy.measured->full_held) continue;
    if (chart.lines.empty())
      add("full cache", "", *policy.measured->full_held, Emphasis::reference);
    add(policy.name, policy.setting, *policy.measured->held, Emphasis::normal);
  }
  if (chart.lines.empty()) return {};
  chart.title = "KV cache held while generating";
  chart.x = {"generated tokens", ""};
  chart.x.kind = AxisKind::tokens;
  chart.y = {"keys and values held", "MiB"};
  chart.notes.push_back(
      "at each token the mean over the answers that are so long; a budget that holds while "
      "decoding is a saw: it grows until the best tokens are chosen anew");
  return chart;
}

}  // namespace

ComparisonView comparison_view(const ComparisonModel& model, const ComparisonSettings& settings) {
  ComparisonView view;
  if (!model.policies.empty() || !model.searched.empty()) {
    view.pareto = pareto_chart(model, settings, view);
    if (settings.share) view.equal = equal_chart(model, *settings.share, settings, view);
  }
  view.strips = strips_chart(model, settings.front);
  view.turns = turns_chart(model);
  view.memory = memory_chart(model);
  return view;
}

}  // namespace kvatlas::viewer
