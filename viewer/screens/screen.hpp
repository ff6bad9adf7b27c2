// SPDX-License-Identifier: Apache-2.0
// One of the window's screens. The window owns menus, keys and docks, and asks the screen in front
// for what depends on it.
#pragma once

#include <QString>
#include <QWidget>
#include <vector>

#include "viewer/draw/picture.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

/// What keys ask of a screen; one that has no use for it returns false from act().
enum class Act : std::uint8_t {
  left,
  right,
  up,
  down,  // the next cell, thumbnail, point or bar
  zoom_in,
  zoom_out,
  pan_left,
  pan_right,
  pan_up,
  pan_down,
  centre,
  fit,  // the selection
  enter,
  escape,     // into it; one step out
  rectangle,  // a region from the selection
  next_scale,
  mask_sinks,
  reduction,  // log or linear; hide the sinks; mean or max
  difference,
  beside,
  swipe,  // against the baseline
  handle_down,
  handle_up,
  handle_down_fast,
  handle_up_fast,
  filter,  // to the field of the filter
};

class Screen : public QWidget {
  Q_OBJECT

 public:
  Screen(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

  /// For links, files and the palette: "lazy". The title is for people: "Lazy layers".
  virtual QString id() const = 0;
  virtual QString title() const = 0;
  /// What it shows now, to export and to copy; nullptr while there is nothing.
  virtual PicturePtr picture() const = 0;
  /// The charts of that picture at places of their own, empty ones where nothing is shown; none
  /// for a screen that is no charts.
  virtual std::vector<Chart> charts() const { return {}; }
  /// The same as a table that a screen reader can walk; rows may be cut to those of the selection.
  virtual Table table() const = 0;
  virtual bool act(Act act) = 0;
  /// "L12.H3 q5120 k4 0.0123 rank 2": what is in focus, for status bar and screen readers.
  virtual QString focus_text() const { return {}; }

 signals:
  /// Its picture, table or focus text is another one.
  void content_changed();
  /// Another screen should come to the front.
  void screen_wanted(const QString& id);
  /// The policy of the present choices should be exported: "simlayerkv".
  void export_wanted(const QString& section);
  /// One of the window's actions should be carried out: "file.search".
  void action_wanted(const QString& id);

 protected:
  Session& session() const { return session_; }

 private:
  Session& session_;
};

}  // namespace kvatlas::viewer
