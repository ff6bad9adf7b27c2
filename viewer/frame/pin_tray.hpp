// SPDX-License-Identifier: Apache-2.0
// Pinned views side by side, kept with the notes in a file beside the profile.
#pragma once

#include <QHash>
#include <QImage>
#include <QWidget>
#include <filesystem>
#include <functional>

#include "viewer/frame/pin_card.hpp"
#include "viewer/models/sidecar.hpp"
#include "viewer/screens/session.hpp"
#include "viewer/threads/errands.hpp"
#include "viewer/threads/mailbox.hpp"

class QHBoxLayout;
class QScrollArea;

namespace kvatlas::viewer {

class PinTray : public QWidget {
  Q_OBJECT

 public:
  PinTray(Session& session, QWidget* parent);

  void pin(const Place& place, const QString& title, const QImage& image);
  void unpin(int index);
  void set_note(const Place& place, const QString& text);  // empty: takes it away
  /// Of exactly this place, or of its layer and head.
  QStringList notes_at(const Place& place) const;
  QString note_at(const Place& place) const;
  const Sidecar& sidecar() const { return sidecar_; }
  /// A card a pin, in their order.
  const std::vector<PinCard*>& cards() const { return cards_; }
  /// What keys ask of the pin in focus; false: none is, or it has no use for it.
  bool act(Act act);

 signals:
  void wanted(const kvatlas::viewer::Place& place);
  void notes_changed();
  void pins_came();  // with the file
  void failed(const QString& message);

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void profile_changed();
  void refresh();
  PinCard* make_card(const Pin& pin);
  void save();
  /// The card's position; cards().size() if none has the focus.
  std::size_t card_in_focus() const;

  Session& session_;
  Sidecar sidecar_;
  std::filesystem::path path_;
  bool readable_ = false;  // what is there may be replaced
  bool reading_ = false;   // what is pinned meanwhile is added to what is read
  QHash<QString, QImage> images_;
  QScrollArea* area_;
  QHBoxLayout* row_;
  std::vector<PinCard*> cards_;
  std::uint64_t readings_ = 0;
  Mailbox mailbox_;
  Errands files_;  // last: its thread uses the others
};

}  // namespace kvatlas::viewer
