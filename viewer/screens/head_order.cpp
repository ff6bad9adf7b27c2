// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/head_order.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvatlas::viewer {

HeadOrder::HeadOrder(Session& session, QObject* parent) : QObject(parent), session_(session) {
  connect(&session_, &Session::profile_changed, this, [this] {
    by_ = By::index;
    forget();
    emit changed();
  });
  connect(&session_.selection(), &SelectionModel::changed, this, [this] {
    if (session_.selection().current().sample == measured_sample_) return;
    forget();
    if (by_ != By::index) need_measures();
  });
}

void HeadOrder::set_by(By by) {
  by_ = by;
  if (by != By::index) need_measures();
  emit changed();
}

void HeadOrder::forget() {
  measures_.reset();
  measured_sample_.reset();
}

void HeadOrder::need_measures() {
  OpenedProfile* profile = session_.profile();
  if (!profile) return;
  const std::size_t sample = session_.selection().current().sample;
  if (measured_sample_ == sample) return;
  std::vector<MapLevel> levels;
  try {
    levels = profile->loader().levels(sample);
  } catch (const Error&) {
    return;  // the grid tells
  }
  if (levels.empty()) return;
  const int level = thumbnail_level(levels);
  measured_sample_ = sample;
  measures_.reset();
  profile->read(
      this,
      [=](const profile::Reader& reader) { return read_head_measures(reader, sample, level); },
      [this, sample](std::vector<HeadMeasures> measures) {
        if (sample != measured_sample_) return;
        measures_ = std::make_shared<const std::vector<HeadMeasures>>(std::move(measures));
        emit changed();
      },
      [this](const std::string& message) {
        emit session_.message(QString::fromStdString(message));
      });
}

std::vector<GridLayout::Place> HeadOrder::places() const {
  std::vector<GridLayout::Place> places;
  if (by_ == By::index || !measures_ || !session_.profile()) return places;
  const std::int64_t heads = session_.profile()->header().n_heads;
  const Selection& selection = session_.selection().current();
  const auto own = static_cast<std::size_t>(selection.layer * heads + selection.head);
  for (std::size_t i = 0; i < measures_->size(); ++i) {
    const HeadMeasures& measures = (*measures_)[i];
    double number = 0;
    if (by_ == By::sink) number = measures.sink;
    if (by_ == By::recency) number = measures.recency;
    if (by_ == By::entropy) number = measures.entropy;
    if (by_ == By::likeness && own < measures_->size())
      number = likeness(measures, (*measures_)[own]);
    const auto at = static_cast<std::int64_t>(i);
    places.push_back({at / heads, at % heads, number});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.number > b.number; });
  return places;
}

}  // namespace kvatlas::viewer
