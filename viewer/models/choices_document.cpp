// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/choices_document.hpp"

#include <algorithm>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/report/lazy_report.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Document;
using nlohmann::json;
namespace name = profile::name;

/// What was chosen, and what it was chosen from.
struct Source {
  const MethodModels& models;
  const Choices& choices;
  std::span<const Document> documents;
};

calibrate::SimLayerKv lazy_part(const LazyModel& model, const LazySettings& settings,
                                const calibrate::LazyChoice& choice) {
  calibrate::SimLayerKv part;
  part.keep = model.choices.keep;
  part.threshold = settings.threshold;
  part.identify = model.choices.identify;
  part.w_last = model.choices.w_last;
  part.per_head = settings.per_head;
  if (settings.fixed)
    part.fixed.emplace(calibrate::fixed_lazy(model.masses, settings.threshold, choice));
  return part;
}

json lazy_section(const Source& from) {
  const LazyModel& model = from.models.lazy.value();
  const LazySettings& settings = from.choices.lazy;
  const calibrate::LazyChoice choice{settings.per_head, settings.fixed, settings.share};
  json section = calibrate::section_of(lazy_part(model, settings, choice));
  calibrate::SimLayerKvReport report;
  calibrate::add_lazy_report({model.masses, model.steps, model.shape, model.choices.keep},
                             settings.threshold, choice, {settings.length}, report);
  section.update(calibrate::report_json(std::move(report)));
  return section;
}

json pod_section(const Source& from) {
  const BlocksModel& model = from.models.blocks.value();
  const BlocksSettings& settings = from.choices.blocks;
  const BlockDecisions decisions = block_decisions(model, settings);
  json section = calibrate::section_of(calibrate::Pod{.proximal = settings.proximal,
                                                      .delta = settings.delta,
                                                      .per_query_head = settings.per_query_head,
                                                      .lowest = decisions.blocks});
  section["keys_dropped"] = decisions.point.dropped;
  section["samples"] = model.positions.size();
  return section;
}

json dynamic_section(const Source& from) {
  const auto& choices = from.choices;
  BudgetSettings settings = choices.budgets;
  settings.form = BudgetForm::exact;
  const BudgetDecisions decisions = budget_decisions(from.models.budgets.value(), settings);
  const calibrate::DynamicKv part{{choices.budget_counts.window, settings.budget,
                                   choices.budget_counts.kernel, choices.budget_counts.pooling},
                                  settings.r_max,
                                  decisions.all.budgets};
  json section = calibrate::section_of(part);
  std::size_t samples = 0;
  for (const auto& task : decisions.tasks) {
    if (!task.task.empty()) section["result"]["tasks"][task.task] = task.summary.budgets;
    samples += task.samples;
  }
  section["samples"] = samples;
  return section;
}

json lag_section(const Source& from) {
  const auto& found = section_in(from.documents, calibrate::method::kLagKv.name);
  if (found.is_null())
    fail(ErrorCode::usage,
         "LagKV's settings are chosen from a sweep: 'kvatlas calibrate lagkv' makes one");
  const SweepModel model = sweep_model(found);
  std::optional<std::size_t> chosen = sweep_view(model, from.choices.sweep).recommended;
  if (from.choices.lag_candidate >= 0)
    chosen = static_cast<std::size_t>(from.choices.lag_candidate);
  if (!chosen || *chosen >= model.candidates.size())
    fail(ErrorCode::usage, "no setting of LagKV's sweep saves as much as is wanted: choose one");
  const auto& candidate = model.candidates[*chosen];
  auto variant = calibrate::LagVariant::lag;
  for (const auto known : {calibrate::LagVariant::local, calibrate::LagVariant::l2})
    if (candidate.variant == calibrate::variant_word(known)) variant = known;
  return calibrate::section_of(
      calibrate::LagKv{model.sink, candidate.lag, candidate.ratio, variant});
}

