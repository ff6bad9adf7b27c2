// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/precision.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace precision_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kPrecision;

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
    const auto bits = [&](calibrate::KvFormat format, calibrate::KvSide side) {
      return 8 * calibrate::bytes_of_row(format, side, shape.head_dim) /
             static_cast<double>(shape.head_dim);
    };
    keys.bars.push_back(
        {x, bits((*part.fixed)[l].keys, calibrate::KvSide::keys), std::string(of_keys.word)});
    values.bars.push_back(
        {x, bits((*part.fixed)[l].values, calibrate::KvSide::values), std::string(of_values.word)});
    card.chart.table.rows.push_back({x, keys.bars.back().label, values.bars.back().label});
  }
  card.chart.y = {"", "", {{0, "0"}, {4, "4"}, {8, "8"}, {16, "16"}}, {{0, 16}}};
  card.chart.bars = {std::move(keys), std::move(values)};
}

void read(const profile::Reader& profile, std::span<const Document> documents, Evidence& evidence) {
  evidence.precision = read_section(
      kMethod, profile, documents,
      "What fewer bits cost is measured on the model: 'kvatlas calibrate precision' makes a "
      "document to open here",
      precision_model);
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.precision, card, [&](const PrecisionModel& model) {
    show_precision(model, choices, evidence.shape, card);
  });
}

bool is_present(const calibrate::Part&, const Evidence& evidence, const Choices& choices) {
  if (!evidence.precision.model) return false;
  const auto chosen = curve_point(*evidence.precision.model, choices.precision_point);
  return !chosen || chosen == evidence.precision.model->calibrated;
}

constexpr auto can_be_saved = is_in_documents<kMethod>;

json section(const Source& from) {
  const PrecisionModel model = precision_model(section_in(from.documents, kMethod.name));
  const auto chosen = curve_point(model, from.choices.precision_point);
  if (from.choices.precision_point >= 0 && !chosen)
    fail(ErrorCode::usage, "the document has no such size of number formats: choose one");
  calibrate::Precision part = model.part;
  part.fixed = model.formats_of(chosen);
  return calibrate::section_of(part);
}

void take(const calibrate::Part*, const profile::Header&, Choices&) {}

void add_searched(const json& section, ComparisonModel& model) {
  if (!section.contains("curve")) return;
  const PrecisionModel precision = precision_model(section);
  for (std::size_t i = 0; i < precision.curve.size(); ++i) {
    const auto& point = precision.curve[i];
    ComparedPolicy policy;
    policy.method = policy.name = kMethod.title;
    policy.section = kMethod.name;
    policy.setting = "size " + percent_text(point.size);
    policy.candidate = static_cast<int>(i);
    policy.kept_share = point.size;
    policy.score = point.score;
    add_tried(kMethod, std::move(policy), model);
  }
  for (const auto& one : precision.uniform) {
    ComparedPolicy policy;
    policy.method = policy.name = "One format in all layers";
    policy.setting = calibrate::facts_of(one.format).word;
    add_policy(std::move(policy), one.measured, model);
  }
}

void choose(const ComparedPolicy& policy, Choices& choices) {
  choices.precision_point = policy.candidate;
}

void strip(const calibrate::Part& part, const json&, std::size_t, ComparisonModel::Strip& strip) {
  // What a head's own scales add is small: bits of the most common size of heads.
  constexpr std::int64_t kHead = 128;
  strip.word = "bytes";
  strip.unit = "bytes, as a share of those at 16 bits";
  for (const auto& layer : std::get<calibrate::Precision>(part).fixed.value_or(LayerFormats{}))
    strip.values.push_back(
        (calibrate::bytes_of_row(layer.keys, calibrate::KvSide::keys, kHead) +
         calibrate::bytes_of_row(layer.values, calibrate::KvSide::values, kHead)) /
        static_cast<double>(4 * kHead));
}

}  // namespace
}  // namespace precision_method

MethodRow precision_row() {
  using namespace precision_method;
  return {&kMethod, "precision", read,         show,   is_present, can_be_saved,
          section,  take,        add_searched, choose, strip};
}

}  // namespace kvatlas::viewer
