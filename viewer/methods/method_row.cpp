// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/method_row.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/bytes.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {

const std::vector<MethodRow>& method_rows() {
  static const std::vector<MethodRow> rows = {simlayerkv_row(), pod_row(),   dynamickv_row(),
                                              headkv_row(),     lagkv_row(), precision_row()};
  return rows;
}

const MethodRow* find_row(std::string_view section) {
  for (const MethodRow& row : method_rows())
    if (row.method->is(section)) return &row;
  return nullptr;
}

void set_kept(double share, const calibrate::CacheShape& shape, std::int64_t length,
              PolicyCard& card) {
  const double full = shape.full_bytes(length);
  card.kept_share = share;
  card.kept_bytes = share * full;
  card.kept =
      str(percent_text(share), " of the cache kept: ", bytes_str(std::llround(card.kept_bytes)),
          " of ", bytes_str(std::llround(full)), " at ", length, " tokens");
}

void set_kept(const calibrate::Policy& policy, const calibrate::CacheShape& shape,
              std::int64_t length, PolicyCard& card) {
  calibrate::CacheLoad load;
  load.shape = shape;
  load.prompt = std::max<std::int64_t>(1, length);
  const double kept = calibrate::cache_bytes(policy, load).total();
  set_kept(kept / shape.full_bytes(load.prompt), shape, length, card);
}

Axis share_axis() { return {"", "", {{0, "0"}, {1, "1"}}, {{0, 1}}}; }

bool is_near(double a, double b) { return std::abs(a - b) < 1e-9; }

kernels::Proximity in_grid(const profile::Header& header, kernels::Proximity wanted) {
  const auto& grid = profile::axis_of(header, "proximity");
  if (grid.columns.size() != 2 || grid.values.size() < 2 ||
      profile::row_of(grid, {wanted.initial, wanted.recent}))
    return wanted;
  return {grid.values[0], grid.values[1]};
}

std::int64_t in_grid(const profile::Header& header, std::int64_t wanted, std::int64_t window) {
  const auto& grid = profile::axis_of(header, "budget");
  if (profile::row_of(grid, {wanted})) return wanted;
  const auto first = std::find_if(grid.values.begin(), grid.values.end(),
                                  [&](std::int64_t budget) { return budget > window; });
  return first == grid.values.end() ? wanted : *first;
}

void add_tried(const calibrate::Method& method, ComparedPolicy policy, ComparisonModel& model) {
  if (std::isnan(policy.kept_share) || std::isnan(policy.score.mean)) return;
  policy.needs_training = method.needs_training;
  policy.prompts = "the samples of the choice";
  model.searched.push_back(std::move(policy));
}

void add_tried(const calibrate::Method& method, const calibrate::CurvePoint& point,
               double kept_share, ComparisonModel& model) {
  ComparedPolicy policy;
  policy.name = policy.method = method.title;
  policy.section = method.name;
  policy.value = point.setting;
  policy.setting = str(method.setting, " ", str(point.setting));
  policy.kept_share = kept_share;
  policy.score = point.score;
  add_tried(method, std::move(policy), model);
}

void set_budgets(std::vector<double> tokens, ComparisonModel::Strip& strip) {
  strip.word = "tokens";
  strip.unit = "tokens, as a share of the most";
  strip.values = std::move(tokens);
  const double most =
      strip.values.empty() ? 0 : *std::max_element(strip.values.begin(), strip.values.end());
  for (double& value : strip.values) value = most > 0 ? value / most : 0;
}

}  // namespace kvatlas::viewer
