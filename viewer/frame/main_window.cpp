// SPDX-License-Identifier: Apache-2.0
// The parts of the window, and how they hang together.
#include "viewer/frame/main_window.hpp"

#include <QApplication>
#include <QCloseEvent>
#include <QComboBox>
#include <QDockWidget>
#include <QHBoxLayout>
#include <QLabel>
#include <QListWidget>
#include <QMouseEvent>
#include <QSpinBox>
#include <QStackedWidget>
#include <QStatusBar>
#include <QToolBar>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "viewer/frame/dialog_parts.hpp"
#include "viewer/frame/difference_view.hpp"
#include "viewer/frame/screen_key.hpp"
#include "viewer/models/jump.hpp"
#include "viewer/models/link.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kBarWidth = 120, kBarControlHeight = 28;
constexpr double kDarkBelow = 0.5;  // lightness of the system's windows

}  // namespace

MainWindow::MainWindow(Session& session, const QString& settings_file,
                       std::vector<ScreenEntry> entries)
    : session_(session),
      entries_(std::move(entries)),
      made_(entries_.size(), nullptr),
      settings_(settings_file, QSettings::IniFormat),
      actions_(new Actions(settings_, this)),
      facts_(new SampleFacts(session, this)),
      watch_(new FileWatch(this)),
      search_(new SearchJob(QCoreApplication::applicationDirPath() + "/kvatlas", this)),
      system_is_dark_(QGuiApplication::palette().window().color().lightnessF() < kDarkBelow) {
  setWindowTitle(tr("kvatlas"));
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  make_centre();
  make_docks();
  make_top_bar();
  make_status_bar();
  make_menus();
  connect_actions();
  connect_files();
  connect_search();
  resize(1280, 760);
  restore();
  refresh_top_bar();
  refresh_actions();
  qApp->installEventFilter(this);
}

MainWindow::~MainWindow() {
  // Screens look at the session while they go.
  disconnect(&session_, nullptr, this, nullptr);
  disconnect(&session_.selection(), nullptr, this, nullptr);
  disconnect(&session_.undo(), nullptr, this, nullptr);
  disconnect(values_dock_, nullptr, this, nullptr);  // it is hidden once this is no MainWindow more
}

void MainWindow::make_centre() {
  auto* centre = new QWidget(this);
  auto* column = new QVBoxLayout(centre);
  column->setContentsMargins({});
  column->setSpacing(0);
  banners_ = new Banners(centre);
  pages_ = new QStackedWidget(centre);
  column->addWidget(banners_);
  column->addWidget(pages_, 1);
  start_ = new StartPage(pages_);
  pages_->addWidget(start_);
  screens_page_ = new QWidget(pages_);
  pages_->addWidget(screens_page_);
  auto* row = new QHBoxLayout(screens_page_);
  row->setContentsMargins({});
  row->setSpacing(0);
  bar_ = new QListWidget(screens_page_);
  bar_->setObjectName("screens");
  bar_->setAccessibleName(tr("Screens"));
  bar_->setFixedWidth(kBarWidth);
  bar_->setFrameShape(QFrame::NoFrame);
  bar_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  stack_ = new QStackedWidget(screens_page_);
  row->addWidget(bar_);
  beside_ = new BaselineBeside(session_, entries_, stack_, screens_page_);
  row->addWidget(beside_, 1);
  connect(beside_, &BaselineBeside::form_changed, this, [this] {
    if (values_) show_values();
  });
  setCentralWidget(centre);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    auto* item =
        new QListWidgetItem(QCoreApplication::translate("Screens", entries_[i].title), bar_);
    item->setSizeHint({0, kBarControlHeight + 2});
    item->setToolTip(screen_key(i));
  }
  connect(bar_, &QListWidget::currentRowChanged, this, [this](int at) {
    if (at >= 0) show_screen(QString::fromUtf8(entries_[at].id));
  });
}

