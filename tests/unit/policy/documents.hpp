// SPDX-License-Identifier: Apache-2.0
// Policy documents for tests: a full one, and random ones.
#pragma once

#include <string>

#include "base/str.hpp"
#include "calibrate/policy/policy.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {

/// Every section, with what a calibration would report.
inline Document full_document() {
  Document document;
  document.model = {"Tiny", "llama", "0123456789abcdef", 4, 4, 2, 8};
  document.provenance = {
      "fedcba9876543210", 6, {128, 512}, {"needle", "passkey"}, {}, {}, 7, "0.1.0"};
  SimLayerKv lazy;
  lazy.threshold = 0.7;
  lazy.fixed = LazyHeads{{0}, {1}, {1}, {0}};
  document.sections["simlayerkv"] = section_of(lazy);
  document.sections["simlayerkv"]["curve"] = {{{"threshold", 0.7}, {"score", 0.9875}}};
  document.sections["simlayerkv"]["savings"] = {{{"length", 1024}, {"layer_ratio", 2.0}}};
  Pod pod;
  pod.lowest = {{0, 0, 2, 2}, {0, 1, 1, 1}, {0, 1, 2, 3}, {0, 0, 0, 0}};
  document.sections["pod"] = section_of(pod);
  DynamicKv budgets;
  budgets.fixed = {100, 120, 80, 148};
  document.sections["dynamickv"] = section_of(budgets);
  document.sections["dynamickv"]["result"]["tasks"]["needle"] = {90, 130, 80, 148};
  HeadKv heads;
  heads.fixed = HeadBudgets{{100, 20}, {0, 300}, {112, 112}, {5, 247}};
  document.sections["headkv"] = section_of(heads);
  document.sections["lagkv"] = section_of(LagKv{});
  using enum KvFormat;
  Precision formats;
  formats.fixed = {{fp8, f16}, {q8_0, q4_0}, {int4, int4}, {f16, int2}};
  document.sections["precision"] = section_of(formats);
  document.sections["baseline"] = section_of(SnapKv{});
  document.sections["heads"] = {
      {"settings", {{"initial", 64}, {"recent", 256}}},
      {"result", {{"lazy_heads", {{true, false}, {false, false}, {true, true}, {false, true}}}}}};
  document.compose = {"lagkv", "simlayerkv"};
  document.kv_bits = 4;
  document.runtime = "vllm";
  document.pareto = {{{"policy", "simlayerkv"}, {"score", 1.0 / 3}}};
  document.compared = {{{"policy", "tova:budget=8"}, {"measured", {{"kept_share", 0.5}}}}};
  return document;
}

inline Document random_document(std::uint64_t seed) {
  testing_support::Random random(seed);
  const auto coin = [&] { return random.integer(0, 1) == 1; };
  Document document;
  ModelInfo& model = document.model;
  model = {"m\"\\\n\xc3\xa9", "", "", random.integer(1, 20), 0, random.integer(1, 4), 64};
  model.heads = model.kv_heads * random.integer(1, 3);
  document.provenance.seed = static_cast<std::uint64_t>(random.integer(0, INT64_MAX)) * 2;
  const auto layers = static_cast<std::size_t>(model.layers);
  if (coin()) {
    SimLayerKv part;
    part.threshold = random.uniform();
    part.per_head = coin();
    if (coin()) {
      part.fixed.emplace();
      for (std::size_t l = 0; l < layers; ++l) {
        auto& row = part.fixed->emplace_back(coin() ? 1 : static_cast<std::size_t>(model.kv_heads));
        for (auto& lazy : row) lazy = coin();
      }
    }
    document.sections["simlayerkv"] = section_of(part);
  }
  if (coin()) {
    Pod part;
    part.delta = random.uniform();
    for (std::int64_t h = 0; h < model.heads; ++h) {
      auto& row = part.lowest.emplace_back();
      for (std::int64_t l = 0; l < model.layers; ++l)
        row.push_back(l == 0 || coin() ? l : row.back());
    }
    document.sections["pod"] = section_of(part);
  }
  if (coin()) {
    DynamicKv part;
    part.select = {random.integer(1, 64), random.integer(65, 4096), 2 * random.integer(0, 9) + 1,
                   coin() ? Pooling::average : Pooling::maximum};
    part.fixed.emplace();
    for (std::size_t l = 0; l < layers; ++l) part.fixed->push_back(random.integer(0, 1 << 20));
    document.sections["dynamickv"] = section_of(part);
  }
  if (coin()) {
    HeadKv part;
    part.select.budget = random.integer(17, 4096);
    part.safeguard = random.uniform();
    part.fixed.emplace();
    for (std::size_t l = 0; l < layers; ++l)
      for (auto& row = part.fixed->emplace_back(); std::ssize(row) < model.kv_heads;)
        row.push_back(random.integer(0, 1 << 20));
    document.sections["headkv"] = section_of(part);
  }
  LagKv lag;
  lag.lag = random.integer(2, 2048);
  lag.ratio = str("1/", random.integer(1, 9));
  lag.variant = static_cast<LagVariant>(random.integer(0, 2));
  document.sections["lagkv"] = section_of(lag);
  document.kv_bits = coin() ? 16 : 2;
  if (document.sections.contains("simlayerkv") && coin())
    document.compose = {"simlayerkv", "lagkv"};
  return document;
}

}  // namespace kvatlas::calibrate
