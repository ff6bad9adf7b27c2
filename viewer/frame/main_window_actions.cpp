// SPDX-License-Identifier: Apache-2.0
// Menus, keys, and what they do.
#include <QAbstractItemView>
#include <QAbstractSlider>
#include <QAbstractSpinBox>
#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QDir>
#include <QDockWidget>
#include <QFileInfo>
#include <QInputDialog>
#include <QKeyEvent>
#include <QLineEdit>
#include <QMenuBar>
#include <QPushButton>
#include <QStackedWidget>
#include <QTabBar>
#include <QTableView>
#include <QToolBar>
#include <algorithm>

#include "base/str.hpp"
#include "viewer/draw/chart_view.hpp"
#include "viewer/frame/dialog_parts.hpp"
#include "viewer/frame/export_view_dialog.hpp"
#include "viewer/frame/keys_dialog.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/frame/screen_key.hpp"

namespace kvatlas::viewer {

namespace {

bool is_navigation(int key) {
  switch (key) {
    case Qt::Key_Left:
    case Qt::Key_Right:
    case Qt::Key_Up:
    case Qt::Key_Down:
    case Qt::Key_PageUp:
    case Qt::Key_PageDown:
    case Qt::Key_Return:
    case Qt::Key_Enter:
    case Qt::Key_Escape:
      return true;
    default:
      return false;
  }
}

/// Whether a control has a use of its own for arrows, Return and Esc; what it leaves goes to the
/// window all the same.
bool takes_navigation(const QWidget* widget, int key) {
  if (qobject_cast<const ChartView*>(widget)) return true;
  if (qobject_cast<const QAbstractButton*>(widget) || qobject_cast<const QLineEdit*>(widget))
    return key == Qt::Key_Return || key == Qt::Key_Enter;
  if (key == Qt::Key_Escape) return false;
  return qobject_cast<const QAbstractSlider*>(widget) ||
         qobject_cast<const QAbstractSpinBox*>(widget) || qobject_cast<const QComboBox*>(widget) ||
         qobject_cast<const QAbstractItemView*>(widget) || qobject_cast<const QTabBar*>(widget);
}

}  // namespace

void MainWindow::make_menus() {
  std::map<QString, QMenu*> menus;
  const auto menu_of = [&](const QString& group) {
    auto*& menu = menus[group];
    if (!menu) menu = menuBar()->addMenu(Actions::title_of(group));
    return menu;
  };
  for (auto* action : actions_->all()) {
    const auto& entry = actions_->entry(action);
    auto* menu = menu_of(Actions::group_of(entry));
    if (qstrcmp(entry.id, "file.quit") == 0 || qstrcmp(entry.id, "go.layer_up") == 0)
      menu->addSeparator();
    menu->addAction(action);
    // Keys that move in a view are that view's alone; lists and trees have the same ones.
    const auto keys = action->shortcuts();
    const bool in_view = std::any_of(keys.begin(), keys.end(), [](const QKeySequence& key) {
      return is_navigation(key[0].key());
    });
    if (in_view && !QByteArray(entry.id).startsWith("go.back") &&
        !QByteArray(entry.id).startsWith("go.forward")) {
      action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
      stack_->addAction(action);
    } else {
      addAction(action);  // also while the menu bar is hidden
    }
    if (qstrcmp(entry.id, "file.close_baseline") == 0) {
      documents_menu_ = menu->addMenu(tr("Close document"));
      connect(documents_menu_, &QMenu::aboutToShow, this,
              [this] { fill_documents(*documents_menu_); });
    }
    if (qstrcmp(entry.id, "file.open_baseline") == 0) {
      recent_menu_ = menu->addMenu(tr("Recent files"));
      connect(recent_menu_, &QMenu::aboutToShow, this, [this] { fill_recent(*recent_menu_); });
    }
  }
  auto* go = menu_of("go");
  go->addSeparator();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    auto* action = go->addAction(QCoreApplication::translate("Screens", entries_[i].title));
    action->setObjectName(QStringLiteral("screen.%1").arg(entries_[i].id));
    action->setCheckable(true);
    action->setShortcut(QKeySequence(screen_key(i)));
    addAction(action);
    connect(action, &QAction::triggered, this,
            [this, i] { show_screen(QString::fromUtf8(entries_[i].id)); });
    screen_actions_.push_back(action);
  }
  auto* window = menu_of("view");
  window->addSeparator();
  for (auto* dock : {tree_dock_, details_dock_, pins_dock_})
    window->addAction(dock->toggleViewAction());
  layouts_menu_ = window->addMenu(tr("Layouts"));
  connect(layouts_menu_, &QMenu::aboutToShow, this, [this] { fill_layouts(*layouts_menu_); });
  auto* look = menu_of("theme");
  look->addSeparator();
  colours_ = new QActionGroup(this);
  for (const auto map : kColourMaps) {
    if (is_diverging(map)) continue;
    auto* action = look->addAction(QString::fromUtf8(colour_map_name(map)));
    action->setCheckable(true);
    action->setChecked(settings_.value("look/colours", "viridis") == colour_map_name(map));
    action->setObjectName(QStringLiteral("colours.%1").arg(colour_map_name(map)));
    colours_->addAction(action);
    connect(action, &QAction::triggered, this, [this, map] {
      Theme theme = session_.theme();
      theme.colours = map;
      settings_.setValue("look/colours", colour_map_name(map));
      session_.set_theme(theme);
    });
  }
}

