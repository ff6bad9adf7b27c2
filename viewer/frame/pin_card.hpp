// SPDX-License-Identifier: Apache-2.0
// A pinned view: of an attention map the map itself, of others a picture.
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

  /// What another screen showed when it was pinned.
  void set_image(const QImage& image);
  void set_theme(const Theme& theme);
  /// nullptr: it is no map, or of one that the profile does not have.
  MapView* map() const { return map_; }
  /// Whose it is; empty: of no sample.
  const QString& sample_name() const { return sample_name_; }
  /// What keys ask of the card in focus; false: it has no use for it.
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
