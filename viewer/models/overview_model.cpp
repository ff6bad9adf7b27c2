// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/overview_model.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "analyzer/profile/model_text.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/rules/precision.hpp"
#include "viewer/models/choices_document.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;

std::string bytes_text(double bytes) { return bytes_str(std::llround(bytes)); }

/// "1015 to 1024", or one number.
std::string range_text(const std::set<std::int64_t>& values) {
  if (values.empty()) return "-";
  return values.size() == 1 ? str(*values.begin()) : str(*values.begin(), " to ", *values.rbegin());
}

std::vector<Fact> model_facts(const profile::Header& header, const calibrate::CacheShape& shape) {
  std::vector<Fact> facts = {
      {"model", header.model_name},
      {"architecture", header.architecture},
      {"layers", profile::layers_text(header.n_layers, header.layer_numbers)},
      {"heads", str(header.n_heads, " query, ", header.n_kv_heads, " KV, of ", header.head_dim)},
      {"context", str(header.context_length, " tokens")},
      {"cache a token", bytes_text(shape.bytes_per_token()) + " at 16 bits"}};
  if (auto cache = profile::cache_text(header.cached_values, header.latent_rank); !cache.empty())
    facts.push_back({"cached", std::move(cache)});
  const auto windowed = std::count_if(header.window.begin(), header.window.end(),
                                      [](std::int64_t window) { return window > 0; });
  if (windowed > 0)
    facts.push_back(
        {"windows", str(windowed, " layers see and hold no more than ",
                        *std::max_element(header.window.begin(), header.window.end()), " tokens")});
  return facts;
}

std::vector<Fact> provenance_facts(const profile::Reader& profile) {
  const auto& header = profile.header();
  std::map<std::string, std::int64_t> tasks;
  std::set<std::int64_t> lengths, seeds;
  for (const auto& sample : profile.samples()) {
    ++tasks[sample.task.empty() ? "your own" : sample.task];
    lengths.insert(sample.n_tokens);
    if (sample.seed >= 0) seeds.insert(sample.seed);
  }
  std::string samples = join(
      tasks, ", ", [](const auto& task) { return str(task.second, " ", printable(task.first)); });
  if (!profile.complete())
    samples += str(" (", profile.samples().size(), " of ", header.planned_samples, " planned)");
  std::vector<Fact> facts = {{"samples", samples},
                             {"lengths", range_text(lengths) + " tokens"},
                             {"taken with", "kvatlas " + header.tool_version},
                             {"backend", header.backend},
                             {"profile", calibrate::profile_fingerprint(profile)},
                             {"weights", header.model_fingerprint}};
  if (!header.tokenizer_fingerprint.empty())
    facts.push_back({"tokenizer", header.tokenizer_fingerprint});
  if (!seeds.empty())
    facts.insert(facts.begin() + 2, {seeds.size() == 1 ? "seed" : "seeds", range_text(seeds)});
  return facts;
}

/// Share, bytes and their text.
void set_kept(double share, const calibrate::CacheShape& shape, std::int64_t length,
              PolicyCard& card) {
  const double full = shape.full_bytes(length);
  card.kept_share = share;
  card.kept_bytes = share * full;
  card.kept = str(percent_text(share), " of the cache kept: ", bytes_text(card.kept_bytes), " of ",
                  bytes_text(full), " at ", length, " tokens");
}

void set_kept(const calibrate::Policy& policy, const calibrate::CacheShape& shape,
              std::int64_t length, PolicyCard& card) {
  calibrate::CacheLoad load;
  load.shape = shape;
  load.prompt = std::max<std::int64_t>(1, length);
  const double kept = calibrate::cache_bytes(policy, load).total();
  set_kept(kept / shape.full_bytes(load.prompt), shape, length, card);
}

/// Without a title, for the chart is small and has one.
Axis share_axis() { return {"", "", {{0, "0"}, {1, "1"}}, {{0, 1}}}; }

