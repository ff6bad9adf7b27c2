// SPDX-License-Identifier: Apache-2.0
// A document's section "precision" as calibration leaves it, with numbers that are known.
#pragma once

#include "calibrate/policy/policy.hpp"
#include "tests/support/measured.hpp"

namespace kvatlas::testing_support {

/// Of a model with four layers. The second of three sizes is the policy: q8_0 for the values, and
/// for the keys of layers 0 and 3; int4 for the other keys.
inline nlohmann::json precision_section() {
  using calibrate::KvFormat;
  using calibrate::KvFormats;
  using nlohmann::json;
  const auto formats = [](const std::vector<KvFormats>& layers) {
    calibrate::Precision part;
    part.fixed = layers;
    return calibrate::section_of(part);
  };
  const auto estimate = [](double mean) {
    return json{{"mean", mean}, {"low", mean - 0.05}, {"high", mean + 0.05}};
  };
  const auto point = [&](double size, double score, double kl, double expected,
                         const std::vector<KvFormats>& layers) {
    json out = {{"size", size},         {"score", score}, {"low", score - 0.05},
                {"high", score + 0.05}, {"kl", kl},       {"expected_kl", expected}};
    out.update(formats(layers).at("result"));
    return out;
  };
  const KvFormats small{KvFormat::int4, KvFormat::int4}, mixed{KvFormat::int4, KvFormat::q8_0},
      middle{KvFormat::q8_0, KvFormat::q8_0}, plain{};
  json section = formats({middle, mixed, mixed, middle});
  section["sensitivity"] = {
      {"formats", {"q8_0", "int4"}}, {"items", json::array()}, {"samples", 4}};
  for (int layer = 0; layer < 4; ++layer)
    for (const bool keys : {true, false}) {
      // Layer 0's keys cost most; halves are exact in binary.
      const double cost = (keys ? 0.5 : 0.125) / (1 << layer);
      section["sensitivity"]["items"].push_back(
          {{"layers", {layer}}, {"keys", keys}, {"values", !keys}, {"kl", {cost / 128, cost}}});
    }
  section["curve"] = {point(0.3125, 0.6, 2.5, 1.1, {small, small, small, small}),
                      point(0.4765625, 0.9, 0.4, 0.38, {middle, mixed, mixed, middle}),
                      point(0.765625, 0.95, 0.01, 0.008, {plain, middle, middle, plain})};
  section["full"] = estimate(0.95);
  section["tolerance"] = 0.06;
  section["size"] = 0.4765625;
  section["samples"] = 12;
  section["measured"] = {{"samples", 8},           {"score", estimate(0.9)},
                         {"full", estimate(0.95)}, {"loss", estimate(0.05)},
                         {"kl", estimate(0.5)},    {"kept_share", 0.4765625}};
  section["uniform"]["q8_0"] = measured_json(0.94, 0.53125);
  section["uniform"]["int4"] = measured_json(0.55, 0.3125);
  return section;
}

}  // namespace kvatlas::testing_support
