// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/pair_rows_model.hpp"

#include <algorithm>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/rules/read_evidence.hpp"

namespace kvatlas::viewer {
namespace {

namespace name = profile::name;

}  // namespace

std::size_t sample_with_rows(const profile::Reader& profile, std::size_t wanted,
                             const std::vector<std::size_t>& positions) {
  const auto has = [&](std::size_t position) {
    return position < profile.samples().size() && profile.has(position, name::kRows);
  };
  if (has(wanted)) return wanted;
  const auto found = std::find_if(positions.begin(), positions.end(), has);
  if (found == positions.end())
    fail(ErrorCode::usage,
         "no sample chosen has stored rows of attention; 'kvatlas profile --map-samples N' stores "
         "those of the first N samples");
  return *found;
}

std::int64_t deciding_head(const BlocksModel& model, bool per_query_head, std::int64_t group,
                           std::int64_t layer_a, std::int64_t layer_b) {
  if (per_query_head) return group;
  const std::int64_t size = model.similarity.heads / model.of_kv_heads.heads;
  std::int64_t least = group * size;
  for (std::int64_t head = least + 1; head < (group + 1) * size; ++head)
    if (model.similarity.at(head, layer_a, layer_b) < model.similarity.at(least, layer_a, layer_b))
      least = head;
  return least;
}

Chart pair_rows_chart(const profile::Reader& profile, std::size_t position, std::int64_t head,
                      std::int64_t layer_a, std::int64_t layer_b) {
  const auto of_a = calibrate::read_attention(profile, position, layer_a, head);
  const auto of_b = calibrate::read_attention(profile, position, layer_b, head);
  const Eigen::ArrayXd a = of_a.cast<double>().colwise().mean().transpose();
  const Eigen::ArrayXd b = of_b.cast<double>().colwise().mean().transpose();
  Chart chart;
  chart.title = str("Head ", head, ": attention of layers ", layer_a, " and ", layer_b);
  chart.notes.push_back(str("mean of the last ", of_a.rows(), " prompt rows of ",
                            profile.samples()[position].id,
                            "; the similarity is the mean over all samples"));
  chart.x = {"key", "token", {}, {{0, static_cast<double>(a.size())}}};
  chart.y = {"attention", "share", {}, {}, true};
  chart.table.columns = {
      {"key"}, {str("layer ", layer_a), "share"}, {str("layer ", layer_b), "share"}};
  Line first{str("layer ", layer_a), {}}, second{str("layer ", layer_b), {}};
  // A logarithmic axis has no zero.
  const auto shown = [](double share) { return share > 0 ? share : kNoNumber; };
  for (std::int64_t key = 0; key < a.size(); ++key) {
    const auto x = static_cast<double>(key);
    first.points.push_back({x, shown(a(key))});
    second.points.push_back({x, shown(b(key))});
    chart.table.rows.push_back({x, a(key), b(key)});
  }
  chart.lines = {std::move(first), std::move(second)};
  return chart;
}

}  // namespace kvatlas::viewer
