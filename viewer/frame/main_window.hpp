// SPDX-License-Identifier: Apache-2.0
// The window: the screens are in the middle; around them is what belongs to all screens.
#pragma once

#include <QMainWindow>
#include <QSettings>
#include <functional>
#include <optional>
#include <vector>

#include "viewer/frame/actions.hpp"
#include "viewer/frame/banner.hpp"
#include "viewer/frame/baseline_beside.hpp"
#include "viewer/frame/details_view.hpp"
#include "viewer/frame/jobs_bar.hpp"
#include "viewer/frame/jump_box.hpp"
#include "viewer/frame/model_tree.hpp"
#include "viewer/frame/pin_tray.hpp"
#include "viewer/frame/policy_dialog.hpp"
#include "viewer/frame/search_job.hpp"
#include "viewer/frame/start_page.hpp"
#include "viewer/frame/values_view.hpp"
#include "viewer/models/jump.hpp"
#include "viewer/models/place.hpp"
#include "viewer/screens/screens.hpp"
#include "viewer/screens/session.hpp"
#include "viewer/threads/file_watch.hpp"

class QActionGroup;
class QComboBox;
class QLabel;
class QListWidget;
class QSpinBox;
class QStackedWidget;

namespace kvatlas::viewer {

class SearchDialog;

class MainWindow : public QMainWindow {
  Q_OBJECT

 public:
  /// `settings_file` keeps what the next run of the program shall know. Tests pass other screens.
  MainWindow(Session& session, const QString& settings_file,
             std::vector<ScreenEntry> entries = screens());
  ~MainWindow() override;

  /// The screen in front; nullptr while the start page is shown.
  Screen* screen() const;
  /// Brings a screen to the front, and makes it the first time. Returns false if nothing is open or
  /// if no screen has that name.
  bool show_screen(const QString& id);

  /// Opens profiles, documents and links ("kvatlas:…").
  void open_all(const QStringList& files, bool as_baseline = false);
  /// Goes where the jump box's first suggestion for this text leads; shows a message if there is no
  /// suggestion.
  void jump(const QString& text);
  /// Sets the look to "light", "dark" or "system", which follows the desktop.
  void set_look(const QString& look, bool remember = true);

  Actions& actions() { return *actions_; }
  Banners& banners() { return *banners_; }
  PinTray& pins() { return *pins_; }
  BaselineBeside& beside() { return *beside_; }
  JumpBox& jump_box() { return *jump_box_; }
  SearchJob& search() { return *search_; }
  FileWatch& file_watch() { return *watch_; }
  Place place_now() const;
  QString link_now() const;
  void go_to(const Place& place);
  /// Goes there as soon as a profile is open.
  void go_to_when_open(const Place& place);

 protected:
  void closeEvent(QCloseEvent* event) override;
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  // main_window.cpp
  void make_centre();
  void make_docks();
  void make_top_bar();
  void make_status_bar();
  void refresh_top_bar();
  void refresh_details();
  void show_values();
  void screen_changed();
  void restore();
  void restore_layout(const QByteArray& stored);
  void set_full_screen(bool on);
  void apply_look();

  // main_window_actions.cpp
  void make_menus();
  void fill_documents(QMenu& menu);
  void fill_layouts(QMenu& menu);
  void fill_recent(QMenu& menu);
  void connect_actions();
  void refresh_actions();
  void move_in_model(int layers, int heads);
  void centre_or_fit();
  void edit_note();
  void save_layout();
  void ask_for_memory();
  void copy_image();
  void policy_dialog(PolicyDialog::Purpose purpose, const QString& section = {});
  void export_view();
  QString export_folder() const;
  void run_on_picture(const std::function<void(const PicturePtr&)>& use);

  // main_window_files.cpp
  void connect_files();
  void ask_for_files(bool as_baseline);
  void profile_opened();
  void remember_recent(const QString& path);
  void file_replaced(const QString& path);
  void file_removed(const QString& path);
  void refresh_writing();

  // main_window_search.cpp
  void connect_search();
  void search_ended(SearchJob::End end);

  // main_window_jump.cpp
  Suggestions suggest(const QString& text);
  Suggestions suggest_actions(const QString& text);
  JumpContext jump_context() const;
  void take(const Jump& jump);

  static constexpr int kLayoutVersion = 1;  // of the stored layout of the docks
  static constexpr int kLeastTileMib = 16, kMostTileMib = 65536;

  Session& session_;
  const std::vector<ScreenEntry> entries_;
  std::vector<Screen*> made_;  // the screen of each entry; nullptr: it was not yet shown
  QSettings settings_;
  Actions* actions_;
  SampleFacts* facts_;
  std::vector<QAction*> screen_actions_;
  QActionGroup* colours_ = nullptr;
  QMenu *recent_menu_ = nullptr, *documents_menu_ = nullptr, *layouts_menu_ = nullptr;

  QListWidget* bar_ = nullptr;
  QStackedWidget* stack_ = nullptr;
  BaselineBeside* beside_ = nullptr;
  QWidget* screens_page_ = nullptr;
  QStackedWidget* pages_ = nullptr;  // shows the start page or the screens
  StartPage* start_ = nullptr;
  Banners* banners_ = nullptr;
  ModelTree* tree_ = nullptr;
  DetailsView* details_ = nullptr;
  ValuesView* values_ = nullptr;
  PinTray* pins_ = nullptr;
  QDockWidget *tree_dock_ = nullptr, *details_dock_ = nullptr, *values_dock_ = nullptr,
              *pins_dock_ = nullptr;
  QToolBar* top_ = nullptr;
  QLabel *profile_label_ = nullptr, *baseline_label_ = nullptr, *documents_label_ = nullptr;
  QComboBox* task_ = nullptr;
  QSpinBox* length_ = nullptr;
  JumpBox* jump_box_ = nullptr;
  QLabel *focus_label_ = nullptr, *writing_label_ = nullptr;
  JobsBar* jobs_ = nullptr;
  FileWatch* watch_;
  SearchJob* search_;
  SearchDialog* search_dialog_ = nullptr;
  int search_shown_ = 0;      // number of the search's job in jobs_
  bool front_waits_ = false;  // a document with the front of a search is being opened
  int openings_ = 0;          // number of openings that go on

  QString look_ = "system";
  const bool system_is_dark_;
  QByteArray standard_layout_, layout_before_full_screen_;
  bool was_maximised_ = false;
  std::optional<Selection> centred_;
  std::optional<Place> pending_;  // to go to once the profile is here
  int parts_ = 0;                 // finished samples that are not yet in the profile's file
};

}  // namespace kvatlas::viewer