void show_lazy(const LazyModel& model, const Choices& choices, PolicyCard& card) {
  LazySettings settings = choices.lazy;
  settings.length = choices.length;
  const LazyDecisions decisions = lazy_decisions(model, settings);
  const auto savings =
      calibrate::layer_savings(decisions.shares, model.shape, settings.length, model.choices.keep);
  card.setting =
      str("threshold ", fixed_text(settings.threshold, 3), ", initial ", model.choices.keep.initial,
          ", recent ", model.choices.keep.recent, settings.per_head ? ", KV heads" : "",
          settings.fixed ? ", the same for all inputs" : "");
  set_kept(savings.kept_bytes / savings.full_bytes, model.shape, settings.length, card);
  card.advice = lazy_advice(model, settings);
  card.chart.title = str("lazy rate: ", fixed_text(decisions.lazy_layers, 1), " of ",
                         model.shape.layers, " layers in the mean");
  card.chart.x = layer_axis(model.shape.layers);
  card.chart.y = share_axis();
  card.chart.table.columns = {{"layer"}, {"lazy rate", "share"}};
  Bars bars{"lazy rate", {}};
  for (std::size_t l = 0; l < decisions.rates.size(); ++l) {
    const auto x = static_cast<double>(l);
    const double rate = decisions.rates[l];
    bars.bars.push_back({x, rate, percent_text(rate),
                         decisions.fixed.lazy[l] != 0 ? Emphasis::strong : Emphasis::normal});
    card.chart.table.rows.push_back({x, rate});
  }
  card.chart.bars.push_back(std::move(bars));
}

void show_blocks(const BlocksModel& model, const Choices& choices, PolicyCard& card) {
  BlocksSettings settings = choices.blocks;
  settings.length = choices.length;
  const BlockDecisions decisions = block_decisions(model, settings);
  card.setting =
      str("delta ", fixed_text(settings.delta, 2), ", initial ", settings.proximal.initial,
          ", recent ", settings.proximal.recent, settings.per_query_head ? ", query heads" : "");
  set_kept(1 - decisions.saved, model.shape, settings.length, card);
  card.advice = blocks_advice(model, settings, decisions.blocks);
  card.chart.title = str(decisions.point.blocks, " blocks; distant keys not stored, over delta");
  card.chart.x = {"delta", "", {}, {{0, 1}}};
  card.chart.y = share_axis();
  card.chart.table.columns = {{"delta"}, {"keys not stored", "share"}, {"blocks"}};
  Line line{"distant keys not stored", {}, Emphasis::strong};
  for (const auto& point : settings.per_query_head ? model.by_query_head : model.by_kv_head) {
    line.points.push_back({point.delta, point.dropped});
    card.chart.table.rows.push_back({point.delta, point.dropped, point.blocks});
  }
  card.chart.lines.push_back(std::move(line));
  card.chart.marks.push_back(
      {fixed_text(settings.delta, 2), settings.delta, true, Handle::none, Emphasis::strong});
}

void show_budgets(const BudgetsModel& model, const Choices& choices,
                  const calibrate::CacheShape& shape, PolicyCard& card) {
  const BudgetSettings& settings = choices.budgets;
  const BudgetDecisions decisions = budget_decisions(model, settings);
  const bool maximum = model.choices.pooling == calibrate::Pooling::maximum;
  card.setting = str("budget ", settings.budget, " a layer, window ", model.choices.window,
                     ", kernel ", model.choices.kernel, maximum ? " (max)" : " (avg)");
  calibrate::DynamicKv part;
  part.select.window = model.choices.window;
  part.select.budget = settings.budget;
  part.fixed = decisions.all.budgets;
  set_kept({.name = {}, .parts = {part}}, shape, choices.length, card);
  card.advice = budgets_advice(model, settings, decisions);
  card.chart.title = "tokens kept by layer, beside the window";
  card.chart.x = layer_axis(model.layers);
  card.chart.table.columns = {{"layer"}, {"tokens kept", "tokens"}};
  Bars bars{"tokens kept", {}};
  const auto& budgets = decisions.all.budgets;
  for (std::size_t l = 0; l < budgets.size(); ++l) {
    const auto x = static_cast<double>(l), kept = static_cast<double>(budgets[l]);
    bars.bars.push_back({x, kept, str(budgets[l])});
    card.chart.table.rows.push_back({x, kept});
  }
  card.chart.bars.push_back(std::move(bars));
  const auto most = *std::max_element(budgets.begin(), budgets.end());
  const auto top = std::max(1.0, static_cast<double>(most));
  card.chart.y = {"", "", {{0, "0"}, {top, str(most)}}, {{0, top}}};
  const auto even = static_cast<double>(settings.budget - model.choices.window);
  card.chart.marks.push_back({"the same for all", even, false});
}

