// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/read_evidence.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

/// The settings that an axis has rows for, the nearest to the wanted one first.
std::string nearest_first(const profile::AxisTable& table,
                          const std::vector<std::int64_t>& wanted) {
  std::vector<std::pair<std::int64_t, std::string>> rows;  // the distance, the label
  for (std::size_t row = 0; row < table.labels.size(); ++row) {
    std::int64_t distance = 0;
    for (std::size_t column = 0; column < wanted.size(); ++column)
      distance += std::abs(table.values[row * wanted.size() + column] - wanted[column]);
    rows.emplace_back(distance, table.labels[row]);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::string there = join(rows, "; ", [](const auto& row) { return row.second; });
  return there.empty() ? "none" : printable(there, 600) + " (the nearest first)";
}

std::int64_t budget_row(const profile::Reader& profile, std::int64_t budget) {
  const auto& table = profile::axis_of(profile.header(), "budget");
  if (const auto row = profile::row_of(table, {budget})) return *row;
  fail(ErrorCode::usage, "the profile has no counts for a budget of ", budget, ", but for ",
       nearest_first(table, {budget}), ": choose among them, or run 'kvatlas profile --budgets ",
       budget, "'");
}

}  // namespace

CacheShape cache_shape(const profile::Header& header) {
  if (header.n_layers < 1 || header.n_kv_heads < 1 || header.n_heads < 1 ||
      header.n_heads % header.n_kv_heads != 0)
    fail(ErrorCode::unreadable, "the profile's model has ", header.n_layers, " layers, ",
         header.n_heads, " heads and ", header.n_kv_heads, " KV heads");
  if (!header.window.empty() && std::ssize(header.window) != header.n_layers)
    fail(ErrorCode::unreadable, "the profile has windows of ", header.window.size(),
         " layers, and its model has ", header.n_layers);
  return cache_shape(model_info(header));
}

void require_captured(const profile::Reader& profile, const char* array, const char* part) {
  if (!profile.has(array))
    fail(ErrorCode::usage, "the profile lacks ", array, ", which 'kvatlas profile --capture ", part,
         "' takes");
}

std::vector<std::size_t> longer_than(const profile::Reader& profile,
                                     const std::vector<std::size_t>& positions,
                                     std::int64_t n_tokens) {
  std::vector<std::size_t> out;
  for (const auto position : positions)
    if (profile.samples()[position].n_tokens > n_tokens) out.push_back(position);
  return out;
}

std::int64_t proximity_row(const profile::Reader& profile, Proximity keep) {
  const auto& table = profile::axis_of(profile.header(), "proximity");
  if (const auto row = profile::row_of(table, {keep.initial, keep.recent})) return *row;
  fail(ErrorCode::usage, "the profile has no masses for initial=", keep.initial,
       ",recent=", keep.recent, ", but for ", nearest_first(table, {keep.initial, keep.recent}),
       ": choose among them, or run 'kvatlas profile --initial ", keep.initial, " --recent ",
       keep.recent, "'");
}

std::int64_t window_kind_row(const profile::Reader& profile, const WindowBudget& select) {
  const auto& table = profile::axis_of(profile.header(), "window_kind");
  const bool maximum = select.pooling == Pooling::maximum;
  if (const auto row = profile::row_of(table, {select.window, select.kernel, maximum})) return *row;
  const char* pooling = maximum ? "max" : "avg";
  fail(ErrorCode::usage, "the profile has no window scores for window=", select.window,
       ",kernel=", select.kernel, ",pooling=", pooling, ", but for ",
       nearest_first(table, {select.window, select.kernel, maximum}),
       ": choose among them, or run 'kvatlas profile --windows ", select.window, " --kernels ",
       select.kernel, " --poolings ", pooling, "'");
}

StoredRows read_proximity(const profile::Reader& profile, std::size_t position, const char* array,
                          Proximity keep, RowsOf rows) {
  const std::int64_t layers = cache_shape(profile.header()).layers;
  const std::int64_t heads = rows == RowsOf::heads ? profile.header().n_heads : 1;
  const auto sizes = rows == RowsOf::heads ? std::vector{layers, heads} : std::vector{layers};
  const auto values =
      profile::floats_of(profile, position, array, {proximity_row(profile, keep)}, sizes);
  return Eigen::Map<const StoredRows>(values.data(), layers * heads,
                                      std::ssize(values) / (layers * heads));
}

StoredRows read_attention(const profile::Reader& profile, std::size_t position, std::int64_t layer,
                          std::int64_t head) {
  const auto stored = profile.array(position, name::kRows, {layer, head});
  const std::int64_t n_tokens = profile.samples()[position].n_tokens;
  if (stored.shape.size() != 2 || stored.shape[1] != n_tokens || stored.shape[0] < 1 ||
      stored.shape[0] > n_tokens)
    fail(ErrorCode::unreadable, name::kRows, " has sizes ", list_str(stored.shape),
         " for a head, expected rows of ", n_tokens, " keys");
  const auto shares = profile::shares_of(stored, name::kRows);
  return Eigen::Map<const StoredRows>(shares.data(), stored.shape[0], n_tokens);
}