void MainWindow::make_docks() {
  const auto add = [this](const QString& title, const char* name, QWidget* widget,
                          Qt::DockWidgetArea area) {
    auto* dock = new QDockWidget(title, this);
    dock->setObjectName(name);  // for the stored state
    widget->setParent(dock);
    dock->setWidget(widget);
    addDockWidget(area, dock);
    return dock;
  };
  tree_ = new ModelTree(session_, nullptr);
  details_ = new DetailsView(session_, *facts_, nullptr);
  values_ = new ValuesView(nullptr);
  pins_ = new PinTray(session_, nullptr);
  tree_dock_ = add(tr("Model and samples"), "dock.model", tree_, Qt::LeftDockWidgetArea);
  details_dock_ = add(tr("Details"), "dock.details", details_, Qt::RightDockWidgetArea);
  values_dock_ = add(tr("Values"), "dock.values", values_, Qt::RightDockWidgetArea);
  pins_dock_ = add(tr("Pins"), "dock.pins", pins_, Qt::BottomDockWidgetArea);
  pins_dock_->hide();  // until there is one
  const auto at_height = [this](QDockWidget* dock, QDockWidget* other, int share) {
    connect(dock, &QDockWidget::visibilityChanged, this,
            [=, this, opened = false](bool on) mutable {
              if (!on || std::exchange(opened, true)) return;  // later it is as high as it was left
              if (other)
                resizeDocks({other, dock}, {height() - height() / share, height() / share},
                            Qt::Vertical);
              else
                resizeDocks({dock}, {height() / share}, Qt::Vertical);
            });
  };
  at_height(values_dock_, details_dock_, 2);
  at_height(pins_dock_, nullptr, 5);
  values_dock_->hide();
  resizeDocks({tree_dock_, details_dock_}, {206, 210}, Qt::Horizontal);
  connect(&session_.evidence(), &EvidenceCache::layers_changed, this,
          [this] { tree_->set_predicates(session_.evidence().words()); });
  connect(pins_, &PinTray::wanted, this, &MainWindow::go_to);
  connect(pins_, &PinTray::notes_changed, this, &MainWindow::refresh_details);
  connect(pins_, &PinTray::pins_came, pins_dock_, &QWidget::show);
  connect(pins_, &PinTray::failed, this,
          [this](const QString& text) { banners_->show_message({.text = text}); });
}

void MainWindow::make_top_bar() {
  top_ = addToolBar(tr("Files and samples"));
  top_->setObjectName("top");
  top_->setMovable(false);
  const auto add_label = [&](const char* name) {
    auto* label = new QLabel(top_);
    label->setObjectName(name);
    label->setContentsMargins(8, 0, 8, 0);
    label->setTextFormat(Qt::PlainText);
    top_->addWidget(label);
    return label;
  };
  profile_label_ = add_label("profile");
  baseline_label_ = add_label("baseline");
  documents_label_ = add_label("documents");
  top_->addSeparator();
  const auto add_named = [&](const QString& words, QWidget* control) {
    auto* label = new QLabel(words, top_);
    label->setContentsMargins(8, 0, 4, 0);
    label->setBuddy(control);
    control->setAccessibleName(words);
    control->setMinimumHeight(kBarControlHeight);
    top_->addWidget(label);
    top_->addWidget(control);
  };
  task_ = new QComboBox(top_);
  task_->setObjectName("task");
  task_->setToolTip(tr("Which samples the numbers of all screens are of"));
  task_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  task_->setMaximumWidth(220);
  add_named(tr("Samples"), task_);
  length_ = new_token_box(top_);
  length_->setObjectName("length");
  length_->setToolTip(tr("Prompt length that savings are given for"));
  length_->setGroupSeparatorShown(true);
  length_->setKeyboardTracking(false);
  length_->setStepType(QAbstractSpinBox::AdaptiveDecimalStepType);
  length_->setMaximumWidth(150);
  add_named(tr("Savings at"), length_);
  auto* gap = new QWidget(top_);
  gap->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
  top_->addWidget(gap);
  jump_box_ = new JumpBox([this](const QString& text) { return suggest(text); }, this);
  jump_box_->setObjectName("jump");
  jump_box_->setAccessibleName(tr("Jump to"));
  jump_box_->setPlaceholderText(tr("Jump: L12.H3, q5120, lazy, text"));
  jump_box_->setFixedWidth(250);
  top_->addWidget(jump_box_);
  connect(jump_box_, &JumpBox::left, this, [this] {
    if (auto* front = screen()) front->setFocus();
  });
  connect(task_, &QComboBox::activated, this, [this](int index) {
    session_.choose_task(task_->itemData(index).toString().toStdString());
  });
  connect(length_, &QSpinBox::valueChanged, this, [this](int tokens) {
    Choices choices = session_.choices();
    if (choices.length == tokens) return;
    set_length(choices, tokens);
    session_.change(tr("prompt length"), choices);
  });
  for (auto changed : {&Session::profile_changed, &Session::baseline_changed,
                       &Session::documents_changed, &Session::choices_changed}) {
    connect(&session_, changed, this, &MainWindow::refresh_top_bar);
    connect(&session_, changed, this, &MainWindow::refresh_actions);
  }
}

