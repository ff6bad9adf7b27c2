// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_subjects.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {

namespace {

MapKey chosen_key(const Selection& selection) {
  return {selection.sample, selection.layer, selection.head, selection.reduction};
}

}  // namespace

MapSubject MapSubjects::of_profile() const {
  return subject(*session_.profile(), chosen_key(session_.selection().current()));
}

MapSubject MapSubjects::of_baseline() const {
  OpenedProfile& baseline = *session_.baseline();
  MapKey key = chosen_key(session_.selection().current());
  const std::int64_t own = session_.profile()->header().n_layers;
  if (by_depth && own > 1)
    key.layer =
        std::llround(double(key.layer) * double(baseline.header().n_layers - 1) / double(own - 1));
  key.sample = std::min(key.sample, baseline.samples().size() - 1);
  return subject(baseline, key);
}

MapSubject MapSubjects::subject(OpenedProfile& profile, MapKey key) const {
  MapSubject out;
  out.profile = &profile;
  const std::int64_t group = heads_per_kv_head(profile.header());
  switch (mean_over) {
    case MeanOver::one:
      out.maps = {key};
      break;
    case MeanOver::kv_group:
    case MeanOver::layer: {
      const bool all = mean_over == MeanOver::layer;
      const std::int64_t first = all ? 0 : key.head / group * group;
      const std::int64_t last = all ? profile.header().n_heads : first + group;
      for (std::int64_t head = first; head < last; ++head)
        out.maps.push_back({key.sample, key.layer, head, key.reduction});
      break;
    }
    case MeanOver::samples: {
      out.maps = {key};
      for (const std::size_t sample : profile.positions(profile.samples()[key.sample].task)) {
        if (sample == key.sample) continue;
        try {
          if (!profile.loader().levels(sample).empty())
            out.maps.push_back({sample, key.layer, key.head, key.reduction});
        } catch (const Error&) {
          continue;  // damaged: the others are shown
        }
      }
      break;
    }
  }
  return out;
}

QString MapSubjects::title() const {
  const Selection& selection = session_.selection().current();
  const OpenedProfile& profile = *session_.profile();
  const auto& sample = profile.samples()[selection.sample];
  const std::int64_t group = heads_per_kv_head(profile.header());
  const auto about = [&]() -> QString {
    const QString layer = QString::number(selection.layer), head = QString::number(selection.head),
                  kv_head = QString::number(selection.head / group);
    switch (mean_over) {
      case MeanOver::one:
        return tr("Layer %1, head %2 (KV head %3)").arg(layer, head, kv_head);
      case MeanOver::kv_group:
        return tr("Layer %1, mean of the %2 heads of KV head %3")
            .arg(layer, QString::number(group), kv_head);
      case MeanOver::layer:
        return tr("Layer %1, mean of its %2 heads")
            .arg(layer, QString::number(profile.header().n_heads));
      case MeanOver::samples:
        return tr("Layer %1, head %2, mean of the samples with maps of %3")
            .arg(layer, head, QString::fromStdString(sample.task));
    }
    return {};
  };
  return about() +
         tr(" · %1, %L2 tokens").arg(QString::fromStdString(sample.id)).arg(sample.n_tokens);
}

}  // namespace kvatlas::viewer
