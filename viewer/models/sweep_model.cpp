// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/sweep_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {
namespace {

using Candidate = SweepModel::Candidate;

Estimate shown_score(const Candidate& candidate, ShownScore score) {
  switch (score) {
    case ShownScore::score:
      return candidate.score;
    case ShownScore::digits_prefix:
      return {candidate.digits_prefix, kNoNumber, kNoNumber};
    case ShownScore::digits_in_place:
      return {candidate.digits_in_place, kNoNumber, kNoNumber};
    case ShownScore::attention:
      break;
  }
  return {candidate.attention, kNoNumber, kNoNumber};
}

/// As calibration weighs them: what is lost of the full cache's score on the same samples, for
/// candidates need not have the same ones.
double gain(const Candidate& candidate, ShownScore score) {
  const double shown = shown_score(candidate, score).mean;
  return score == ShownScore::score ? shown - candidate.full : shown;
}

double full_score(const Candidate& candidate, ShownScore score) {
  return score == ShownScore::score ? candidate.full : 1;
}

double cost(const Candidate& candidate, bool against_kept) {
  return against_kept ? static_cast<double>(candidate.keep) : 1 - candidate.compression;
}

void choose(const SweepModel& model, const SweepSettings& settings, SweepView& view) {
  std::vector<std::size_t> own;
  std::vector<double> costs, compressions, gains;
  for (std::size_t i = 0; i < model.candidates.size(); ++i) {
    const Candidate& candidate = model.candidates[i];
    const double gained = gain(candidate, settings.score);
    if (!candidate.own() || std::isnan(gained) || std::isnan(candidate.compression)) continue;
    own.push_back(i);
    costs.push_back(cost(candidate, settings.against_kept));
    compressions.push_back(candidate.compression);
    gains.push_back(gained);
    const double least = settings.least_share * full_score(candidate, settings.score);
    const bool enough = shown_score(candidate, settings.score).mean >= least - 1e-9;
    if (enough &&
        (!view.smallest || candidate.compression > model.candidates[*view.smallest].compression))
      view.smallest = i;
  }
  for (const auto i : calibrate::pareto_front(costs, gains)) view.front.push_back(own[i]);
  if (const auto best = calibrate::recommend_lag(compressions, gains, settings.wanted_compression))
    view.recommended = own[*best];
}

/// One series a lag, so that shapes tell lags apart; colours tell ratios.
void draw(const SweepModel& model, const SweepSettings& settings, std::optional<std::size_t> chosen,
          SweepView& view) {
  struct Series {
    Points points;
    std::vector<std::size_t> candidates;
  };
  Chart& chart = view.chart;
  std::map<std::int64_t, Series> by_lag;
  Series others{{"LocalKV and L2", {}}, {}}, standing_out{{"chosen", {}}, {}};
  Line front{"front", {}, Emphasis::strong, true};
  const auto colour_of = [&](const std::string& ratio) {
    const std::string label = str("ratio ", ratio);
    auto& colours = chart.point_colours;
    const auto found = std::find(colours.begin(), colours.end(), label);
    const auto number = static_cast<int>(found - colours.begin());
    if (found == colours.end()) colours.push_back(label);
    return number;
  };
  const auto x_of = [&](const Candidate& candidate) {
    return settings.against_kept ? static_cast<double>(candidate.keep) : candidate.compression;
  };
  chart.table.columns = {{"variant"},
                         {"lag", "tokens"},
                         {"ratio"},
                         {"kept", "tokens"},
                         {"compression", "share"},
                         {score_word(settings.score)},
                         {"low"},
                         {"high"},
                         {"full"},
                         {"front"},
                         {"cache kept", "tokens"}};
  for (std::size_t i = 0; i < model.candidates.size(); ++i) {
    const Candidate& candidate = model.candidates[i];
    const Estimate shown = shown_score(candidate, settings.score);
    const bool on_front = std::find(view.front.begin(), view.front.end(), i) != view.front.end();
    const double kept = static_cast<double>(
        calibrate::lag_kept_tokens(settings.length, {model.sink, candidate.lag, candidate.keep}));
    chart.table.rows.push_back({candidate.variant, candidate.lag, candidate.ratio, candidate.keep,
                                candidate.compression, shown.mean, shown.low, shown.high,
                                candidate.full, on_front ? "yes" : "",
                                candidate.own() && settings.length > 0 ? kept : kNoNumber});
    if (std::isnan(shown.mean)) continue;
    Point point{x_of(candidate),
                shown.mean,
                str(candidate.variant, ", lag ", candidate.lag, ", ratio ", candidate.ratio),
                shown.low,
                shown.high,
                on_front ? Emphasis::strong : Emphasis::faint};
    if (candidate.own())
      point.colour = colour_of(candidate.ratio);
    else
      point.emphasis = Emphasis::reference;
    Series& series = candidate.own() ? by_lag[candidate.lag] : others;
    series.points.points.push_back(point);
    series.candidates.push_back(i);
    if (chosen == i) {
      point.emphasis = Emphasis::strong;
      standing_out.points.points.push_back(point);
      standing_out.candidates.push_back(i);
    }
  }
  int shape = 0;
  const auto add = [&](Series& series) {
    if (series.points.points.empty()) return;
    series.points.shape = shape++;
    chart.points.push_back(std::move(series.points));
    view.candidates.push_back(std::move(series.candidates));
  };
  for (auto& [lag, series] : by_lag) {
    series.points.label = str("lag ", lag);
    add(series);
  }
  add(others);
  add(standing_out);
  std::vector<Point> ends;
  for (const auto i : view.front)
    ends.push_back(
        {x_of(model.candidates[i]), shown_score(model.candidates[i], settings.score).mean});
  std::sort(ends.begin(), ends.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  // Of more tokens a score stays; of more compression it is that of the next point.
  for (std::size_t i = 0; i < ends.size(); ++i) {
    front.points.push_back(ends[i]);
    if (!settings.against_kept && i + 1 < ends.size())
      front.points.push_back({ends[i].x, ends[i + 1].y});
  }
  chart.lines.push_back(std::move(front));
}

/// Which share of the keys stays along a prompt: sinks, partitions, the last one and the rest.
Chart pattern_chart(const SweepModel& model, const Candidate& candidate, std::int64_t length) {
  constexpr std::int64_t kMostColumns = 512;
  const calibrate::LagShape shape{model.sink, candidate.lag, candidate.keep};
  const std::int64_t kept = calibrate::lag_kept_tokens(length, shape);
  // The last partition and what follows stay whole.
  const std::int64_t whole_from =
      kept == length ? 0 : shape.sink + ((length - shape.sink) / shape.lag - 1) * shape.lag;
  const double share = static_cast<double>(shape.keep) / static_cast<double>(shape.lag);
  const auto kept_before = [&](std::int64_t token) {
    const std::int64_t of_partitions = std::clamp(token, shape.sink, whole_from) - shape.sink;
    const auto partly = static_cast<double>(of_partitions);
    return static_cast<double>(token) - partly + share * partly;
  };
  Chart chart;
  chart.title = str("Keys kept of ", length, " tokens by lag ", candidate.lag, ", ratio ",
                    candidate.ratio, ": ", kept);
  chart.x = {"token", ""};
  chart.x.kind = AxisKind::tokens;
  chart.table.columns = {{"first token"}, {"last token"}, {"kept", "share"}};
  Matrix strip{"keys kept", "share", {"kept"}, {}, {}};
  const std::int64_t columns = std::min(length, kMostColumns);
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t from = column * length / columns, to = (column + 1) * length / columns;
    const double value =
        whole_from == 0 ? 1
                        : (kept_before(to) - kept_before(from)) / static_cast<double>(to - from);
    strip.column_labels.push_back(str(from));
    strip.column_texts.push_back(to - from == 1 ? str("token ", from)
                                                : str("tokens ", from, " to ", to - 1));
    strip.values.push_back(value);
    chart.table.rows.push_back({from, to - 1, value});
  }
  chart.matrices.push_back(std::move(strip));
  return chart;
}

}  // namespace