void MainWindow::make_status_bar() {
  focus_label_ = new QLabel(this);
  focus_label_->setObjectName("focus");
  focus_label_->setTextFormat(Qt::PlainText);
  writing_label_ = new QLabel(this);
  writing_label_->setObjectName("writing");
  jobs_ = new JobsBar(this);
  statusBar()->addWidget(focus_label_, 1);
  statusBar()->addPermanentWidget(writing_label_);
  statusBar()->addPermanentWidget(jobs_);
  connect(&session_, &Session::message, this,
          [this](const QString& text) { statusBar()->showMessage(text, 6000); });
  connect(&session_.selection(), &SelectionModel::changed, this, [this] {
    refresh_details();
    refresh_actions();
  });
}

void MainWindow::refresh_top_bar() {
  const auto* profile = session_.profile();
  const auto name_of = [](const std::filesystem::path& path) {
    return QString::fromStdString(path.filename().string());
  };
  profile_label_->setText(profile ? name_of(profile->path()) : tr("no profile"));
  if (profile)
    profile_label_->setToolTip(
        QString::fromStdString(profile->header().model_name + "\n" + profile->path().string()));
  const auto* baseline = session_.baseline();
  baseline_label_->setVisible(baseline != nullptr);
  for (auto* action : top_->actions())
    if (top_->widgetForAction(action) == baseline_label_) action->setVisible(baseline != nullptr);
  if (baseline) {
    baseline_label_->setText(tr("against %1").arg(name_of(baseline->path())));
    baseline_label_->setToolTip(QString::fromStdString(baseline->path().string()));
  }
  const auto& documents = session_.documents();
  QStringList names, paths;
  for (const auto& document : documents) {
    names << name_of(document.path);
    paths << QString::fromStdString(document.path.string());
  }
  for (auto* action : top_->actions())
    if (top_->widgetForAction(action) == documents_label_) action->setVisible(!names.empty());
  documents_label_->setText(names.size() > 2 ? tr("%1 policies").arg(names.size())
                                             : names.join(", "));
  documents_label_->setToolTip(paths.join("\n"));
  const QSignalBlocker quiet_task(task_), quiet_length(length_);
  task_->clear();
  for (auto* action : top_->actions()) {
    const auto* widget = top_->widgetForAction(action);
    const auto* label = qobject_cast<const QLabel*>(widget);
    const auto* control = label && label->buddy() ? label->buddy() : widget;
    if (control == task_ || control == length_) action->setVisible(profile != nullptr);
  }
  if (!profile) return;
  std::map<std::string, int> tasks;
  for (const auto& sample : profile->samples()) ++tasks[sample.task];
  task_->addItem(tr("all %1").arg(profile->samples().size()), QString());
  for (const auto& [task, count] : tasks)
    task_->addItem(QStringLiteral("%1 (%2)").arg(QString::fromStdString(task)).arg(count),
                   QString::fromStdString(task));
  const auto& choices = session_.choices();
  task_->setCurrentIndex(std::max(0, task_->findData(QString::fromStdString(choices.task))));
  length_->setValue(in_token_box(choices.length));
}

