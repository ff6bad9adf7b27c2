// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/diff_model.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

constexpr std::size_t kShownChanges = 30;

/// For each layer of the first profile the one of the second that it is compared with.
std::vector<std::size_t> paired(const ProfileNumbers& first, const ProfileNumbers& second) {
  std::vector<std::size_t> out;
  for (std::int64_t l = 0; l < first.layers; ++l) {
    const double depth =
        first.layers > 1 ? static_cast<double>(l) / static_cast<double>(first.layers - 1) : 0;
    out.push_back(
        static_cast<std::size_t>(std::llround(depth * static_cast<double>(second.layers - 1))));
  }
  return out;
}

Chart base_chart(const std::string& title, const ProfileNumbers& first,
                 const ProfileNumbers& second, const DiffSettings& settings) {
  Chart chart;
  const bool difference = settings.form == DiffForm::difference;
  chart.title = title + (difference ? str(": ", second.name, " less ", first.name) : "");
  chart.x = layer_axis(first.layers);
  if (first.layers != second.layers)
    chart.notes.push_back(str("layers are paired by relative depth: ", first.layers, " and ",
                              second.layers, " of them"));
  if (first.lengths != second.lengths)
    chart.notes.push_back(str("prompts have other lengths (", first.lengths.first, " to ",
                              first.lengths.second, " and ", second.lengths.first, " to ",
                              second.lengths.second, " tokens): shares are compared"));
  return chart;
}

/// One number a layer of both.
Chart layer_chart(const std::string& title, const std::string& unit,
                  const std::vector<double>& first, const std::vector<double>& second,
                  const std::pair<const ProfileNumbers*, const ProfileNumbers*>& profiles,
                  const DiffSettings& settings, DiffView& view) {
  const auto& [a, b] = profiles;
  Chart chart = base_chart(title, *a, *b, settings);
  if (first.empty() || second.empty()) return {};
  chart.y = {unit, ""};
  chart.table.columns = {{"layer"}, {a->name}, {b->name}, {"difference"}};
  const auto pairs = paired(*a, *b);
  Line left{a->name, {}}, right{b->name, {}, Emphasis::strong};
  Bars bars{"difference", {}};
  double most = 0;
  for (std::size_t l = 0; l < pairs.size(); ++l) {
    const auto x = static_cast<double>(l);
    const double from = first[l], to = second[pairs[l]];
    left.points.push_back({x, from});
    right.points.push_back({x, to});
    bars.bars.push_back({x, to - from, fixed_text(to - from, 4)});
    most = std::max(most, std::abs(to - from));
    chart.table.rows.push_back({x, from, to, to - from});
    view.changes.push_back({title, static_cast<std::int64_t>(l), from, to});
  }
  if (settings.form == DiffForm::difference) {
    chart.bars.push_back(std::move(bars));
    if (most > 0) chart.y.range = {{-most, most}};
    chart.marks.push_back({"no change", 0, false});
  } else {
    chart.lines.push_back(std::move(left));
    chart.lines.push_back(std::move(right));
  }
  return chart;
}

Matrix layer_matrix(const std::string& label, std::int64_t layers, std::vector<double> values,
                    std::pair<double, double> range) {
  Matrix matrix{label, "similarity", {}, {}, std::move(values), range};
  for (std::int64_t l = 0; l < layers; ++l) matrix.row_labels.push_back(str(l));
  matrix.column_labels = matrix.row_labels;
  return matrix;
}

Chart similarity_chart(const ProfileNumbers& a, const ProfileNumbers& b,
                       const DiffSettings& settings, DiffView& view) {
  if (a.similarity.empty() || b.similarity.empty()) return {};
  Chart chart = base_chart("similarity of layers, mean over heads", a, b, settings);
  chart.y = layer_axis(a.layers);
  chart.table.columns = {{"layer"}, {"other layer"}, {a.name}, {b.name}, {"difference"}};
  const auto pairs = paired(a, b);
  const auto n = static_cast<std::size_t>(a.layers), m = static_cast<std::size_t>(b.layers);
  std::vector<double> difference;
  double most = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double from = a.similarity[i * n + j], to = b.similarity[pairs[i] * m + pairs[j]];
      difference.push_back(to - from);
      most = std::max(most, std::abs(to - from));
      if (j >= i) continue;
      chart.table.rows.push_back({i, j, from, to, to - from});
      if (j + 1 == i)
        view.changes.push_back(
            {"similarity to the layer below", static_cast<std::int64_t>(i), from, to});
    }
  if (settings.form == DiffForm::difference) {
    chart.matrices.push_back(
        layer_matrix("difference", a.layers, std::move(difference),
                     most > 0 ? std::pair(-most, most) : std::pair(-1.0, 1.0)));
  } else {
    chart.matrices.push_back(layer_matrix(a.name, a.layers, a.similarity, {0, 1}));
    chart.matrices.push_back(layer_matrix(b.name, b.layers, b.similarity, {0, 1}));
  }
  return chart;
}

}  // namespace

