// SPDX-License-Identifier: Apache-2.0
// A profile of a few layers whose statistics are known, for tests of calibration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "analyzer/profile/statistics.hpp"
#include "calibrate/rules/rules.hpp"
#include "tests/support/profile_header.hpp"

namespace kvatlas::calibrate::testing_profile {

inline constexpr std::int64_t kLayers = 4, kHeads = 4, kKvHeads = 2, kTokens = 300;
/// Layer masses, the same in all heads; samples differ from them by `mass_noise`.
inline constexpr double kMasses[kLayers] = {0.3, 0.9, 0.6, 0.8};
inline double mass_noise(std::int64_t sample) { return 0.001 * static_cast<double>(sample); }
/// Where the highest scores lie.
inline constexpr double kCountShares[kLayers] = {4, 3, 2, 1};

struct Shape {
  std::int64_t samples = 12;
  std::int64_t short_samples = 0;  // of 60 tokens, behind the others
  // Samples of one task, among so many that follow each other, are made of one text; 0: each is of
  // its own.
  std::int64_t text_every = 0;
  bool lazy = true, js = true, scores = true, kept = true;
  bool answers = true;
  std::int64_t head_dim = 8;
  bool heatmap = false;            // masses of 5 rows along the prompt
  bool latent = false;             // all heads of a layer share one vector a token
  bool values = false;             // of layers 1 and 2 a cosine of 0.625, of others 0.25
  bool agreement = false;          // 0.5 with 16 proximal tokens, 1 with 32
  std::int64_t raised_layer = -1;  // whose masses are greater by `raised_by`
  double raised_by = 0;
  std::int32_t first_token = 0;        // added to every token
  std::int64_t kept_heads = kKvHeads;  // of "kept/mass"; others contradict the model
  // Samples whose statistics say the opposite: other layers are lazy, alike, and rich in scores.
  std::vector<std::size_t> odd = {};
  bool is_odd(std::int64_t sample) const {
    return std::find(odd.begin(), odd.end(), static_cast<std::size_t>(sample)) != odd.end();
  }
};

inline profile::CaptureSettings settings_of(const Shape& shape) {
  profile::CaptureSettings settings;
  settings.lazy = shape.lazy;
  settings.js = shape.js;
  settings.scores = shape.scores;
  settings.kept = shape.kept;
  settings.heatmap = shape.heatmap;
  settings.agreement = shape.agreement;
  settings.values = shape.values;
  settings.agreement_counts = {16, 32};
  settings.norms = settings.next = settings.columns = settings.maps = false;
  settings.proximities = {{4, 64}, {16, 112}};
  settings.mass_rows = 8;
  settings.budgets = {32, 64};
  settings.window_kinds = {{}};
  settings.lags = {32, 64};
  settings.ratios = {"1/2", "1/4"};
  settings.generated = 3;
  return settings;
}

inline profile::Array filled(std::vector<std::int64_t> sizes, float value) {
  profile::Array array(profile::Type::f32, std::move(sizes));
  for (float& element : array.values<float>()) element = value;
  return array;
}

/// Every layer's heads have the layer's mass; the second proximity has 0.05 more.
inline void add_masses(profile::Sample& sample, const profile::CaptureSettings& settings,
                       const Shape& shape) {
  namespace name = profile::name;
  const auto P = static_cast<std::int64_t>(settings.proximities.size());
  auto& decode = sample.arrays[name::kDecodeMass] = filled({P, kLayers, kHeads}, 0);
  auto& rows = sample.arrays[name::kMass] = filled({P, kLayers, kHeads, settings.mass_rows}, 0);
  auto& steps = sample.arrays[name::kGeneratedMass] = filled({P, kLayers, settings.generated}, 0);
  std::size_t head = 0, row = 0, step = 0;
  for (std::int64_t p = 0; p < P; ++p)
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const double mass = shape.is_odd(sample.index) ? 1 - kMasses[layer] : kMasses[layer];
      const auto value = static_cast<float>(mass + mass_noise(sample.index) +
                                            (layer == shape.raised_layer ? shape.raised_by : 0) +
                                            0.05 * static_cast<double>(p));
      for (int h = 0; h < kHeads; ++h) {
        decode.values<float>()[head++] = value;
        // Layer 0 counts as lazy by its last two prompt rows.
        for (std::int64_t r = 0; r < settings.mass_rows; ++r)
          rows.values<float>()[row++] = mass == kMasses[0] && r >= 6 ? 0.99f : value;
      }
      for (std::int64_t s = 0; s < settings.generated; ++s)  // the last one is always low
        steps.values<float>()[step++] = s == 2 ? 0.01f : value;
    }
  sample.arrays[name::kProximalLse] = filled({P, kLayers, kHeads, settings.mass_rows}, 0);
  sample.arrays[name::kDistantLse] = filled({P, kLayers, kHeads, settings.mass_rows}, 0);
}

/// The second proximity has 0.05 more, and the last row of every layer 0.
inline void add_row_masses(profile::Sample& sample, std::int64_t n_tokens) {
  constexpr std::int64_t kRows = 5;
  profile::Array positions(profile::Type::i32, {kRows});
  for (std::int64_t row = 0; row < kRows; ++row)
    positions.values<std::int32_t>()[row] =
        static_cast<std::int32_t>((n_tokens - 1) * row / (kRows - 1));
  auto& masses = sample.arrays[profile::name::kRowMass] = filled({2, kLayers, kRows}, 0);
  std::size_t at = 0;
  for (const double more : {0.0, 0.05})
    for (const double mass : kMasses)
      for (std::int64_t row = 0; row < kRows; ++row)
        masses.values<float>()[at++] = row + 1 < kRows ? static_cast<float>(mass + more) : 0.0f;
  sample.arrays[profile::name::kRowPositions] = positions;
}