Screen* MainWindow::screen() const {
  return pages_->currentWidget() == screens_page_ ? qobject_cast<Screen*>(stack_->currentWidget())
                                                  : nullptr;
}

bool MainWindow::show_screen(const QString& id) {
  if (!session_.is_open()) return false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (id != QString::fromUtf8(entries_[i].id)) continue;
    if (!made_[i]) {
      made_[i] = make_screen(entries_[i], session_, stack_);
      if (made_[i]->focusPolicy() == Qt::NoFocus) made_[i]->setFocusPolicy(Qt::StrongFocus);
      made_[i]->setAccessibleName(QCoreApplication::translate("Screens", entries_[i].title));
      stack_->addWidget(made_[i]);
      connect(made_[i], &Screen::screen_wanted, this, &MainWindow::show_screen);
      connect(made_[i], &Screen::export_wanted, this, [this](const QString& section) {
        policy_dialog(PolicyDialog::Purpose::for_runtime, section);
      });
      connect(made_[i], &Screen::action_wanted, this,
              [this](const QString& action) { (*actions_)[action]->trigger(); });
      connect(made_[i], &Screen::content_changed, this, [this, made = made_[i]] {
        if (made == screen()) refresh_details();
      });
    }
    pages_->setCurrentWidget(screens_page_);
    stack_->setCurrentWidget(made_[i]);
    const QSignalBlocker quiet(bar_);
    bar_->setCurrentRow(static_cast<int>(i));
    screen_changed();
    return true;
  }
  return false;
}

void MainWindow::screen_changed() {
  show_values();
  centred_.reset();
  for (std::size_t i = 0; i < screen_actions_.size(); ++i)
    screen_actions_[i]->setChecked(screen() && made_[i] == screen());
  if (screen() && !jump_box_->hasFocus() && !bar_->hasFocus()) screen()->setFocus();
  refresh_details();
  refresh_actions();
}

void MainWindow::show_values() {
  Screen* shown = screen();
  if (auto* difference = beside_->difference()) shown = difference;
  values_->set_screen(shown);
}

void MainWindow::refresh_details() {
  const QString focus = screen() ? screen()->focus_text() : QString();
  focus_label_->setText(focus);
  details_->set_prompt(screen() ? screen()->prompt_details()
                                : std::vector<std::pair<QString, QString>>());
  details_->set_focus_text(focus);
  details_->set_notes(pins_->notes_at(place_now()));
}

Place MainWindow::place_now() const {
  const Selection& selection = session_.selection().current();
  Place place;
  if (screen()) place.screen = screen()->id().toStdString();
  const auto* profile = session_.profile();
  if (profile && selection.sample < profile->samples().size())
    place.sample = profile->samples()[selection.sample].index;
  place.layer = selection.layer;
  place.head = selection.head;
  place.query = selection.query;
  place.key = selection.key;
  if (selection.region)
    place.region = {selection.region->first_query, selection.region->first_key,
                    selection.region->queries, selection.region->keys};
  if (selection.tokens) place.tokens = {selection.tokens->first, selection.tokens->second};
  place.filter = selection.filter;
  place.maximum = selection.reduction == Reduction::maximum;
  return place;
}

QString MainWindow::link_now() const {
  const auto* profile = session_.profile();
  return QString::fromStdString(link_text({profile ? profile->path().string() : "", place_now()}));
}