SweepModel sweep_model(const nlohmann::json& section) {
  SweepModel model;
  auto report = report_in<calibrate::LagKvReport>(section, calibrate::method::kLagKv);
  if (report.sweep.empty())
    fail(ErrorCode::usage,
         "the document has no sweep of LagKV; 'kvatlas calibrate lagkv' makes one");
  model.sink =
      std::get<calibrate::LagKv>(calibrate::part_of(calibrate::method::kLagKv.name, section)).sink;
  model.full = report.full;
  model.candidates = std::move(report.sweep);
  for (const auto& candidate : model.candidates)
    if (candidate.lag < 1 || candidate.keep < 0 || candidate.keep > candidate.lag ||
        candidate.lag > (std::int64_t{1} << 24))
      fail(ErrorCode::unreadable, "lagkv.sweep keeps ", candidate.keep, " tokens of ",
           candidate.lag);
  return model;
}

SweepView sweep_view(const SweepModel& model, const SweepSettings& asked,
                     std::optional<std::size_t> chosen) {
  SweepView view;
  SweepSettings settings = asked;
  const auto has = [&](ShownScore score) {
    return std::any_of(
        model.candidates.begin(), model.candidates.end(),
        [&](const auto& candidate) { return !std::isnan(shown_score(candidate, score).mean); });
  };
  if (!has(asked.score) && has(ShownScore::attention)) {
    settings.score = ShownScore::attention;
    view.chart.notes.push_back(str("the sweep has no ", score_word(asked.score),
                                   ": the attention that is kept stands in for it"));
  }
  choose(model, settings, view);
  Chart& chart = view.chart;
  chart.title = str("LagKV: ", score_word(settings.score), " against ",
                    settings.against_kept ? "tokens kept of a partition" : "compression");
  const auto describe = [&](const char* what, std::optional<std::size_t> which) {
    if (!which) {
      chart.notes.push_back(str(what, ": none"));
      return;
    }
    const Candidate& candidate = model.candidates[*which];
    chart.notes.push_back(str(what, ": lag ", candidate.lag, ", ratio ", candidate.ratio,
                              ", compression ", percent_text(candidate.compression)));
  };
  if (chosen && *chosen < model.candidates.size()) describe("chosen", chosen);
  describe("best of those that compress as much as wanted", view.recommended);
  describe(str("smallest with at least ", percent_text(settings.least_share), " of full").c_str(),
           view.smallest);
  chart.x = settings.against_kept ? Axis{"tokens kept of a partition", "tokens"}
                                  : Axis{"compression", "share", {}, {{0, 1}}};
  chart.y = {score_word(settings.score), "", {}, {{0, 1}}};
  if (settings.score == ShownScore::score && model.full) {
    std::int64_t most = 1;
    for (const auto& candidate : model.candidates) most = std::max(most, candidate.keep);
    const double end = settings.against_kept ? static_cast<double>(most) : 1;
    chart.bands.push_back({"",
                           {{0, model.full->mean, {}, model.full->low, model.full->high},
                            {end, model.full->mean, {}, model.full->low, model.full->high}},
                           static_cast<int>(chart.lines.size())});
    chart.lines.push_back({"full cache, and its 95 % interval",
                           {{0, model.full->mean}, {end, model.full->mean}},
                           Emphasis::reference});
    chart.marks.push_back(
        {"at least", settings.least_share * model.full->mean, false, Handle::least_score});
  }
  if (!settings.against_kept)
    chart.marks.push_back(
        {"wanted", settings.wanted_compression, true, Handle::wanted_compression});
  draw(model, settings, chosen, view);
  const auto shown = chosen && *chosen < model.candidates.size() ? chosen : view.recommended;
  if (shown && settings.length > 0)
    view.pattern = pattern_chart(model, model.candidates[*shown], settings.length);
  return view;
}

}  // namespace kvatlas::viewer