/// Layers 1 and 2 resemble each other by 0.875, all others by 0.2.
inline void add_divergences(profile::Sample& sample, bool odd) {
  auto& array = sample.arrays[profile::name::kDivergence] =
      filled({kHeads, kLayers, kLayers}, 0.8f);
  for (int head = 0; head < kHeads; ++head)
    for (int a = 0; a < kLayers; ++a)
      for (int b = 0; b < kLayers; ++b) {
        const bool alike = odd ? a / 2 == b / 2 : (a == 1 || a == 2) && (b == 1 || b == 2);
        if (a == b || alike)
          array.values<float>()[(head * kLayers + a) * kLayers + b] = a == b ? 0.0f : 0.125f;
      }
}

inline void add_values(profile::Sample& sample) {
  auto& array = sample.arrays[profile::name::kValueCosine] =
      filled({kKvHeads, kLayers, kLayers}, 0.25f);
  for (std::int64_t g = 0; g < kKvHeads; ++g)
    for (std::int64_t a = 0; a < kLayers; ++a)
      for (std::int64_t b = 0; b < kLayers; ++b)
        if (a == b || (a + b == 3 && a * b == 2))
          array.values<float>()[(g * kLayers + a) * kLayers + b] = a == b ? 1.0f : 0.625f;
}

inline void add_counts(profile::Sample& sample, const profile::CaptureSettings& settings,
                       std::int64_t n_tokens, bool odd) {
  std::vector<double> shares(std::begin(kCountShares), std::end(kCountShares));
  if (odd) std::reverse(shares.begin(), shares.end());
  const auto B = static_cast<std::int64_t>(settings.budgets.size());
  profile::Array counts(profile::Type::i64, {1, B, kLayers});
  std::size_t at = 0;
  for (const auto budget : settings.budgets)
    for (const auto count :
         round_to_total(shares, std::min(budget - 16, n_tokens - 16) * kHeads * kLayers))
      counts.values<std::int64_t>()[at++] = count;
  sample.arrays[profile::name::kCounts] = counts;
  profile::Array retention(profile::Type::i64, {1, kLayers});
  for (std::size_t l = 0; l < kLayers; ++l)
    retention.values<std::int64_t>()[l] = static_cast<std::int64_t>(kCountShares[l] * 10);
  sample.arrays[profile::name::kRetention] = retention;
}

/// LagKV keeps a share that falls with the compression: 0.9 of lag 32, 0.8 of lag 64, 0.1 less at
/// 1/4.
inline void add_kept(profile::Sample& sample, const profile::CaptureSettings& settings,
                     std::int64_t heads) {
  const auto of_selection = static_cast<std::size_t>(kLayers * heads);
  const auto selections = settings.selections();
  auto& mass = sample.arrays[profile::name::kKeptMass] =
      filled({static_cast<std::int64_t>(selections.size()), kLayers, heads}, 0.5f);
  for (std::size_t s = 0; s < selections.size(); ++s)
    if (selections[s].method == profile::KeepRule::Method::lagkv)
      for (std::size_t i = 0; i < of_selection; ++i)
        mass.values<float>()[s * of_selection + i] =
            (selections[s].lag == 32 ? 0.9f : 0.8f) -
            (selections[s].keep * 4 == selections[s].lag ? 0.1f : 0.0f);
}

inline void write_profile(const std::filesystem::path& path, const Shape& shape = {}) {
  const auto settings = settings_of(shape);
  auto header = testing_support::header_of({kLayers, kHeads, kKvHeads, shape.head_dim}, settings,
                                           shape.samples + shape.short_samples);
  header.context_length = 2048;
  if (shape.latent) {
    header.latent_rank = 24;
    header.cached_values.assign(static_cast<std::size_t>(kLayers), 32);
  }
  for (auto& array : header.arrays)
    if (array.name == profile::name::kKeptMass) array.sizes.back() = shape.kept_heads;
  profile::Writer writer(path, header, {});
  for (std::int64_t i = 0; i < header.planned_samples; ++i) {
    profile::Sample sample;
    sample.index = i;
    sample.id = "sample " + std::to_string(i);
    sample.task = i % 3 == 0 ? "needle" : "passkey:digits=4";
    if (shape.text_every > 0)
      sample.group = sample.task + "/" + std::to_string(i / shape.text_every);
    const std::int64_t n = i < shape.samples ? kTokens : 60;
    sample.tokens.assign(static_cast<std::size_t>(n),
                         static_cast<std::int32_t>(i) + shape.first_token);
    if (shape.answers) sample.answers = {"1234"};
    if (shape.lazy) add_masses(sample, settings, shape);
    if (shape.heatmap) add_row_masses(sample, n);
    if (shape.js) add_divergences(sample, shape.is_odd(i));
    if (shape.values) add_values(sample);
    if (shape.scores) add_counts(sample, settings, n, shape.is_odd(i));
    if (shape.kept) add_kept(sample, settings, shape.kept_heads);
    if (shape.agreement) {
      auto& shares = sample.arrays[profile::name::kAgreement] = filled({2}, 1);
      shares.values<float>()[0] = 0.5f;
    }
    writer.add(sample);
  }
  writer.finish();
}

}  // namespace kvatlas::calibrate::testing_profile