ProfileNumbers read_profile_numbers(const profile::Reader& profile, const std::string& name,
                                    const std::vector<std::size_t>& positions,
                                    const MethodModels& models, const BudgetSettings& budgets) {
  ProfileNumbers out;
  out.name = name;
  out.layers = calibrate::cache_shape(profile.header()).layers;
  for (const auto position : positions) {
    const auto n = profile.samples()[position].n_tokens;
    out.lengths = {out.lengths.first == 0 ? n : std::min(out.lengths.first, n),
                   std::max(out.lengths.second, n)};
  }
  const auto take = [&](const auto& method, const auto& fill) {
    try {
      fill(method.value());
    } catch (const Error& error) {
      out.missing.emplace_back(error.what());
    }
  };
  take(models.lazy,
       [&](const LazyModel& model) { out.mass = calibrate::mean_masses(model.masses.layers); });
  take(models.budgets, [&](const BudgetsModel& model) {
    const auto means = budget_decisions(model, budgets).all.mean;
    const double total = std::accumulate(means.begin(), means.end(), 0.0);
    for (const double mean : means) out.budget.push_back(total > 0 ? mean / total : 0);
  });
  take(models.blocks, [&](const BlocksModel& model) {
    const auto& [heads, layers, values] = model.similarity;
    const Eigen::Map<const Eigen::ArrayXXd> by_head(values.data(), layers * layers, heads);
    const Eigen::ArrayXd mean = by_head.rowwise().mean();
    out.similarity.assign(mean.begin(), mean.end());
  });
  try {
    out.maps = read_map_measures(profile, positions);
  } catch (const Error&) {
    out.maps = {};  // without maps there is no list of heads
  }
  return out;
}

DiffView diff_view(const ProfileNumbers& first, const ProfileNumbers& second,
                   const DiffSettings& settings) {
  if (first.layers != second.layers && !settings.by_depth)
    fail(ErrorCode::usage, first.name, " has ", first.layers, " layers and ", second.name, " ",
         second.layers, ": turn on 'Pair by depth' to compare layers of the same relative depth");
  DiffView view;
  view.heads = head_changes(first.maps, second.maps);
  const std::pair profiles{&first, &second};
  view.masses = layer_chart("layer mass", "share of attention", first.mass, second.mass, profiles,
                            settings, view);
  view.budgets = layer_chart("share of the budget", "share of tokens", first.budget, second.budget,
                             profiles, settings, view);
  view.similarity = similarity_chart(first, second, settings, view);
  for (Chart* chart : {&view.masses, &view.budgets, &view.similarity})
    if (!chart->table.rows.empty()) {
      for (const auto* numbers : {&first, &second})
        for (const auto& missing : numbers->missing)
          chart->notes.push_back(numbers->name + ": " + missing);
      break;
    }
  if (view.changes.empty() && view.heads.empty())
    fail(ErrorCode::usage, "the two profiles have no statistics in common: ",
         first.missing.empty() ? second.missing.empty() ? std::string() : second.missing.front()
                               : first.missing.front());
  const auto size = [](const DiffView::Change& change) {
    return std::abs(change.second - change.first);
  };
  std::stable_sort(view.changes.begin(), view.changes.end(),
                   [&](const auto& a, const auto& b) { return size(a) > size(b); });
  if (view.changes.size() > kShownChanges) view.changes.resize(kShownChanges);
  view.table.columns = {{"what"}, {"layer"}, {first.name}, {second.name}, {"difference"}};
  for (const auto& change : view.changes)
    view.table.rows.push_back(
        {change.what, change.layer, change.first, change.second, change.second - change.first});
  return view;
}

}  // namespace kvatlas::viewer
