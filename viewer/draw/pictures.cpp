// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/pictures.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "viewer/draw/map_makers.hpp"
#include "viewer/draw/text_flow.hpp"
#include "viewer/methods/choices_document.hpp"
#include "viewer/models/diff_model.hpp"
#include "viewer/models/mass_model.hpp"
#include "viewer/models/needle_model.hpp"

namespace kvatlas::viewer {

namespace {

LazyView lazy_charts(Pictures& from) {
  const LazyModel& model = from.methods().lazy().value();
  const LazySettings& settings = from.request.choices.lazy;
  return lazy_view(model, settings, lazy_curve(model, settings, settings.threshold));
}

/// One chart of a view.
template <auto view, auto chart>
PicturePtr chart_of(Pictures& from) {
  return chart_picture(view(from).*chart);
}

PicturePtr lazy_picture(Pictures& from) {
  LazyView view = lazy_charts(from);
  const std::string title = view.layers.title;
  // The numbers are those of the layers; lazy-scores has those of the thresholds.
  view.scores.table = {};
  return stacked_picture(
      title,
      {chart_picture(std::move(view.layers)), chart_picture(std::move(view.strip)),
       chart_picture(std::move(view.scores))},
      false);
}

BlocksView blocks_charts(Pictures& from) {
  return blocks_view(from.methods().blocks().value(), from.request.choices.blocks);
}

PicturePtr blocks_picture(Pictures& from) {
  const PictureRequest& request = from.request;
  const BlocksModel& model = from.methods().blocks().value();
  const auto& settings = request.choices.blocks;
  if (!request.at) return chart_picture(blocks_view(model, settings).matrices);
  const auto heads = model.similarity.heads, groups = model.of_kv_heads.heads;
  if (request.at->head < 0 || request.at->head >= heads)
    fail(ErrorCode::usage, "there is no head ", request.at->head, ", but ", heads, " of them");
  const auto head =
      settings.per_query_head ? request.at->head : request.at->head / (heads / groups);
  return chart_picture(matrix_chart(model, settings, head));
}

GateView gate_charts(Pictures& from) {
  const auto view = blocks_charts(from);
  const auto model = read_gate_model(from.source.required_profile(), from.request.positions,
                                     from.request.choices.blocks.proximal);
  const auto& section = section_in(from.source.documents, calibrate::method::kPod.name);
  const double tau =
      section.is_object()
          ? std::get<calibrate::Pod>(calibrate::part_of(calibrate::method::kPod.name, section)).tau
          : 0.9;
  return gate_view(model, view.blocks, tau);
}

BudgetsView budgets_charts(Pictures& from) {
  return budgets_view(from.methods().budgets().value(), from.request.choices.budgets);
}

PicturePtr sweep_picture(const PictureSource& source, const PictureRequest& request) {
  return chart_picture(
      sweep_view(sweep_model(section_in(source.documents, calibrate::method::kLagKv.name)),
                 request.choices.sweep)
          .chart);
}

PicturePtr precision_picture(const PictureSource& source, Chart PrecisionView::*which) {
  const auto& section = section_in(source.documents, calibrate::method::kPrecision.name);
  Chart chart = precision_view(precision_model(section), {}).*which;
  if (!has_content(chart))
    fail(ErrorCode::usage,
         "the document lacks these numbers: 'kvatlas calibrate precision' finds "
         "them");
  return chart_picture(std::move(chart));
}

PicturePtr mass_picture(const PictureSource& source, const PictureRequest& request) {
  const auto& profile = source.required_profile();
  if (request.positions.empty()) fail(ErrorCode::usage, "the profile has no samples yet");
  const std::size_t sample = request.sample ? *request.sample : request.positions.front();
  const MassRows rows = has_mass_rows(profile, MassRows::along) ? MassRows::along : MassRows::last;
  const auto model = read_mass_model(profile, sample, request.choices.lazy_arrays.keep, rows);
  return chart_picture(mass_view(model, request.choices.lazy.threshold).heatmap);
}

PicturePtr overview_picture(Pictures& from) {
  std::vector<PicturePtr> charts;
  for (auto& card : overview_view(from.overview(), from.request.choices).cards) {
    if (!card.missing.empty()) continue;
    const std::string drawn = std::exchange(card.chart.title, str(card.title, ": ", card.setting));
    auto& notes = card.chart.notes;
    notes.insert(notes.end(), {drawn, card.kept, "score: " + card.score});
    charts.push_back(chart_picture(std::move(card.chart)));
  }
  if (charts.empty()) fail(ErrorCode::usage, "the profile has the statistics of no policy");
  return stacked_picture("Policies at their present settings", std::move(charts), false);
}

ComparisonView comparison_charts(Pictures& from, const std::string& task = {},
                                 CostAxis cost = CostAxis::kept) {
  return comparison_view(from.comparison(task), {from.request.choices.length, {}, {}, cost});
}

PicturePtr comparison_picture(Pictures& from, CostAxis cost) {
  const std::string& task = from.request.choices.task;
  const auto& model = from.comparison(task);
  if (model.policies.empty() && model.searched.empty())
    fail(ErrorCode::usage, "no document has scores: 'kvatlas evaluate -o' measures them");
  Chart pareto = comparison_charts(from, task, cost).pareto;
  if (pareto.points.empty())
    fail(ErrorCode::usage,
         "no document says what policies read: 'kvatlas evaluate -o' measures it");
  return chart_picture(std::move(pareto));
}

PicturePtr comparison_layers_picture(Pictures& from) {
  if (from.comparison().strips.empty()) fail(ErrorCode::usage, "no document tells layers apart");
  return chart_picture(comparison_charts(from).strips);
}

/// A chart of lines, or the reason why there are none.
PicturePtr comparison_lines_picture(Pictures& from, Chart ComparisonView::*which,
                                    const char* missing) {
  Chart chart = comparison_charts(from).*which;
  if (chart.lines.empty()) fail(ErrorCode::usage, missing);
  return chart_picture(std::move(chart));
}

PicturePtr needle_picture(const PictureSource& source, const PictureRequest& request) {
  return chart_picture(
      needle_chart(needle_model(source.documents), request.choices.sweep.score, false));
}

/// The run of a policy that is named as it was given, or as the line names it.
std::size_t run_named(const KeptPrompt& prompt, const std::string& name) {
  for (std::size_t i = 0; i < prompt.runs.size(); ++i)
    if (prompt.runs[i].policy == name) return i;
  fail(ErrorCode::usage, "--policy: there is no ", quoted(name), " among the lines; there are: ",
       join(prompt.runs, " ", [](const KeptRun& run) { return quoted(run.policy); }));
}

PicturePtr kept_picture(const PictureSource& source, const PictureRequest& request) {
  if (!source.kept)
    fail(ErrorCode::usage,
         "this needs a file of lines that 'kvatlas evaluate --generations --positions' prints");
  const KeptTokens& kept = *source.kept;
  KeptChoices choices;
  choices.prompt = request.sample.value_or(0);
  if (choices.prompt >= kept.prompts.size())
    fail(ErrorCode::usage, "--sample: there is no prompt ", choices.prompt, " among ",
         kept.prompts.size());
  const KeptPrompt& prompt = kept.prompts[choices.prompt];
  if (request.policies.size() > 2)
    fail(ErrorCode::usage, "--policy is given ", request.policies.size(),
         " times: two policies stand beside each other, not more");
  // Unless named, the first two behind the full cache's.
  choices.first = !request.policies.empty() ? run_named(prompt, request.policies[0])
                                            : std::min<std::size_t>(1, prompt.runs.size() - 1);
  if (request.policies.size() > 1)
    choices.second = run_named(prompt, request.policies[1]);
  else if (request.policies.empty() && prompt.runs.size() > 2)
    choices.second = 2;
  choices.read = prompt.most_read();
  if (request.generated) choices.read = std::min(choices.read, prompt.tokens + *request.generated);
  if (request.at) {
    if (request.at->layer >= kept.layers || request.at->head >= kept.kv_heads)
      fail(ErrorCode::usage, "--at: the model has ", kept.layers, " layers and ", kept.kv_heads,
           " KV heads, counted from 0");
    choices.head = static_cast<std::size_t>(request.at->layer * kept.kv_heads + request.at->head);
  }
  KeptView view = kept_view(kept, choices);
  std::vector<PicturePtr> texts;
  for (auto& text : view.texts) texts.push_back(text_picture(std::move(text)));
  const std::string title = view.shares.title;
  return stacked_picture(
      title,
      {chart_picture(std::move(view.shares)), stacked_picture(title, std::move(texts), true)},
      false);
}

PicturePtr difference_picture(const PictureSource& source, const PictureRequest& request) {
  const auto& first = source.required_profile();
  if (!source.baseline) fail(ErrorCode::usage, "this compares two profiles: give a second one");
  std::vector<std::size_t> positions;
  const auto& second = *source.baseline;
  const auto& samples = second.samples();
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (request.choices.task.empty() || samples[i].task == request.choices.task)
      positions.push_back(i);
  const auto numbers = [&](const profile::Reader& of, const char* name, const auto& samples_of) {
    return read_profile_numbers(of, name, samples_of,
                                MethodReader(of, samples_of, request.choices, {}).all(),
                                request.choices.budgets);
  };
  const auto view =
      diff_view(numbers(first, "first", request.positions), numbers(second, "second", positions),
                {DiffForm::difference, first.header().n_layers != second.header().n_layers});
  std::vector<PicturePtr> charts;
  for (const Chart* chart : {&view.masses, &view.budgets, &view.similarity})
    if (!chart->table.rows.empty()) charts.push_back(chart_picture(*chart));
  return stacked_picture("The second profile less the first", std::move(charts), false);
}

}  // namespace

const profile::Reader& PictureSource::required_profile() const {
  if (!profile) fail(ErrorCode::usage, "this needs a profile (.h5), which 'kvatlas profile' makes");
  return *profile;
}

MethodReader& Pictures::methods() {
  if (!methods_)
    methods_.emplace(source.required_profile(), request.positions, request.choices,
                     source.documents);
  return *methods_;
}

const OverviewModel& Pictures::overview() {
  if (!overview_)
    overview_ = read_overview_model(source.required_profile(), methods().all(), source.documents);
  return *overview_;
}

const ComparisonModel& Pictures::comparison(const std::string& task) {
  const auto found = comparisons_.find(task);
  if (found != comparisons_.end()) return found->second;
  return comparisons_.emplace(task, comparison_model(source.documents, task)).first->second;
}

PicturePtr Pictures::make(PictureKind kind) {
  switch (kind) {
    case PictureKind::lazy:
      return lazy_picture(*this);
    case PictureKind::lazy_layers:
      return chart_of<lazy_charts, &LazyView::layers>(*this);
    case PictureKind::lazy_rates:
      return chart_of<lazy_charts, &LazyView::strip>(*this);
    case PictureKind::lazy_scores:
      return chart_of<lazy_charts, &LazyView::scores>(*this);
    case PictureKind::blocks:
      return blocks_picture(*this);
    case PictureKind::blocks_sweep:
      return chart_of<blocks_charts, &BlocksView::sweep>(*this);
    case PictureKind::blocks_counts:
      return chart_of<blocks_charts, &BlocksView::counts>(*this);
    case PictureKind::gate:
      return chart_picture(gate_charts(*this).chart);
    case PictureKind::budgets:
      return chart_of<budgets_charts, &BudgetsView::heatmap>(*this);
    case PictureKind::budgets_lines:
      return chart_of<budgets_charts, &BudgetsView::lines>(*this);
    case PictureKind::budgets_shares:
      return chart_of<budgets_charts, &BudgetsView::shares>(*this);
    case PictureKind::sweep:
      return sweep_picture(source, request);
    case PictureKind::precision:
      return precision_picture(source, &PrecisionView::strip);
    case PictureKind::precision_curve:
      return precision_picture(source, &PrecisionView::curve);
    case PictureKind::overview:
      return overview_picture(*this);
    case PictureKind::comparison:
      return comparison_picture(*this, CostAxis::kept);
    case PictureKind::comparison_read:
      return comparison_picture(*this, CostAxis::read);
    case PictureKind::comparison_layers:
      return comparison_layers_picture(*this);
    case PictureKind::comparison_memory:
      return comparison_lines_picture(
          *this, &ComparisonView::memory,
          "no document says what is held while generating: 'kvatlas evaluate -o' measures it");
    case PictureKind::comparison_turns:
      return comparison_lines_picture(
          *this, &ComparisonView::turns,
          "no document has scores by turn: 'kvatlas evaluate --conversation -o' measures them");
    case PictureKind::needle:
      return needle_picture(source, request);
    case PictureKind::difference:
      return difference_picture(source, request);
    case PictureKind::mass:
      return mass_picture(source, request);
    case PictureKind::map:
      return make_map_picture(source, request);
    case PictureKind::grid:
      return make_grid_picture(source, request);
    case PictureKind::rows:
      return make_rows_picture(source, request);
    case PictureKind::text:
      return make_text_picture(source, request);
    case PictureKind::kept:
      return kept_picture(source, request);
  }
  fail(ErrorCode::internal, "no such picture");
}

std::vector<double> first_column(const Table& table) {
  std::vector<double> out;
  for (const auto& row : table.rows) out.push_back(row.front().number);
  return out;
}

std::optional<Pictures::Steps> Pictures::steps(PictureKind kind) {
  const auto lazy = [this](Chart LazyView::*chart) {
    const auto model = methods().lazy().model;
    const auto& own = request.choices.lazy;
    const auto curve = std::make_shared<const LazyCurve>(lazy_curve(*model, own, own.threshold));
    const auto at = [model, curve, chart, settings = request.choices.lazy](double value) {
      LazySettings there = settings;
      there.threshold = value;
      return chart_picture(lazy_view(*model, there, *curve).*chart);
    };
    return Steps{Handle::lazy_threshold, request.choices.lazy.threshold, curve->thresholds, at};
  };
  const auto blocks = [this](Chart BlocksView::*chart) {
    const auto model = methods().blocks().model;
    const auto at = [model, chart, settings = request.choices.blocks](double value) {
      BlocksSettings there = settings;
      there.delta = value;
      return chart_picture(blocks_view(*model, there).*chart);
    };
    return Steps{Handle::similarity, request.choices.blocks.delta,
                 first_column(blocks_charts(*this).sweep.table), at};
  };
  switch (kind) {
    case PictureKind::lazy_layers:
      return lazy(&LazyView::layers);
    case PictureKind::lazy_rates:
      return lazy(&LazyView::strip);
    case PictureKind::lazy_scores:
      return lazy(&LazyView::scores);
    case PictureKind::blocks:
      return blocks(&BlocksView::matrices);
    case PictureKind::blocks_sweep:
      return blocks(&BlocksView::sweep);
    case PictureKind::gate: {
      const GateView view = gate_charts(*this);
      const auto at = [view](double value) { return chart_picture(at_tau(view, value).chart); };
      const auto& marks = view.chart.marks;
      const auto tau = std::find_if(marks.begin(), marks.end(), [](const auto& mark) {
        return mark.handle == Handle::gate_threshold;
      });
      return Steps{Handle::gate_threshold, tau == marks.end() ? 1 : tau->at,
                   first_column(view.chart.table), at};
    }
    default:
      return std::nullopt;
  }
}

Handle Pictures::fixed_by(PictureKind kind) {
  switch (kind) {
    case PictureKind::mass:
      return Handle::lazy_threshold;
    case PictureKind::gate:
      return Handle::similarity;
    default:
      return Handle::none;
  }
}

ColourMap colour_map_named(const std::string& name) {
  for (const auto map : kColourMaps)
    if (name == colour_map_name(map)) return map;
  fail(ErrorCode::usage, "there is no colour map ", quoted(name),
       "; there are: ", join(kColourMaps, ", ", colour_map_name));
}

PictureRequest::Place parse_place(const std::string& text) {
  PictureRequest::Place place;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](char letter, std::int64_t& value) {
    if (at != end && (*at == letter || *at == letter + ('a' - 'A'))) ++at;
    const auto read = std::from_chars(at, end, value);
    if (read.ec != std::errc() || value < 0) return false;
    at = read.ptr;
    return true;
  };
  const bool layer = number('L', place.layer);
  if (!layer || at == end || *at++ != '.' || !number('H', place.head) || at != end)
    fail(ErrorCode::usage, quoted(text), " is no place: expected layer and head as L12.H3");
  return place;
}

Origin origin_of(const PictureSource& source, const std::filesystem::path& profile,
                 const std::filesystem::path& baseline, const std::string& settings) {
  Origin origin;
  const auto add = [&](const char* name, const profile::Reader* of,
                       const std::filesystem::path& path) {
    if (!of) return;
    const auto& header = of->header();
    origin.emplace_back(
        name, str(path.filename().string(), ", model ", header.model_name, ", fingerprint ",
                  header.model_fingerprint, ", kvatlas ", header.tool_version));
  };
  add("Profile", source.profile, profile);
  add("Baseline", source.baseline, baseline);
  for (std::size_t i = 0; i < source.documents.size(); ++i)
    origin.emplace_back(source.documents.size() == 1 ? "Policy" : str("Policy ", i + 1),
                        str(source.document_paths[i].filename().string(), ", profile ",
                            source.documents[i].provenance.profile));
  origin.emplace_back("Settings", settings);
  return origin;
}

}  // namespace kvatlas::viewer