void MainWindow::fill_recent(QMenu& menu) {
  menu.clear();
  for (const auto& path : settings_.value("files/recent").toStringList())
    connect(menu.addAction(QString(path).replace('&', "&&")), &QAction::triggered, this,
            [this, path] { open_all({path}); });
  menu.setEnabled(!menu.isEmpty());
}

void MainWindow::fill_documents(QMenu& menu) {
  menu.clear();
  const auto& documents = session_.documents();
  for (std::size_t i = 0; i < documents.size(); ++i)
    connect(menu.addAction(QString::fromStdString(documents[i].path.string()).replace('&', "&&")),
            &QAction::triggered, this, [this, i] { session_.close_document(i); });
}

void MainWindow::fill_layouts(QMenu& menu) {
  menu.clear();
  settings_.beginGroup("layouts");
  const auto names = settings_.childKeys();
  settings_.endGroup();
  for (const auto& name : names)
    connect(menu.addAction(name), &QAction::triggered, this,
            [this, name] { restore_layout(settings_.value("layouts/" + name).toByteArray()); });
  if (names.empty()) menu.addAction(tr("None saved yet"))->setEnabled(false);
}

void MainWindow::connect_actions() {
  const auto on = [this](const char* id, auto&& what) {
    connect((*actions_)[id], &QAction::triggered, this, what);
  };
  on("file.open", [this] { ask_for_files(false); });
  on("file.open_baseline", [this] { ask_for_files(true); });
  on("file.close_baseline", [this] { session_.close_baseline(); });
  on("file.reload", [this] {
    session_.reload();
    if (session_.baseline()) session_.reload(true);
  });
  on("file.save_policy", [this] { policy_dialog(PolicyDialog::Purpose::save); });
  on("file.export_policy", [this] { policy_dialog(PolicyDialog::Purpose::for_runtime); });
  on("file.export_view", [this] { export_view(); });
  on("file.quit", [this] { close(); });
  on("edit.undo", [this] { session_.undo().undo(); });
  on("edit.redo", [this] { session_.undo().redo(); });
  on("edit.copy_image", [this] { copy_image(); });
  on("edit.copy_data", [this] {
    run_on_picture([](const PicturePtr& picture) {
      QGuiApplication::clipboard()->setText(QString::fromStdString(picture->csv()));
    });
  });
  on("edit.copy_link", [this] {
    QGuiApplication::clipboard()->setText(link_now());
    emit session_.message(tr("Copied: %1").arg(link_now()));
  });
  on("edit.pin", [this] {
    if (!screen()) return;
    pins_->pin(place_now(), screen()->title(), screen()->grab().toImage());
    pins_dock_->show();
    emit session_.message(tr("Pinned."));
  });
  on("edit.note", [this] { edit_note(); });
  on("go.jump", [this] { jump_box_->begin({}); });
  on("go.palette", [this] { jump_box_->begin(">"); });
  on("go.back", [this] { session_.selection().back(); });
  on("go.forward", [this] { session_.selection().forward(); });
  on("go.layer_up", [this] { move_in_model(-1, 0); });
  on("go.layer_down", [this] { move_in_model(1, 0); });
  on("go.head_before", [this] { move_in_model(0, -1); });
  on("go.head_after", [this] { move_in_model(0, 1); });
  on("in.centre", [this] { centre_or_fit(); });
  on("view.full_screen", [this](bool on_now) { set_full_screen(on_now); });
  on("view.memory", [this] { ask_for_memory(); });
  on("view.save_layout", [this] { save_layout(); });
  on("view.reset_layout", [this] { restore_layout(standard_layout_); });
  on("view.table", [this](bool on_now) {
    values_dock_->setVisible(on_now);
    if (on_now) values_->view().setFocus();
  });
  connect(values_dock_, &QDockWidget::visibilityChanged, this,
          [this] { (*actions_)["view.table"]->setChecked(!values_dock_->isHidden()); });
  on("theme.light", [this] { set_look("light"); });
  on("theme.dark", [this] { set_look("dark"); });
  on("theme.system", [this] { set_look("system"); });
  on("help.keys", [this] { (new KeysDialog(*actions_, this))->open(); });
  for (auto* action : actions_->all())
    if (const auto act = actions_->entry(action).act)
      connect(action, &QAction::triggered, this, [this, act = *act] {
        if (act == Act::escape && (*actions_)["view.full_screen"]->isChecked()) {
          (*actions_)["view.full_screen"]->trigger();
          return;
        }
        if (pins_->act(act) || !screen() || screen()->act(act)) return;
        const Compare form = compare_of(act);
        if (form != Compare::off && !beside_->toggle(form))
          emit session_.message(
              tr("This screen compares in another way, or shows documents alone."));
      });
  connect(&session_.undo(), &QUndoStack::indexChanged, this, &MainWindow::refresh_actions);
}