Masses read_kept_masses(const profile::Reader& profile, std::size_t position,
                        std::int64_t selection) {
  const CacheShape shape = cache_shape(profile.header());
  const std::int64_t layers = shape.layers, kv_heads = shape.kv_heads;
  const auto values = profile::floats_of(profile, position, name::kKeptMass, {selection}, {layers});
  if (std::ssize(values) != layers * kv_heads)
    fail(ErrorCode::unreadable, name::kKeptMass, " has ", values.size(),
         " values a selection, expected ", layers, " layers x ", kv_heads, " KV heads");
  Masses out;
  for (auto at = values.begin(); at != values.end(); at += kv_heads) {
    if (std::any_of(at, at + kv_heads, [](float mass) { return std::isnan(mass); })) return {};
    out.emplace_back(at, at + kv_heads);
  }
  return out;
}

std::vector<bool> read_kept_tokens(const profile::Reader& profile, std::size_t position,
                                   const std::string& selection, std::int64_t layer,
                                   std::int64_t kv_head) {
  const auto& labels = profile::axis_of(profile.header(), "selection").labels;
  const auto found = std::find(labels.begin(), labels.end(), selection);
  if (found == labels.end() || !profile.has(position, name::kKeptMask)) return {};
  const auto mask =
      profile.array(position, name::kKeptMask, {found - labels.begin(), layer, kv_head});
  const std::int64_t n_tokens = profile.samples()[position].n_tokens;
  if (mask.type != profile::Type::u8 || 8 * std::ssize(mask.bytes) < n_tokens)
    fail(ErrorCode::unreadable, name::kKeptMask, " has ", mask.bytes.size(), " bytes for ",
         n_tokens, " tokens");
  const auto bits = mask.values<std::uint8_t>();
  std::vector<bool> kept;
  for (std::int64_t token = 0; token < n_tokens; ++token)
    kept.push_back((bits[token / 8] >> (token % 8) & 1) != 0);
  return kept;
}

MassesOfSamples read_masses(const profile::Reader& profile,
                            const std::vector<std::size_t>& positions, const SimLayerKv& policy) {
  const CacheShape shape = cache_shape(profile.header());
  const bool prefill = policy.identify == SimLayerKv::Identify::prefill;
  const char* array = prefill ? name::kMass : name::kDecodeMass;
  require_captured(profile, array, "lazy");
  proximity_row(profile, policy.keep);  // is refused even if there are no samples
  MassesOfSamples out;
  for (const auto position : positions) {
    const auto masses = read_proximity(profile, position, array, policy.keep, RowsOf::heads);
    if (prefill && (policy.w_last < 1 || policy.w_last > masses.cols()))
      fail(ErrorCode::usage, "the profile has the masses of ", masses.cols(),
           " last prompt rows, not of ", policy.w_last, ": choose ", masses.cols(),
           " or less, or run 'kvatlas profile --last-rows ", policy.w_last, "'");
    if (out.add(kv_head_masses(values_of(masses), shape.layers, shape.heads, shape.kv_heads,
                               prefill ? policy.w_last : 1)))
      out.positions.push_back(position);
  }
  return out;
}

StepMasses read_steps(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                      Proximity keep) {
  StepMasses steps;
  if (!profile.has(name::kGeneratedMass)) return steps;
  for (const auto position : positions) {
    const auto masses =
        read_proximity(profile, position, name::kGeneratedMass, keep, RowsOf::layers);
    add_steps(steps, values_of(masses), masses.rows());
  }
  return steps;
}

SimilarityOfSamples read_similarity(const profile::Reader& profile,
                                    const std::vector<std::size_t>& positions) {
  require_captured(profile, name::kDivergence, "js");
  const std::int64_t layers = cache_shape(profile.header()).layers;
  const std::int64_t heads = profile.header().n_heads;
  SimilarityOfSamples out;
  std::vector<std::vector<float>> divergences;
  for (const auto position : positions) {
    auto values =
        profile::floats_of(profile, position, name::kDivergence, {}, {heads, layers, layers});
    if (std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) continue;
    divergences.push_back(std::move(values));
    out.positions.push_back(position);
  }
  if (!divergences.empty())
    static_cast<Similarity&>(out) = layer_similarity(divergences, heads, layers);
  return out;
}

GateSums read_gate_sums(const profile::Reader& profile, std::size_t position, Proximity keep) {
  require_captured(profile, name::kProximalLse, "lazy");
  const auto read = [&](const char* array) {
    return read_proximity(profile, position, array, keep, RowsOf::heads);
  };
  GateSums out{read(name::kProximalLse), read(name::kDistantLse),
               cache_shape(profile.header()).layers, profile.header().n_heads};
  if (out.proximal.size() != out.distant.size())
    fail(ErrorCode::unreadable, "the profile has ", out.proximal.size(), " proximal and ",
         out.distant.size(), " distant log-sum-exps of a sample");
  return out;
}

CountsOfSamples read_counts(const profile::Reader& profile,
                            const std::vector<std::size_t>& positions, const WindowBudget& select) {
  require_captured(profile, name::kCounts, "scores");
  CountsOfSamples out{select, {}, {}, {}};
  const std::int64_t kind = window_kind_row(profile, select);
  const std::int64_t budget = budget_row(profile, select.budget);
  for (const auto position : longer_than(profile, positions, select.window)) {
    auto counts =
        profile::window_counts(profile, position, {kind, budget, select.window, select.budget});
    if (!counts) continue;
    out.positions.push_back(position);
    out.before.push_back(profile.samples()[position].n_tokens - select.window);
    out.counts.push_back(std::move(*counts));
  }
  return out;
}

}  // namespace kvatlas::calibrate
