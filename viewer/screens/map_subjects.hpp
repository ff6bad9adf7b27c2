// SPDX-License-Identifier: Apache-2.0
// Which maps are shown for what is chosen: one head's, or the mean of several.
#pragma once

#include <QCoreApplication>
#include <QString>

#include "viewer/screens/map_feed.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

enum class MeanOver : std::uint8_t { one, kv_group, layer, samples };

class MapSubjects {
  Q_DECLARE_TR_FUNCTIONS(MapSubjects)

 public:
  explicit MapSubjects(Session& session) : session_(session) {}
  MeanOver mean_over = MeanOver::one;
  bool by_depth = false;  // layers of the baseline are found by their relative depth

  /// The maps of the session's profile, which must be open, for what is chosen.
  MapSubject of_profile() const;
  /// The maps of the baseline for what is chosen.
  MapSubject of_baseline() const;
  QString title() const;

 private:
  MapSubject subject(OpenedProfile& profile, MapKey key) const;

  Session& session_;
};

}  // namespace kvatlas::viewer