void show_head_budgets(const calibrate::HeadKv& part, const Choices& choices,
                       const calibrate::CacheShape& shape, PolicyCard& card) {
  if (!part.fixed) fail(ErrorCode::usage, "the document has no budgets of heads");
  card.setting =
      str("budget ", part.select.budget, " a head in the mean, window ", part.select.window);
  set_kept({.name = {}, .parts = {part}}, shape, choices.length, card);
  card.advice = head_budgets_advice(part);
  card.chart.title = "most, mean and least tokens kept by a layer's heads, beside the window";
  card.chart.x = layer_axis(shape.layers);
  card.chart.table.columns = {
      {"layer"}, {"most", "tokens"}, {"mean", "tokens"}, {"least", "tokens"}};
  Bars most{"most", {}}, mean{"mean", {}}, least{"least", {}};
  double top = 1;
  for (std::size_t l = 0; l < part.fixed->size(); ++l) {
    std::vector<double> heads((*part.fixed)[l].begin(), (*part.fixed)[l].end());
    const auto [low, high] = std::minmax_element(heads.begin(), heads.end());
    const double middle = calibrate::mean_of(heads);
    const auto x = static_cast<double>(l);
    most.bars.push_back({x, *high, str(*high)});
    mean.bars.push_back({x, middle, fixed_text(middle, 0)});
    least.bars.push_back({x, *low, str(*low)});
    card.chart.table.rows.push_back({x, *high, middle, *low});
    top = std::max(top, *high);
  }
  card.chart.bars = {std::move(most), std::move(mean), std::move(least)};
  card.chart.y = {"", "", {{0, "0"}, {top, str(top)}}, {{0, top}}};
  const auto even = static_cast<double>(part.select.budget - part.select.window);
  card.chart.marks.push_back({"the same for all", even, false});
}

void show_sweep(const SweepModel& model, const Choices& choices, const calibrate::CacheShape& shape,
                PolicyCard& card) {
  SweepSettings settings = choices.sweep;
  settings.length = choices.length;
  SweepView view = sweep_view(model, settings);
  card.chart = std::move(view.chart);
  card.chart.title = "score against compression, by lag";
  card.chart.y = share_axis();
  card.chart.notes.clear();
  card.chart.marks.clear();
  card.chart.bands.clear();
  std::optional<std::size_t> chosen = view.recommended;
  if (choices.lag_candidate >= 0) chosen = static_cast<std::size_t>(choices.lag_candidate);
  if (!chosen || *chosen >= model.candidates.size()) {
    card.setting = "none of the sweep compresses as much as is wanted";
    return;
  }
  const auto& candidate = model.candidates[*chosen];
  card.setting = str("lag ", candidate.lag, ", ratio ", candidate.ratio, ", sink ", model.sink,
                     candidate.own() ? "" : ", " + candidate.variant);
  set_kept(calibrate::parse_policy(str("lagkv:sink=", model.sink, ",lag=", candidate.lag,
                                       ",ratio=", candidate.ratio, ",variant=", candidate.variant)),
           shape, settings.length, card);
  card.advice = sweep_advice(model, settings, candidate);
}

void show_precision(const PrecisionModel& model, const Choices& choices,
                    const calibrate::CacheShape& shape, PolicyCard& card) {
  const auto layers = static_cast<std::size_t>(shape.layers);
  if (model.layers() != layers)
    fail(ErrorCode::usage, "the document has the formats of ", model.layers(), " layers, and the ",
         "model has ", layers);
  const auto chosen = curve_point(model, choices.precision_point);
  calibrate::Precision part = model.part;
  part.fixed = model.formats_of(chosen);
  card.setting = calibrate::formats_text(*part.fixed);
  set_kept({.name = {}, .parts = {part}}, shape, choices.length, card);
  card.advice = precision_advice(model, chosen);
  card.chart.title = "bits of a value by layer";
  card.chart.x = layer_axis(shape.layers);
  card.chart.table.columns = {{"layer"}, {"keys in"}, {"values in"}};
  Bars keys{"keys", {}}, values{"values", {}};
  for (std::size_t l = 0; l < layers; ++l) {
    const auto x = static_cast<double>(l);
    const auto& of_keys = calibrate::facts_of((*part.fixed)[l].keys);
    const auto& of_values = calibrate::facts_of((*part.fixed)[l].values);
    keys.bars.push_back({x, 8 * of_keys.bytes_per_value, std::string(of_keys.word)});
    values.bars.push_back({x, 8 * of_values.bytes_per_value, std::string(of_values.word)});
    card.chart.table.rows.push_back({x, keys.bars.back().label, values.bars.back().label});
  }
  card.chart.y = {"", "", {{0, "0"}, {4, "4"}, {8, "8"}, {16, "16"}}, {{0, 16}}};
  card.chart.bars = {std::move(keys), std::move(values)};
}

