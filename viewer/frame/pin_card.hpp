// SPDX-License-Identifier: Apache-2.0
// A pinned view. An attention map is shown as a live map, other views as a picture.
#pragma once

#include <QFrame>
#include <QImage>

#include "viewer/models/sidecar.hpp"
#include "viewer/screens/map_view.hpp"
#include "viewer/screens/session.hpp"

class QLabel;

namespace kvatlas::viewer {

class PinCard : public QFrame {
  Q_OBJECT

 public:
  PinCard(Session& session, const Pin& pin, QWidget* parent);

  /// Sets the picture of the view as it was when it was pinned.
  void set_image(const QImage& image);
  void set_theme(const Theme& theme);
  /// The live map; nullptr if the pin is of another view, or if the profile lacks the map.
  MapView* map() const { return map_; }
  /// The sample of the pinned view; empty if the view belongs to no sample.
  const QString& sample_name() const { return sample_name_; }
  /// Does what a key asks for; returns false if the card has no use for it.
  bool act(Act act);

 signals:
  void wanted();
  void unpinned();

 protected:
  void keyPressEvent(QKeyEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void make_map(Session& session, const Place& place);
  void show_image();
  void show_sample();

  QString sample_name_;
  QLabel* sample_ = nullptr;
  MapView* map_ = nullptr;
  QLabel* picture_ = nullptr;
  QImage image_;
};

}  // namespace kvatlas::viewer