void MainWindow::go_to(const Place& place) {
  if (const auto* profile = session_.profile(); profile && !profile->samples().empty()) {
    const auto& samples = profile->samples();
    Selection selection = session_.selection().current();
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (samples[i].index == place.sample) selection.sample = i;
    selection.layer = place.layer;
    selection.head = place.head;
    selection.query = place.query;
    selection.key = place.key;
    selection.region.reset();
    if (place.region) {
      const auto& [query, key, queries, keys] = *place.region;
      selection.region = {query, key, queries, keys};
    }
    selection.tokens.reset();
    if (place.tokens) selection.tokens = {(*place.tokens)[0], (*place.tokens)[1]};
    selection.filter = place.filter;
    selection.reduction = place.maximum ? Reduction::maximum : Reduction::mean;
    session_.selection().set(selection);
  }
  if (!place.screen.empty() && !show_screen(QString::fromStdString(place.screen)))
    emit session_.message(tr("There is no screen “%1”.").arg(QString::fromStdString(place.screen)));
}

void MainWindow::set_look(const QString& look, bool remember) {
  look_ = look == "dark" || look == "light" ? look : "system";
  if (remember) settings_.setValue("look/theme", look_);
  apply_look();
}

void MainWindow::apply_look() {
  Theme theme =
      make_theme(look_ == "dark" || (look_ == "system" && system_is_dark_), session_.theme().font);
  theme.colours = session_.theme().colours;
  apply_theme(*static_cast<QApplication*>(QCoreApplication::instance()), theme);
  session_.set_theme(theme);
  for (const char* name : {"light", "dark", "system"})
    (*actions_)[QStringLiteral("theme.%1").arg(name)]->setChecked(look_ == name);
}

void MainWindow::restore() {
  standard_layout_ = saveState(kLayoutVersion);
  restoreGeometry(settings_.value("window/geometry").toByteArray());
  restore_layout(settings_.value("window/state").toByteArray());
  Theme theme = session_.theme();
  const auto wanted = settings_.value("look/colours").toString();
  for (const auto map : kColourMaps)
    if (wanted == colour_map_name(map) && !is_diverging(map)) theme.colours = map;
  session_.set_theme(theme);
  set_look(settings_.value("look/theme", "system").toString(), false);
  start_->set_recent(settings_.value("files/recent").toStringList());
  const int mib =
      settings_.value("maps/memory_mib", static_cast<int>(TileCache::kDefaultBytes >> 20)).toInt();
  session_.set_tile_bytes(std::int64_t{std::clamp(mib, kLeastTileMib, kMostTileMib)} << 20);
}

void MainWindow::restore_layout(const QByteArray& stored) {
  // Qt reads freed memory where a layout is restored while a dock is being dragged, or where
  // showing a tab of docks lays the window out anew.
  if (auto* dragged = QWidget::mouseGrabber()) {
    QMouseEvent release(QEvent::MouseButtonRelease, {}, QCursor::pos(), Qt::LeftButton,
                        Qt::NoButton, Qt::NoModifier);
    QCoreApplication::sendEvent(dragged, &release);
  }
  layout()->setEnabled(false);
  restoreState(stored, kLayoutVersion);
  layout()->setEnabled(true);
  layout()->invalidate();
}

void MainWindow::set_full_screen(bool on) {
  if (on) {
    layout_before_full_screen_ = saveState(kLayoutVersion);
    was_maximised_ = isMaximized();
    for (auto* dock : findChildren<QDockWidget*>()) dock->hide();
    bar_->hide();
    top_->hide();
    showFullScreen();
  } else {
    bar_->show();
    restore_layout(layout_before_full_screen_);
    was_maximised_ ? showMaximized() : showNormal();
  }
  if (screen()) screen()->setFocus();
}

void MainWindow::closeEvent(QCloseEvent* event) {
  if ((*actions_)["view.full_screen"]->isChecked()) (*actions_)["view.full_screen"]->trigger();
  settings_.setValue("window/geometry", saveGeometry());
  settings_.setValue("window/state", saveState(kLayoutVersion));
  if (screen()) settings_.setValue("window/screen", screen()->id());
  settings_.sync();
  QMainWindow::closeEvent(event);
}

}  // namespace kvatlas::viewer