void MainWindow::refresh_actions() {
  auto& actions = *actions_;
  const bool has_profile = session_.profile() != nullptr, has_screen = screen() != nullptr;
  auto& undo = session_.undo();
  auto& selection = session_.selection();
  actions["edit.undo"]->setEnabled(undo.canUndo());
  actions["edit.undo"]->setText(undo.canUndo() ? tr("Undo: %1").arg(undo.undoText()) : tr("Undo"));
  actions["edit.redo"]->setEnabled(undo.canRedo());
  actions["edit.redo"]->setText(undo.canRedo() ? tr("Redo: %1").arg(undo.redoText()) : tr("Redo"));
  actions["go.back"]->setEnabled(selection.can_go_back());
  actions["go.forward"]->setEnabled(selection.can_go_forward());
  actions["file.close_baseline"]->setEnabled(session_.baseline() != nullptr);
  documents_menu_->setEnabled(!session_.documents().empty());
  for (const char* id : {"file.reload", "file.save_policy", "edit.note", "go.layer_up",
                         "go.layer_down", "go.head_before", "go.head_after"})
    actions[id]->setEnabled(has_profile);
  actions["file.export_policy"]->setEnabled(has_profile || !session_.documents().empty());
  for (const char* id : {"file.export_view", "edit.copy_image", "edit.copy_data", "edit.copy_link",
                         "edit.pin", "view.full_screen", "view.table", "in.centre"})
    actions[id]->setEnabled(has_screen);
  for (auto* action : actions_->all())
    if (const auto act = actions_->entry(action).act)
      action->setEnabled(has_screen && (compare_of(*act) == Compare::off || session_.baseline()));
  for (auto* action : screen_actions_) action->setEnabled(session_.is_open());
}

void MainWindow::move_in_model(int layers, int heads) {
  Selection selection = session_.selection().current();
  selection.layer += layers;
  selection.head += heads;
  session_.selection().set(selection);
}

void MainWindow::centre_or_fit() {
  if (!screen()) return;
  const auto& selection = session_.selection().current();
  const bool again = centred_ == selection;
  screen()->act(again ? Act::fit : Act::centre);
  if (again)
    centred_.reset();
  else
    centred_ = selection;
}

