// SPDX-License-Identifier: Apache-2.0
// HeadKV's head scores are an object of "layer-head" -> list of numbers, whose mean is the score.
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/str.hpp"
#include "export/import_impl.hpp"

namespace kvatlas::importing {
namespace {

using nlohmann::json;

struct Place {
  std::size_t layer = 0, head = 0;
};

Place place_of(const std::string& key) {
  Place place;
  const char* const end = key.data() + key.size();
  const auto layer = std::from_chars(key.data(), end, place.layer);
  const bool dash = layer.ec == std::errc() && layer.ptr != end && *layer.ptr == '-';
  const auto head = std::from_chars(dash ? layer.ptr + 1 : end, end, place.head);
  if (!dash || head.ec != std::errc() || head.ptr != end)
    fail(ErrorCode::unreadable, "found the key ", quoted(key, 40),
         ", expected LAYER-HEAD as in \"0-15\"");
  return place;
}

double mean_of(const std::string& key, const json& list) {
  double sum = 0;
  bool fits = list.is_array() && !list.empty();
  for (std::size_t i = 0; fits && i < list.size(); ++i) {
    fits = list[i].is_number();
    if (fits) sum += list[i].get<double>();
  }
  const double mean = fits ? sum / static_cast<double>(list.size()) : 0;
  if (!fits || !std::isfinite(mean))
    fail(ErrorCode::unreadable, quoted(key, 40), ": expected a list of numbers");
  return mean;
}

/// [layer][query head]
HeadNumbers scores_of(const json& object) {
  if (!object.is_object() || object.empty())
    fail(ErrorCode::unreadable,
         "expected an object of heads, as in {\"0-0\": [0.5], \"0-1\": [1]}");
  std::size_t layers = 0, heads = 0;
  for (const auto& [key, list] : object.items()) {
    const auto place = place_of(key);
    // Layers and heads are numbered from 0, so none reaches the count of the entries. This check
    // also keeps the sums below from overflowing.
    if (place.layer >= object.size() || place.head >= object.size())
      fail(ErrorCode::unreadable, "found the key ", quoted(key, 40), " among ", object.size(),
           " heads: some are missing");
    layers = std::max(layers, place.layer + 1);
    heads = std::max(heads, place.head + 1);
  }
  check_shape(layers, heads);
  if (layers * heads != object.size())
    fail(ErrorCode::unreadable, "found ", object.size(), " heads, expected ", layers * heads,
         " for ", layers, " layers of ", heads);
  HeadNumbers scores(layers, std::vector<double>(heads, std::nan("")));
  for (const auto& [key, list] : object.items()) {
    const auto place = place_of(key);
    double& score = scores[place.layer][place.head];
    if (!std::isnan(score))
      fail(ErrorCode::unreadable, "the head of ", quoted(key, 40), " is named twice");
    score = mean_of(key, list);
  }
  return scores;
}

}  // namespace

calibrate::Document import_headkv(std::string_view text, const ImportRequest& request) {
  if (!request.share && !request.threshold)
    fail(ErrorCode::usage,
         "the file has numbers, and which heads become lazy is yours to say: "
         "give --share, the share of KV heads that stay full, or --threshold");
  const auto scores = scores_of(parse_json(text, kDeepestPattern));
  const auto known = completed_model(request, static_cast<std::int64_t>(scores.size()),
                                     static_cast<std::int64_t>(scores.front().size()), 0);
  const auto group = static_cast<std::size_t>(known.heads / known.kv_heads);
  HeadNumbers means;
  for (const auto& row : scores) {
    auto& out = means.emplace_back(static_cast<std::size_t>(known.kv_heads), 0.0);
    for (std::size_t head = 0; head < row.size(); ++head)
      out[head / group] += row[head] / static_cast<double>(group);
  }
  const auto all = static_cast<double>(known.layers * known.kv_heads);
  const auto lazy =
      request.threshold
          ? below(means, *request.threshold)
          : lowest(means, static_cast<std::size_t>(std::llround(all * (1 - *request.share))));
  return document_of(request, known, lazy, {});
}

}  // namespace kvatlas::importing
