// SPDX-License-Identifier: Apache-2.0
// The map of one head with its controls, alone or compared with the baseline's.
#pragma once

#include <QWidget>
#include <optional>

#include "viewer/screens/map_bars.hpp"
#include "viewer/screens/map_overlays.hpp"
#include "viewer/screens/map_subjects.hpp"
#include "viewer/screens/map_view.hpp"

class QLabel;

namespace kvatlas::viewer {

class HeadPage : public QWidget {
  Q_OBJECT

 public:
  HeadPage(Session& session, QWidget* parent);

  /// While the page is not in front it reads nothing.
  void set_in_front(bool in_front);
  bool in_front() const { return in_front_; }
  /// To be called when another profile is open; the page then is not in front.
  void profile_came();
  /// Shows the session's present selection.
  void follow();

  bool act(Act act);
  PicturePtr picture() const;
  MapView& map() { return *map_; }
  const MapView& map() const { return *map_; }
  MapView& baseline_map() { return *baseline_map_; }
  MapOverlays& overlays() { return *overlays_; }
  void set_compare(Compare compare);
  Compare compare() const { return compare_; }
  void set_mean_over(MeanOver mean_over);

 signals:
  void left();
  void content_changed();

 private:
  void connect_maps();
  void connect_bar();
  void baseline_came();
  QString title() const;
  void show_subject();
  void show_scale();
  void show_overlays();
  void show_tokens();
  void read_tokens();
  void update_readout();

  Session& session_;
  MapOverlays* overlays_;
  MapSubjects subjects_;
  MapBar* bar_;
  MapView *map_, *baseline_map_;
  QLabel* readout_;
  Compare compare_ = Compare::off;
  bool in_front_ = false;
  std::optional<Selection> shown_;  // the selection that the map shows
};

}  // namespace kvatlas::viewer
