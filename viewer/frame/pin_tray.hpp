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
  void set_note(const Place& place, const QString& text);  // an empty text removes the note
  /// The notes on the layer and head of this place, for its sample or for all samples.
  QStringList notes_at(const Place& place) const;
  /// The note on exactly this place; empty if there is none.
  QString note_at(const Place& place) const;
  const Sidecar& sidecar() const { return sidecar_; }
  /// One card for each pin, in the order of the pins.
  const std::vector<PinCard*>& cards() const { return cards_; }
  /// Has the card in focus do what a key asks for; returns false if no card is in focus or if it
  /// has no use for it.
  bool act(Act act);

 signals:
  void wanted(const kvatlas::viewer::Place& place);
  void notes_changed();
  void pins_came();  // the profile that was opened has pins
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
  bool readable_ = false;  // the file was read, or is absent: it may be replaced
  bool reading_ = false;   // while this lasts, new pins wait to be added to those of the file
  QHash<QString, QImage> images_;
  QScrollArea* area_;
  QHBoxLayout* row_;
  std::vector<PinCard*> cards_;
  std::uint64_t readings_ = 0;
  Mailbox mailbox_;
  Errands files_;  // last: its thread uses the others
};

}  // namespace kvatlas::viewer