/// Whether what a document measured is of the present setting.
struct IsPresent {
  const Choices& choices;
  const OverviewModel& model;

  bool operator()(const calibrate::SimLayerKv& known) const {
    return is_near(known.threshold, choices.lazy.threshold) &&
           known.keep == choices.lazy_arrays.keep && known.per_head == choices.lazy.per_head;
  }
  bool operator()(const calibrate::Pod& known) const {
    return is_near(known.delta, choices.blocks.delta) &&
           known.proximal == choices.blocks.proximal &&
           known.per_query_head == choices.blocks.per_query_head;
  }
  bool operator()(const calibrate::DynamicKv& known) const {
    return known.select.budget == choices.budgets.budget &&
           known.select.window == choices.budget_counts.window;
  }
  bool operator()(const calibrate::HeadKv&) const {
    return true;  // nothing in the window changes it
  }
  bool operator()(const calibrate::LagKv& known) const {
    if (!model.sweep.model) return false;
    std::optional<std::size_t> chosen = sweep_view(*model.sweep.model, choices.sweep).recommended;
    if (choices.lag_candidate >= 0) chosen = static_cast<std::size_t>(choices.lag_candidate);
    if (!chosen || *chosen >= model.sweep.model->candidates.size()) return false;
    const auto& candidate = model.sweep.model->candidates[*chosen];
    return known.lag == candidate.lag && known.ratio == candidate.ratio &&
           calibrate::variant_word(known.variant) == candidate.variant;
  }
  bool operator()(const calibrate::Precision&) const {
    if (!model.precision.model) return false;
    const auto chosen = curve_point(*model.precision.model, choices.precision_point);
    return !chosen || chosen == model.precision.model->calibrated;
  }
  bool operator()(const auto&) const { return false; }

 private:
  static bool is_near(double a, double b) { return std::abs(a - b) < 1e-9; }
};

void show_measured(const OverviewModel& model, const Choices& choices, std::size_t kind,
                   PolicyCard& card) {
  const auto& measured = model.measured[kind];
  const auto& known = model.known[kind];
  if (measured && known && std::visit(IsPresent{choices, model}, *known)) {
    card.measured = measured;
    card.score = change_text(*measured);
    const std::string risk = measured_risk(*measured);
    if (!risk.empty()) card.advice.risk = risk;
  } else if (measured) {
    card.score = "not measured at this setting; save it and run 'kvatlas evaluate'";
  } else {
    card.score = str("not measured: 'kvatlas calibrate ", calibrate::kMethods[kind].name,
                     " --model' or 'kvatlas evaluate' does");
  }
}

}  // namespace

Fact file_date(const std::filesystem::path& path) {
  std::error_code failed;
  const auto written = std::filesystem::last_write_time(path, failed);
  if (failed) return {"file written", "unknown"};
  const auto seconds =
      std::chrono::system_clock::to_time_t(std::chrono::file_clock::to_sys(written));
  std::tm date{};
  gmtime_r(&seconds, &date);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &date);
  return {"file written", text.data()};
}

