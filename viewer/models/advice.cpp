// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/advice.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/precision.hpp"

namespace kvatlas::viewer {
namespace {

// Below it a layer's class at the first token says too little of the later ones.
constexpr double kConsistent = 0.9;
// Tokens that other tasks have in other layers, from which one setting does not serve all.
constexpr double kFarTask = 0.1;
// Change in points that is worth a warning.
constexpr double kLostPoints = 1;
constexpr double kHiddenPoints = 5;  // so much may be lost unseen without a word

template <class List>
std::int64_t greatest(const List& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

std::string layers_text(const std::vector<std::size_t>& layers) {
  constexpr std::size_t kShown = 5;
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (std::size_t i = 0; i < std::min(kShown, layers.size()); ++i)
    text += str(i == 0 ? "" : i + 1 == layers.size() ? " and " : ", ", layers[i]);
  if (layers.size() > kShown) text += str(" and ", layers.size() - kShown, " more");
  return text;
}

}  // namespace

Advice lazy_advice(const LazyModel& model, const LazySettings& settings) {
  const auto means = calibrate::mean_masses(model.masses.layers);
  const auto laziest = greatest(means);
  const LazyDecisions decisions = lazy_decisions(model, settings);
  const double lazy = decisions.lazy_layers;
  Advice advice;
  if (lazy > 0)
    advice.reason =
        str(fixed_text(lazy, 1), " of ", model.shape.layers, " layers put more than ",
            fixed_text(settings.threshold, 3), " of their attention on the first ",
            model.choices.keep.initial, " and last ", model.choices.keep.recent,
            " tokens, most of all layer ", laziest, " (", fixed_text(means[laziest], 3), ").");
  else
    advice.reason = str("No layer puts more than ", fixed_text(settings.threshold, 3),
                        " of its attention on the first ", model.choices.keep.initial, " and last ",
                        model.choices.keep.recent, " tokens: layer ", laziest,
                        " comes nearest with ", fixed_text(means[laziest], 3), ".");
  advice.layer = laziest;

  const auto& near_half = decisions.near_half;
  const auto steps = calibrate::layer_consistency(model.steps, settings.threshold);
  std::size_t unsteady = steps.size();
  for (std::size_t l = 0; l < steps.size(); ++l)
    if (steps[l] < kConsistent && (unsteady == steps.size() || steps[l] < steps[unsteady]))
      unsteady = l;
  if (!near_half.empty()) {
    std::string which = layers_text(near_half);
    which.front() = 'L';
    advice.risk = str(which, near_half.size() == 1 ? " is" : " are",
                      " lazy in about half of the samples: fixed layers differ from the "
                      "input's own decision in ",
                      percent_text(decisions.fixed.disagreement), ".");
    advice.layer = static_cast<std::int64_t>(near_half.front());
  } else if (unsteady < steps.size()) {
    advice.risk = str("Layer ", unsteady, " is what it was at the first generated token in only ",
                      percent_text(steps[unsteady]), " of the later ones.");
    advice.layer = static_cast<std::int64_t>(unsteady);
  } else {
    advice.risk =
        "Samples agree on the lazy layers; what is far back is lost to those for the whole answer.";
  }
  return advice;
}

Advice blocks_advice(const BlocksModel& model, const BlocksSettings& settings,
                     const calibrate::Blocks& blocks) {
  const auto& similarity = model.similarity;
  struct Run {
    std::int64_t head = 0, first = 0, last = 0;
  } longest;
  struct Pair {
    std::int64_t head = 0, a = 0, b = 0;
    double similarity = 2;
  } least;
  for (std::int64_t head = 0; head < similarity.heads; ++head) {
    const auto& lowest = blocks[head];
    for (std::int64_t layer = 0; layer < similarity.layers; ++layer) {
      const auto first = lowest[layer];
      if (layer - first > longest.last - longest.first) longest = {head, first, layer};
      for (std::int64_t below = first; below < layer; ++below)
        if (similarity.at(head, below, layer) < least.similarity)
          least = {head, below, layer, similarity.at(head, below, layer)};
    }
  }
  Advice advice;
  advice.head = longest.head;
  if (longest.last == longest.first) {
    advice.reason = str("At delta ", fixed_text(settings.delta, 2),
                        " no two neighbouring layers attend alike: nothing is shared.");
    advice.risk = "A smaller delta joins layers that are less alike.";
    return advice;
  }
  advice.layer = longest.first;
  advice.reason =
      str(percent_text(calibrate::pod_point(settings.delta, blocks, model.shape.kv_heads).dropped),
          " of the keys of distant tokens are those of a lower layer; the longest run is layers ",
          longest.first, " to ", longest.last, " of head ", longest.head, ".");
  advice.risk = str("Layers ", least.a, " and ", least.b, " of head ", least.head,
                    " share keys at a similarity of only ", fixed_text(least.similarity, 2),
                    "; the method is made for models trained with it.");
  return advice;
}

Advice budgets_advice(const BudgetsModel& model, const BudgetSettings& settings,
                      const BudgetDecisions& decisions) {
  const auto& budgets = decisions.all.budgets;
  const auto most = greatest(budgets);
  const auto least = std::min_element(budgets.begin(), budgets.end()) - budgets.begin();
  Advice advice;
  advice.layer = most;
  advice.reason = str("Layer ", most, " needs ", budgets[most], " tokens and layer ", least,
                      " only ", budgets[least], "; the same for all would be ",
                      settings.budget - model.choices.window, ".");
  const auto farthest =
      std::max_element(decisions.tasks.begin(), decisions.tasks.end(),
                       [](const auto& a, const auto& b) { return a.distance < b.distance; });
  if (decisions.tasks.size() < 2)
    advice.risk = "The samples are of one task: other tasks may need their tokens in other layers.";
  else if (farthest->distance > kFarTask)
    advice.risk = str("'", farthest->task, "' has ", percent_text(farthest->distance),
                      " of its tokens in other layers than the mean: it is better served by "
                      "budgets of its own.");
  else
    advice.risk = str("Tasks differ little (at most ", percent_text(farthest->distance),
                      " of the tokens); what scores low in the last ", model.choices.window,
                      " rows is lost for good.");
  return advice;
}

Advice head_budgets_advice(const calibrate::HeadKv& part) {
  const calibrate::HeadBudgets& budgets = part.fixed.value();
  struct Place {
    std::size_t layer = 0, head = 0;
  } most, least;
  for (std::size_t l = 0; l < budgets.size(); ++l)
    for (std::size_t g = 0; g < budgets[l].size(); ++g) {
      if (budgets[l][g] > budgets[most.layer][most.head]) most = {l, g};
      if (budgets[l][g] < budgets[least.layer][least.head]) least = {l, g};
    }
  Advice advice;
  advice.layer = static_cast<std::int64_t>(most.layer);
  advice.reason = str("KV head ", most.head, " of layer ", most.layer, " keeps ",
                      budgets[most.layer][most.head], " tokens; the same for all would be ",
                      part.select.budget - part.select.window, ".");
  advice.risk = str("KV head ", least.head, " of layer ", least.layer, " keeps only ",
                    budgets[least.layer][least.head],
                    ": what it needs of other texts than those "
                    "of the profile is lost for good.");
  return advice;
}

Advice sweep_advice(const SweepModel& model, const SweepSettings& settings,
                    const SweepModel::Candidate& candidate) {
  const auto kept =
      calibrate::lag_kept_tokens(settings.length, {model.sink, candidate.lag, candidate.keep});
  Advice advice;
  advice.reason =
      str("Of partitions of ", candidate.lag, " tokens ", candidate.keep, " stay, ", kept, " of ",
          settings.length, " in all, and no attention has to be computed to choose them.");
  if (candidate.digits_prefix < candidate.digits_in_place - 0.02)
    advice.risk = str("Answers come out partly right: ", percent_text(candidate.digits_in_place),
                      " of the digits are at their place, ", percent_text(candidate.digits_prefix),
                      " before the first wrong one.");
  else if (!std::isnan(candidate.score.low) && candidate.score.low < candidate.full)
    advice.risk = str("The score may be as low as ", fixed_text(candidate.score.low, 3),
                      " where the full cache has ", fixed_text(candidate.full, 3), ".");
  else
    advice.risk =
        "Tokens are judged by the next partition alone, whatever the question will ask for.";
  return advice;
}

Advice precision_advice(const PrecisionModel& model, std::optional<std::size_t> chosen) {
  const LayerFormats& formats = model.formats_of(chosen);
  const std::size_t point = chosen ? *chosen : model.calibrated.value_or(model.curve.size());
  Advice advice;
  // The costliest of what was tried, and the last of its formats, which has the fewest bits.
  const PrecisionModel::Item* costliest = nullptr;
  for (const auto& item : model.items)
    if (!costliest || (!item.kl.empty() && item.kl.back() > costliest->kl.back()))
      if (!item.kl.empty()) costliest = &item;
  if (std::all_of(formats.begin(), formats.end(), [](const auto& one) { return one.plain(); })) {
    advice.reason = "Everything stays at 16 bits.";
  } else if (costliest) {
    advice.layer = costliest->layers.front();
    advice.reason = str("Layers differ in what they bear: the ",
                        costliest->keys ? costliest->values ? "keys and values" : "keys" : "values",
                        " of layer ", *advice.layer, " alone in ",
                        calibrate::facts_of(model.formats.back()).word, " cost a KL divergence of ",
                        fixed_text(costliest->kl.back(), 4), ", more than any other.");
  } else {
    advice.reason = str("Stored as ", calibrate::formats_text(formats), ".");
  }
  constexpr double kFarAbove = 2;  // times the sum of the layers
  if (point < model.curve.size() &&
      model.curve[point].kl > kFarAbove * model.curve[point].expected_kl)
    advice.risk = str("Together the layers cost more than each by itself: a KL divergence of ",
                      fixed_text(model.curve[point].kl, 4), ", where their sum is ",
                      fixed_text(model.curve[point].expected_kl, 4), ".");
  else
    advice.risk =
        str("Each layer was tried by itself, on ", count_of(model.samples, "sample", "samples"),
            ": other texts may have other sensitive layers.");
  return advice;
}

std::string measured_risk(const Measured& measured) {
  const Estimate change = change_of(measured);
  if (std::isnan(change.mean)) return "";
  if (change.high < 0)
    return "It costs score on these tasks: choose a setting that keeps more of the cache.";
  if (change.mean <= -kLostPoints)
    return "It may cost score on these tasks: measure it on more samples, or keep more of the "
           "cache.";
  if (measured.samples > 0 && (measured.samples < 20 || change.low <= -kHiddenPoints))
    return str("The score was measured on ", count_of(measured.samples, "sample", "samples"),
               " alone: losses of ",
               std::isnan(change.low) ? "a few" : "up to " + fixed_text(-change.low, 1),
               " points would not show.");
  return "";
}

}  // namespace kvatlas::viewer
