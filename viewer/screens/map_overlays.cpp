// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_overlays.hpp"

#include <algorithm>
#include <variant>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {

namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> kept_runs(const std::vector<bool>& kept) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (std::int64_t token = 0; token < std::ssize(kept); ++token) {
    if (!kept[token]) continue;
    if (!runs.empty() && runs.back().second == token)
      ++runs.back().second;
    else
      runs.emplace_back(token, token + 1);
  }
  return runs;
}

}  // namespace

std::vector<std::string> selection_labels(const profile::Header& header) {
  return profile::axis_of(header, "selection").labels;
}

MapOverlays::MapOverlays(Session& session, QObject* parent) : QObject(parent), session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    kept_by_ = -1;
    kept_.clear();
    emit changed();
  });
  connect(&session_, &Session::choices_changed, this, &MapOverlays::changed);
  connect(&session_.evidence(), &EvidenceCache::layers_changed, this, &MapOverlays::changed);
}

void MapOverlays::set_window(bool shown) {
  window_ = shown;
  emit changed();
}

void MapOverlays::set_partitions(bool shown) {
  partitions_ = shown;
  emit changed();
}

void MapOverlays::set_token_texts(bool shown) {
  token_texts_ = shown;
  emit changed();
}

void MapOverlays::set_kept_by(int selection) {
  kept_by_ = selection;
  read_kept();
}

KeptLane MapOverlays::window_lane(const Selection& selection, std::int64_t n_tokens) const {
  const auto& keep = session_.choices().lazy_arrays.keep;
  const auto lazy = session_.evidence().layer(selection.layer).lazy;
  KeptLane lane;
  lane.label = !lazy ? "if lazy" : *lazy ? "SimLayerKV lazy" : "SimLayerKV full";
  if (lazy && !*lazy)
    lane.kept = {{0, n_tokens}};
  else
    lane.kept = {{0, std::min(keep.initial, n_tokens)},
                 {std::max(keep.initial, n_tokens - keep.recent), n_tokens}};
  return lane;
}

MapView::Overlays MapOverlays::overlays() const {
  MapView::Overlays overlays;
  const OpenedProfile* profile = session_.profile();
  if (!profile) return overlays;
  overlays.token_texts = token_texts_;
  const Selection& selection = session_.selection().current();
  if (window_) {
    const auto& keep = session_.choices().lazy_arrays.keep;
    overlays.window = {keep.initial, keep.recent};
    const auto& samples = profile->samples();
    overlays.lanes.push_back(window_lane(
        selection, selection.sample < samples.size() ? samples[selection.sample].n_tokens : 0));
  }
  if (partitions_) {
    try {
      const auto policy = calibrate::parse_policy(lag_label());
      if (const auto* lag = calibrate::part_of_type<calibrate::LagKv>(policy))
        overlays.partitions = {lag->sink, lag->lag};
    } catch (const Error&) {
      // There is no such selection, or the profile calls it something else: no partitions.
    }
  }
  overlays.lanes.insert(overlays.lanes.end(), kept_.begin(), kept_.end());
  return overlays;
}

std::string MapOverlays::lag_label() const {
  try {
    const SweepModel model = sweep_model(session_.section(calibrate::method::kLagKv.name));
    auto at = static_cast<std::size_t>(session_.choices().lag_candidate);
    if (session_.choices().lag_candidate < 0)
      at = sweep_view(model, session_.choices().sweep).recommended.value_or(0);
    if (at < model.candidates.size()) {
      const auto& candidate = model.candidates[at];
      return str("lagkv:sink=", model.sink, ",lag=", candidate.lag, ",ratio=", candidate.ratio,
                 ",variant=", candidate.variant);
    }
  } catch (const Error&) {
    // No document has a sweep: the profile's first setting stands in.
  }
  for (const auto& label : selection_labels(session_.profile()->header()))
    if (label.starts_with("lagkv:")) return label;
  return {};
}

void MapOverlays::read_kept() {
  kept_.clear();
  OpenedProfile* profile = session_.profile();
  if (!profile || kept_by_ < 0) {
    emit changed();
    return;
  }
  const Selection& selection = session_.selection().current();
  const auto& header = profile->header();
  const auto labels = selection_labels(header);
  const auto at = static_cast<std::size_t>(kept_by_);
  const std::string label = at < labels.size() ? labels[at] : "";
  const std::int64_t kv_head = selection.head / heads_per_kv_head(header), layer = selection.layer;
  const std::size_t sample = selection.sample;
  const std::int64_t which = kept_by_;
  profile->read(
      this,
      [=](const profile::Reader& reader) {
        const auto kept = calibrate::read_kept_tokens(reader, sample, label, layer, kv_head);
        if (kept.empty())
          fail(ErrorCode::usage,
               "the keys that policies keep were not stored of this sample: "
               "'kvatlas profile --capture kept,maps' takes them");
        return KeptLane{label, kept_runs(kept)};
      },
      [this, which](KeptLane lane) {
        if (which != kept_by_) return;
        kept_ = {std::move(lane)};
        emit changed();
      },
      [this](const std::string& message) {
        emit session_.message(QString::fromStdString(message));
      });
}

}  // namespace kvatlas::viewer