void MainWindow::edit_note() {
  Place place = place_now();
  // It is on the selection, whatever shows it.
  place.screen.clear();
  place.filter.clear();
  place.tokens.reset();
  auto* dialog = new_question(this, tr("Note"), tr("Note on the selection (empty: none):"));
  dialog->setOption(QInputDialog::UsePlainTextEditForTextInput);
  dialog->setTextValue(pins_->note_at(place));
  connect(dialog, &QInputDialog::textValueSelected, this,
          [this, place](const QString& text) { pins_->set_note(place, text); });
  dialog->open();
}

void MainWindow::ask_for_memory() {
  auto* dialog = new_question(this, tr("Memory for maps"),
                              tr("MiB of map tiles that are kept of each profile:"));
  dialog->setInputMode(QInputDialog::IntInput);
  dialog->setIntRange(kLeastTileMib, kMostTileMib);
  dialog->setIntValue(static_cast<int>(session_.tile_bytes() >> 20));
  connect(dialog, &QInputDialog::intValueSelected, this, [this](int mib) {
    settings_.setValue("maps/memory_mib", mib);
    session_.set_tile_bytes(std::int64_t{mib} << 20);
  });
  dialog->open();
}

void MainWindow::save_layout() {
  auto* dialog = new_question(this, tr("Save layout"), tr("Name of the layout:"));
  connect(dialog, &QInputDialog::textValueSelected, this, [this](const QString& text) {
    const auto name = text.simplified().remove('/').remove('\\').left(40);
    if (!name.isEmpty()) settings_.setValue("layouts/" + name, saveState(kLayoutVersion));
  });
  dialog->open();
}

void MainWindow::run_on_picture(const std::function<void(const PicturePtr&)>& use) {
  const auto picture = screen() ? beside_->picture() : nullptr;
  if (picture)
    use(picture);
  else
    emit session_.message(tr("There is nothing to copy or to export here yet."));
}

void MainWindow::copy_image() {
  run_on_picture([this](const PicturePtr& picture) {
    QGuiApplication::clipboard()->setImage(to_image(*picture, session_.theme(), {.scale = 2}));
  });
}

QString MainWindow::export_folder() const {
  QString chosen = settings_.value("files/export_folder").toString();
  if (!chosen.isEmpty()) return chosen;
  const auto* profile = session_.profile();
  return profile ? QString::fromStdString(profile->path().parent_path().string())
                 : QDir::currentPath();
}

void MainWindow::export_view() {
  run_on_picture([this](const PicturePtr& picture) {
    Origin origin = {{"Software", "kvatlas"}, {"View", link_now().toStdString()}};
    if (const auto* profile = session_.profile()) {
      const auto& header = profile->header();
      origin.emplace_back("Profile",
                          str(profile->path().filename().string(), ", model ", header.model_name,
                              ", fingerprint ", header.model_fingerprint));
    }
    auto* dialog = new ExportViewDialog(picture, session_.theme(), origin,
                                        export_folder() + "/" + screen()->id(), this);
    connect(dialog, &ExportViewDialog::written, this, [this](const QString& path) {
      settings_.setValue("files/export_folder", QFileInfo(path).path());
      emit session_.message(tr("Wrote %1").arg(path));
    });
    dialog->open();
  });
}

void MainWindow::policy_dialog(PolicyDialog::Purpose purpose, const QString& section) {
  auto* dialog = new PolicyDialog(session_, purpose, export_folder(), section, this);
  connect(dialog, &PolicyDialog::written, this,
          [this](const QString& where) { emit session_.message(tr("Wrote %1").arg(where)); });
  dialog->open();
}

bool MainWindow::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::ShortcutOverride) {
    const auto* widget = qobject_cast<QWidget*>(watched);
    auto* key = static_cast<QKeyEvent*>(event);
    if (widget && widget->window() == this && is_navigation(key->key()) &&
        (key->modifiers() & ~Qt::KeypadModifier) == Qt::NoModifier &&
        takes_navigation(widget, key->key())) {
      key->accept();
      return true;
    }
  }
  return QMainWindow::eventFilter(watched, event);
}

/// Keys of a view that nothing else wanted, wherever the focus is.
void MainWindow::keyPressEvent(QKeyEvent* event) {
  auto* action = actions_->for_key(QKeySequence(event->keyCombination()));
  if (action && action->isEnabled())
    action->trigger();
  else
    QMainWindow::keyPressEvent(event);
}

}  // namespace kvatlas::viewer
