// SPDX-License-Identifier: Apache-2.0
// One of the window's screens. The window has the menus, keys and docks, and asks the screen in
// front for what they show.
#pragma once

#include <QString>
#include <QWidget>
#include <vector>

#include "viewer/draw/picture.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

/// What a key can ask of a screen. A screen that has no use for it returns false from act().
enum class Act : std::uint8_t {
  left,
  right,
  up,
  down,  // to the next cell, thumbnail, point or bar
  zoom_in,
  zoom_out,
  pan_left,
  pan_right,
  pan_up,
  pan_down,
  centre,
  fit,  // shows the whole selection
  enter,
  escape,     // into what is selected; one step out of it
  rectangle,  // makes a region of the selection
  next_scale,
  mask_sinks,
  reduction,  // logarithmic or linear; sinks hidden or not; mean or maximum
  difference,
  beside,
  swipe,  // compares with the baseline
  handle_down,
  handle_up,
  handle_down_fast,
  handle_up_fast,
  filter,  // goes to the field of the filter
};

class Screen : public QWidget {
  Q_OBJECT

 public:
  Screen(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

  /// The name of the screen in links, files and the palette, such as "lazy"; its title for people
  /// is "Lazy layers".
  virtual QString id() const { return id_; }
  virtual QString title() const { return title_; }
  void set_names(const QString& id, const QString& title) {
    id_ = id;
    title_ = title;
  }
  /// The picture that is exported and copied; nullptr while there is nothing to show.
  virtual PicturePtr picture() const = 0;
  /// The charts of that picture. Each has its own index, so one that shows nothing is empty. A
  /// screen without charts has none.
  virtual std::vector<Chart> charts() const { return {}; }
  /// The same as a table, through which a screen reader can go; it may have only the rows of the
  /// selection.
  virtual Table table() const = 0;
  virtual bool act(Act act) = 0;
  /// What is in focus, for the status bar and for screen readers: "L12.H3 q5120 k4 0.0123 rank 2".
  virtual QString focus_text() const { return {}; }
  /// Names and values of the prompt that is shown, where that is no sample of the profile.
  virtual std::vector<std::pair<QString, QString>> prompt_details() const { return {}; }

 signals:
  /// The picture, the table or the focus text has changed.
  void content_changed();
  /// Another screen should come to the front.
  void screen_wanted(const QString& id);
  /// The present choices should be exported as a policy of this section, such as "simlayerkv".
  void export_wanted(const QString& section);
  /// One of the window's actions should be carried out, such as "file.search".
  void action_wanted(const QString& id);

 protected:
  Session& session() const { return session_; }

 private:
  Session& session_;
  QString id_, title_;
};

}  // namespace kvatlas::viewer