json precision_section(const Source& from) {
  const PrecisionModel model =
      precision_model(section_in(from.documents, calibrate::method::kPrecision.name));
  const auto chosen = curve_point(model, from.choices.precision_point);
  if (from.choices.precision_point >= 0 && !chosen)
    fail(ErrorCode::usage, "the document has no such size of number formats: choose one");
  calibrate::Precision part = model.part;
  part.fixed = model.formats_of(chosen);
  return calibrate::section_of(part);
}

json headkv_section(const Source& from) {
  return calibrate::section_of(
      calibrate::part_of(calibrate::method::kHeadKv.name,
                         section_in(from.documents, calibrate::method::kHeadKv.name)));
}

/// A method whose section is only made from one that a document has.
template <const calibrate::Method& method>
bool is_in_documents(const profile::Reader&, std::span<const Document> documents) {
  return !section_in(documents, method.name).is_null();
}

/// How a method's section is made from the choices, and of what.
struct Maker {
  const calibrate::Method& method;
  bool (*possible)(const profile::Reader& profile, std::span<const Document> documents);
  json (*make)(const Source& from);
};
const Maker kMakers[] = {
    {calibrate::method::kSimLayerKv,
     [](const auto& profile, auto) {
       return profile.has(name::kDecodeMass) || profile.has(name::kMass);
     },
     lazy_section},
    {calibrate::method::kPod,
     [](const auto& profile, auto) { return profile.has(name::kDivergence); }, pod_section},
    {calibrate::method::kDynamicKv,
     [](const auto& profile, auto) { return profile.has(name::kCounts); }, dynamic_section},
    {calibrate::method::kHeadKv, is_in_documents<calibrate::method::kHeadKv>, headkv_section},
    {calibrate::method::kLagKv, is_in_documents<calibrate::method::kLagKv>, lag_section},
    {calibrate::method::kPrecision, is_in_documents<calibrate::method::kPrecision>,
     precision_section}};
static_assert(std::size(kMakers) == calibrate::kMethods.size());

/// As it is written: numbers have nine digits there.
json as_written(const json& value) { return json::parse(calibrate::canonical_json(value)); }

/// The same policy: settings and result.
bool same_policy(const json& a, const json& b) {
  return as_written(a.value("settings", json())) == as_written(b.value("settings", json())) &&
         as_written(a.value("result", json())) == as_written(b.value("result", json()));
}

}  // namespace

const json& section_in(std::span<const Document> documents, const std::string& name) {
  static const json none;
  for (const Document& document : documents) {
    const auto found = document.sections.find(name);
    if (found != document.sections.end()) return *found;
  }
  return none;
}

json section_alone_in(std::span<const Document> documents, const std::string& name) {
  for (const Document& document : documents) {
    const auto found = document.sections.find(name);
    if (found == document.sections.end()) continue;
    json section = *found;
    if (document.compose.size() > 1 && section.is_object()) section.erase("measured");
    return section;
  }
  return nullptr;
}

std::vector<std::string> possible_sections(const profile::Reader& profile,
                                           std::span<const Document> documents) {
  std::vector<std::string> possible;
  for (const Maker& maker : kMakers)
    if (maker.possible(profile, documents)) possible.emplace_back(maker.method.name);
  return possible;
}

Document choices_document(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          const Choices& choices, const MethodModels& models,
                          std::span<const Document> documents,
                          std::span<const std::string> sections) {
  if (sections.empty()) fail(ErrorCode::usage, "no policy is chosen to be saved");
  const Source source{models, choices, documents};
  Document document;
  document.model = calibrate::model_info(profile.header());
  document.provenance = calibrate::provenance_of(profile, positions);
  document.provenance.tool_version = KVATLAS_VERSION;
  for (const auto& section : sections) {
    const auto maker = std::find_if(std::begin(kMakers), std::end(kMakers),
                                    [&](const Maker& one) { return one.method.is(section); });
    if (maker == std::end(kMakers)) fail(ErrorCode::usage, "no policy is called ", quoted(section));
    json made = maker->make(source);
    const json known = section_alone_in(documents, section);
    document.sections[section] = known.is_object() && same_policy(known, made) ? known : made;
  }
  return document;
}

}  // namespace kvatlas::viewer