OverviewModel read_overview_model(const profile::Reader& profile, MethodModels methods,
                                  std::span<const calibrate::Document> documents) {
  OverviewModel model;
  model.shape = calibrate::cache_shape(profile.header());
  model.facts = model_facts(profile.header(), model.shape);
  model.provenance = provenance_facts(profile);
  model.methods = std::move(methods);
  const auto read_section = [&](const calibrate::Method& method, const json& section,
                                const char* missing, const auto& read) {
    return try_read([&] {
      calibrate::require_fit(method, profile.header());
      if (section.is_null()) fail(ErrorCode::usage, missing);
      return read(section);
    });
  };
  const json& sweep = section_in(documents, calibrate::method::kLagKv.name);
  model.sweep = read_section(
      calibrate::method::kLagKv, sweep,
      "LagKV's settings are swept by calibration: 'kvatlas calibrate lagkv' makes a document to "
      "open here",
      sweep_model);
  const json& head_budgets = section_in(documents, calibrate::method::kHeadKv.name);
  model.head_budgets = read_section(
      calibrate::method::kHeadKv, head_budgets,
      "Budgets of heads are found by calibration: 'kvatlas calibrate headkv' makes a document to "
      "open here",
      [](const json& section) {
        return std::get<calibrate::HeadKv>(
            calibrate::part_of(calibrate::method::kHeadKv.name, section));
      });
  const json& precision = section_in(documents, calibrate::method::kPrecision.name);
  model.precision = read_section(
      calibrate::method::kPrecision, precision,
      "What fewer bits cost is measured on the model: 'kvatlas calibrate precision' makes a "
      "document to open here",
      precision_model);
  for (std::size_t kind = 0; kind < model.measured.size(); ++kind) {
    const json known = section_alone_in(documents, calibrate::kMethods[kind].name);
    if (!known.is_object()) continue;
    model.measured[kind] =
        report_in<calibrate::MethodReport>(known, calibrate::kMethods[kind]).measured;
    model.known[kind] = calibrate::part_of(calibrate::kMethods[kind].name, known);
  }
  return model;
}

MethodModels read_method_models(const profile::Reader& profile,
                                const std::vector<std::size_t>& positions, const Choices& choices,
                                std::span<const calibrate::Document> documents) {
  const auto section = [&](const calibrate::Method& method) -> const json& {
    return section_in(documents, method.name);
  };
  return {try_read([&] {
            return read_lazy_model(profile, positions, choices.lazy_arrays,
                                   section(calibrate::method::kSimLayerKv));
          }),
          try_read([&] {
            return read_blocks_model(profile, positions, section(calibrate::method::kPod));
          }),
          try_read([&] { return read_budgets_model(profile, positions, choices.budget_counts); })};
}

OverviewModel read_overview_model(const profile::Reader& profile,
                                  const std::vector<std::size_t>& positions, const Choices& choices,
                                  std::span<const calibrate::Document> documents) {
  return read_overview_model(profile, read_method_models(profile, positions, choices, documents),
                             documents);
}

OverviewView overview_view(const OverviewModel& model, const Choices& choices) {
  OverviewView view;
  const double full = model.shape.full_bytes(choices.length);
  view.cache = {{"whole cache", str(bytes_text(full), " at ", choices.length, " tokens")}};
  const auto show = [&](std::size_t kind, const auto& read, const auto& fill) {
    PolicyCard card;
    card.section = calibrate::kMethods[kind].name;
    card.title = calibrate::kMethods[kind].title;
    card.screen = kMethodScreens[kind];
    card.missing = read.reason;
    if (read.model) {
      try {
        fill(*read.model, card);
        show_measured(model, choices, kind, card);
      } catch (const Error& error) {
        card.missing = error.what();
      }
    }
    view.cards.push_back(std::move(card));
  };
  show(0, model.methods.lazy,
       [&](const LazyModel& lazy, PolicyCard& card) { show_lazy(lazy, choices, card); });
  show(1, model.methods.blocks,
       [&](const BlocksModel& blocks, PolicyCard& card) { show_blocks(blocks, choices, card); });
  show(2, model.methods.budgets, [&](const BudgetsModel& budgets, PolicyCard& card) {
    show_budgets(budgets, choices, model.shape, card);
  });
  show(3, model.head_budgets, [&](const calibrate::HeadKv& part, PolicyCard& card) {
    show_head_budgets(part, choices, model.shape, card);
  });
  show(4, model.sweep, [&](const SweepModel& sweep, PolicyCard& card) {
    show_sweep(sweep, choices, model.shape, card);
  });
  show(5, model.precision, [&](const PrecisionModel& precision, PolicyCard& card) {
    show_precision(precision, choices, model.shape, card);
  });
  view.table.columns = {{"policy"},         {"setting"},      {"KV kept", "share"},
                        {"kept", "bytes"},  {"score change"}, {"reason", "", true},
                        {"risk", "", true}, {"missing"}};
  for (const auto& card : view.cards)
    view.table.rows.push_back({card.title, card.setting, card.kept_share, card.kept_bytes,
                               card.score, card.advice.reason, card.advice.risk, card.missing});
  return view;
}

}  // namespace kvatlas::viewer
