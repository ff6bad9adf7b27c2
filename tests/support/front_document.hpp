// SPDX-License-Identifier: Apache-2.0
// A document as a search leaves it: three points of a front, the first of them chosen.
#pragma once

#include "calibrate/policy/policy.hpp"
#include "tests/support/measured.hpp"

namespace kvatlas::testing_support {

/// Of a model with four layers and two KV heads.
inline calibrate::Document front_document(const calibrate::ModelInfo& model) {
  using nlohmann::json;
  const auto estimate = [](double mean) {
    return json{{"mean", mean}, {"low", mean - 0.05}, {"high", mean + 0.05}};
  };
  calibrate::SimLayerKv lazy;
  lazy.keep = {4, 64};
  lazy.threshold = 0.7;
  lazy.fixed = {{{0}, {1}, {0}, {1}}};
  calibrate::DynamicKv dynamic;
  dynamic.select.budget = 64;
  dynamic.fixed = {{80, 60, 40, 12}};
  const calibrate::LagKv lag{16, 64, "1/4", calibrate::LagVariant::lag};
  const auto point = [&](const char* family, const char* policy, double kept, double score,
                         const json& sections, const std::vector<std::string>& compose) {
    return json{{"family", family},
                {"policy", policy},
                {"bytes", 1000 * kept},
                {"kept_share", kept},
                {"score", estimate(score)},
                {"loss", estimate(1 - score)},
                {"samples", 12},
                {"texts", 12},
                {"chosen", false},
                {"sections", sections},
                {"compose", compose},
                {"kv_bits", 16}};
  };
  calibrate::Document document;
  document.model = model;
  document.sections["simlayerkv"] = calibrate::section_of(lazy);
  document.pareto = {
      point("simlayerkv", "simlayerkv:threshold=0.7", 0.6, 0.95,
            {{"simlayerkv", calibrate::section_of(lazy)}}, {}),
      point("simlayerkv+dynamickv", "simlayerkv:threshold=0.7+dynamickv:budget=64", 0.3, 0.8,
            {{"simlayerkv", calibrate::section_of(lazy)},
             {"dynamickv", calibrate::section_of(dynamic)}},
            {"simlayerkv", "dynamickv"}),
      point("lagkv", "lagkv:lag=64", 0.4, 0.9, {{"lagkv", calibrate::section_of(lag)}}, {})};
  document.pareto[0]["chosen"] = true;
  document.pareto[2]["measured"] = measured_json(0.88, 0.4);
  document.search = {
      {"most_bytes", 700}, {"max_loss_points", 10}, {"full_score", 1.0}, {"met", true}};
  return document;
}

}  // namespace kvatlas::testing_support
