// SPDX-License-Identifier: Apache-2.0
// The window around the screens: docks, top bar, jump box, looks, what it keeps.
#include "viewer/frame/main_window.hpp"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QDockWidget>
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPushButton>
#include <QScrollBar>
#include <QSpinBox>
#include <QStyleOption>
#include <QTableView>
#include <QTreeWidget>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "tests/gui/recording_screen.hpp"
#include "viewer/screens/control_bar.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {
namespace {

using testing_gui::kRecordingScreens;
using testing_gui::RecordingScreen;
using testing_gui::ShownWindow;
using testing_gui::SmallSession;
using testing_gui::wait_until;

TEST(MainWindow, StartPageUntilSomethingIsOpen) {
  Session session;
  const testing_support::TemporaryFolder folder;
  MainWindow window(session, QString::fromStdString((folder.path() / "v.ini").string()),
                    kRecordingScreens);
  window.show();
  EXPECT_EQ(window.screen(), nullptr);
  EXPECT_FALSE(window.show_screen("one"));
  EXPECT_TRUE(window.findChild<StartPage*>()->isVisible());
  EXPECT_FALSE(window.actions()["file.export_view"]->isEnabled());
  const auto* length = window.findChild<QSpinBox*>("length");
  EXPECT_FALSE(length->isVisible());  // there is nothing yet whose savings it could give
  const auto path = folder.path() / "p.h5";
  calibrate::testing_profile::write_profile(path);
  window.open_all({QString::fromStdString(path.string())});
  ASSERT_TRUE(wait_until([&] { return window.screen() != nullptr; }));
  EXPECT_EQ(window.screen()->id(), "one");
  EXPECT_TRUE(window.windowTitle().contains("small"));
  EXPECT_EQ(window.findChild<QLabel*>("profile")->text(), "p.h5");
  EXPECT_TRUE(wait_until([&] { return length->isVisible(); }));
}

TEST(MainWindow, ScreensAreMadeWhenFirstShown) {
  RecordingScreen::made = 0;
  ShownWindow shown;
  EXPECT_EQ(RecordingScreen::made, 1);
  ASSERT_TRUE(shown.window().show_screen("lazy"));
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
  EXPECT_EQ(RecordingScreen::made, 2);
  ASSERT_TRUE(shown.window().show_screen("one"));
  ASSERT_TRUE(shown.window().show_screen("lazy"));
  EXPECT_EQ(RecordingScreen::made, 2);
  EXPECT_FALSE(shown.window().show_screen("three"));
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
}

TEST(MainWindow, EveryChartHasRoomInAWindowOfAnySize) {
  SmallSession small;
  MainWindow window(small.session(),
                    QString::fromStdString((small.folder() / "viewer.ini").string()));
  window.show();
  std::size_t seen = 0;
  for (const QSize& size :
       {QSize(1024, 700), QSize(1280, 760), QSize(1600, 1000), QSize(2560, 1440)}) {
    window.resize(size);
    for (const auto& entry : screens()) {
      ASSERT_TRUE(window.show_screen(entry.id));
      const auto* live = qobject_cast<LiveScreen*>(window.screen());
      ASSERT_TRUE(wait_until([&] { return !live || live->settled(); })) << entry.id;
      QCoreApplication::processEvents();
      for (const ChartView* view : window.screen()->findChildren<ChartView*>()) {
        if (!view->isVisible()) continue;
        ++seen;
        EXPECT_GE(view->width(), view->minimumSizeHint().width())
            << size.width() << " " << view->accessibleName().toStdString();
        EXPECT_GE(view->height(), view->minimumSizeHint().height())
            << size.width() << " " << view->accessibleName().toStdString();
      }
    }
  }
  EXPECT_GT(seen, 40u);
}

/// How much brighter one colour is than another, from 1 (WCAG's contrast ratio).
double contrast(const QColor& one, const QColor& other) {
  const auto luminance = [](const QColor& colour) {
    const auto linear = [](double part) {
      return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(colour.redF()) + 0.7152 * linear(colour.greenF()) +
           0.0722 * linear(colour.blueF());
  };
  const double a = luminance(one) + 0.05, b = luminance(other) + 0.05;
  return std::max(a, b) / std::min(a, b);
}

TEST(Theme, CheckBoxesAreSeenOnLightAndDarkGrounds) {
  auto& application = *qobject_cast<QApplication*>(QApplication::instance());
  for (const bool dark : {true, false}) {
    apply_theme(application, make_theme(dark, QApplication::font()));
    QCheckBox box(QStringLiteral("a choice"));
    box.resize(box.sizeHint());
    QStyleOptionButton option;
    option.initFrom(&box);
    const QRect indicator =
        box.style()->subElementRect(QStyle::SE_CheckBoxIndicator, &option, &box);
    const QImage image = box.grab().toImage();
    const QColor edge = image.pixelColor(indicator.left(), indicator.center().y());
    EXPECT_GE(contrast(edge, box.palette().color(QPalette::Window)), 3) << dark;
    EXPECT_GE(contrast(edge, image.pixelColor(indicator.center())), 3) << dark;
  }
}

TEST(MainWindow, EveryListedScreenCanBeShown) {
  SmallSession small;
  MainWindow window(small.session(),
                    QString::fromStdString((small.folder() / "viewer.ini").string()));
  window.show();
  for (const auto& entry : screens()) {
    ASSERT_TRUE(window.show_screen(entry.id));
    EXPECT_EQ(window.screen()->id(), entry.id);
    QCoreApplication::processEvents();
  }
}

/// What the controls of a screen stand at, by their names.
std::map<QString, double> settings_of(const Screen& screen) {
  std::map<QString, double> out;
  for (const auto* bar : screen.findChildren<ControlBar*>()) {
    for (const auto* combo : bar->findChildren<QComboBox*>())
      out[combo->objectName()] = combo->currentIndex();
    for (const auto* box : bar->findChildren<QCheckBox*>())
      out[box->objectName()] = box->isChecked();
    for (const auto* box : bar->findChildren<QDoubleSpinBox*>())
      out[box->objectName()] = box->value();
    for (const auto* slider : bar->findChildren<QSlider*>())
      out[slider->objectName()] = slider->value();
  }
  return out;
}

/// Sets a control to something else, as a user does; false if it has one value alone.
bool set_otherwise(QWidget& control) {
  if (auto* combo = qobject_cast<QComboBox*>(&control)) {
    if (combo->count() < 2) return false;
    combo->setCurrentIndex((combo->currentIndex() + 1) % combo->count());
  } else if (auto* box = qobject_cast<QCheckBox*>(&control)) {
    box->toggle();
  } else if (auto* number = qobject_cast<QDoubleSpinBox*>(&control)) {
    const double before = number->value();
    number->stepUp();
    if (number->value() == before) number->stepDown();
    return number->value() != before;
  } else if (auto* slider = qobject_cast<QSlider*>(&control)) {
    slider->setValue(slider->value() > slider->minimum() ? slider->value() - 1 : 1);
  } else {
    return false;
  }
  return true;
}

TEST(MainWindow, EveryControlCanBeChangedAndTakenBack) {
  SmallSession small({.heatmap = true, .values = true, .agreement = true});
  Session& session = small.session();
  MainWindow window(session, QString::fromStdString((small.folder() / "viewer.ini").string()));
  window.resize(1400, 900);
  window.show();
  int taken_back = 0;
  for (const auto& entry : screens()) {
    ASSERT_TRUE(window.show_screen(entry.id));
    QTest::qWait(30);
    for (auto* bar : window.screen()->findChildren<ControlBar*>())
      for (auto* control : bar->findChildren<QWidget*>()) {
        if (!control->isVisible() || !control->isEnabled()) continue;
        SCOPED_TRACE(entry.id + (": " + control->objectName().toStdString()));
        const auto before = settings_of(*window.screen());
        const int steps = session.undo().index();
        if (!set_otherwise(*control)) continue;
        QCoreApplication::processEvents();
        if (session.undo().index() == steps) continue;  // what is shown, but no choice
        EXPECT_EQ(session.undo().index(), steps + 1);
        session.undo().undo();
        QCoreApplication::processEvents();
        EXPECT_EQ(settings_of(*window.screen()), before);
        ++taken_back;
      }
  }
  EXPECT_GT(taken_back, 20);
}

TEST(MainWindow, TreeChoosesLayersHeadsSamplesAndTasks) {
  ShownWindow shown;
  auto* tree = shown.window().findChild<ModelTree*>()->findChild<QTreeWidget*>();
  auto* model = tree->topLevelItem(0);
  auto* samples = tree->topLevelItem(1);
  ASSERT_EQ(model->childCount(), calibrate::testing_profile::kLayers);
  tree->setCurrentItem(model->child(2));
  EXPECT_EQ(shown.selection().layer, 2);
  tree->setCurrentItem(model->child(3)->child(1));
  EXPECT_EQ(shown.selection().layer, 3);
  EXPECT_EQ(shown.selection().head, 1);
  auto* task = samples->child(1);
  tree->setCurrentItem(task);
  EXPECT_EQ(shown.session().choices().task, task->text(0).toStdString());
  tree->setCurrentItem(task->child(1));
  EXPECT_EQ(shown.session().profile()->samples()[shown.selection().sample].id,
            task->child(1)->text(0).toStdString());
  tree->setCurrentItem(samples);
  EXPECT_EQ(shown.session().choices().task, "");
  // A choice elsewhere is followed.
  tree->setCurrentItem(model->child(0));
  Selection selection = shown.selection();
  selection.layer = 2;
  shown.session().selection().set(selection);
  EXPECT_EQ(tree->currentItem(), model->child(2));
}

TEST(MainWindow, LongNamesInTheTreeLeaveWhatIsSaidOfThemInSight) {
  ShownWindow shown;
  auto* tree = shown.window().findChild<ModelTree*>()->findChild<QTreeWidget*>();
  auto* task = tree->topLevelItem(1)->child(0);
  task->setText(0, QString(200, 'n'));
  ASSERT_TRUE(wait_until([&] { return tree->visualItemRect(task).isValid(); }));
  tree->doItemsLayout();
  EXPECT_EQ(tree->horizontalScrollBar()->maximum(), 0);
  EXPECT_GT(tree->columnWidth(1), 0);
  EXPECT_LE(tree->columnViewportPosition(1) + tree->columnWidth(1), tree->viewport()->width());
}

TEST(MainWindow, TreeSearchHidesWhatDoesNotMatch) {
  ShownWindow shown;
  auto* view = shown.window().findChild<ModelTree*>();
  auto* tree = view->findChild<QTreeWidget*>();
  QTest::keyClicks(view->findChild<QLineEdit*>(), "needle");
  EXPECT_TRUE(tree->topLevelItem(0)->isHidden());
  EXPECT_FALSE(tree->topLevelItem(1)->isHidden());
  QTest::keyClick(view->findChild<QLineEdit*>(), Qt::Key_A, Qt::ControlModifier);
  QTest::keyClick(view->findChild<QLineEdit*>(), Qt::Key_Delete);
  EXPECT_FALSE(tree->topLevelItem(0)->isHidden());
}

TEST(MainWindow, LazyLayersAreNamedInTheTree) {
  ShownWindow shown;  // masses 0.3, 0.9, 0.6, 0.8
  Choices choices = shown.session().choices();
  choices.lazy.threshold = 0.7;
  shown.session().change("threshold", choices);
  auto* tree = shown.window().findChild<ModelTree*>()->findChild<QTreeWidget*>();
  const auto words = [&](int layer) { return tree->topLevelItem(0)->child(layer)->text(1); };
  ASSERT_TRUE(wait_until([&] { return words(3).contains("lazy"); }));
  EXPECT_TRUE(words(1).contains("lazy"));
  EXPECT_FALSE(words(0).contains("lazy"));
  EXPECT_FALSE(words(2).contains("lazy"));
  // And found so by the jump box.
  shown.window().jump("not lazy");
  EXPECT_EQ(shown.selection().layer, 2);
  shown.session().undo().undo();  // nothing reaches 0.9 but layer 1
  ASSERT_TRUE(wait_until([&] { return !words(3).contains("lazy"); }));
}

TEST(MainWindow, AtShareZeroALayerThatIsNeverLazyIsNotCalledLazy) {
  ShownWindow shown;
  Choices choices = shown.session().choices();
  choices.lazy.threshold = 0.7;
  choices.lazy.share = 0;
  shown.session().change("share", choices);
  auto* tree = shown.window().findChild<ModelTree*>()->findChild<QTreeWidget*>();
  const auto words = [&](int layer) { return tree->topLevelItem(0)->child(layer)->text(1); };
  ASSERT_TRUE(wait_until([&] { return words(3).contains("lazy"); }));
  EXPECT_TRUE(words(1).contains("lazy"));
  EXPECT_FALSE(words(0).contains("lazy"));
  EXPECT_FALSE(words(2).contains("lazy"));
  shown.window().jump("not lazy");
  EXPECT_EQ(shown.selection().layer, 2);
}

TEST(MainWindow, TopBarSetsTaskAndLengthWithUndo) {
  ShownWindow shown;
  auto* task = shown.window().findChild<QComboBox*>("task");
  ASSERT_EQ(task->count(), 3);  // all, and two tasks
  QTest::keyClick(task, Qt::Key_Down);
  EXPECT_EQ(shown.session().choices().task, "needle");
  auto* length = shown.window().findChild<QSpinBox*>("length");
  const auto before = shown.session().choices().length;
  EXPECT_EQ(length->value(), before);
  length->setValue(8192);
  EXPECT_EQ(shown.session().choices().length, 8192);
  EXPECT_EQ(shown.session().choices().lazy.length, 8192);
  shown.window().actions()["edit.undo"]->trigger();
  EXPECT_EQ(shown.session().choices().length, before);
  EXPECT_EQ(length->value(), before);
  shown.window().actions()["edit.undo"]->trigger();
  EXPECT_EQ(task->currentIndex(), 0);
  EXPECT_FALSE(shown.window().actions()["edit.undo"]->isEnabled());
  shown.window().actions()["edit.redo"]->trigger();
  EXPECT_EQ(shown.session().choices().task, "needle");
}

TEST(MainWindow, DetailsSayWhatIsChosen) {
  ShownWindow shown;
  auto* details = shown.window().findChild<DetailsView*>();
  shown.window().jump("L3.H2 q20 k17 s5");
  EXPECT_TRUE(details->value("Layer").startsWith("3 of 4"));
  EXPECT_EQ(details->value("Head"), "2 of 4 (KV head 1)");
  EXPECT_EQ(details->value("Sample"), "sample 5");
  EXPECT_EQ(details->value("In focus"), "focus of one");
  // All tokens of sample 5 have that id.
  ASSERT_TRUE(wait_until([&] { return details->value("Key").contains("(id 5)"); }));
  EXPECT_TRUE(details->value("Key").startsWith("17"));
}

TEST(MainWindow, ValuesAreSortedAsNumbersAndCopied) {
  ShownWindow shown;
  EXPECT_EQ(shown.screen().tables, 0);  // nobody looks
  shown.window().actions()["view.table"]->trigger();
  auto* values = shown.window().findChild<ValuesView*>();
  ASSERT_TRUE(
      wait_until([&] { return values->isVisible() && values->view().model()->rowCount() == 3; }));
  const QAbstractItemModelTester tester(values->view().model());
  values->view().sortByColumn(0, Qt::AscendingOrder);
  const auto* model = values->view().model();
  EXPECT_EQ(model->index(0, 0).data().toString(), "9");
  EXPECT_EQ(model->index(2, 0).data().toString(), "100");
  EXPECT_EQ(model->index(2, 1).data().toString(), "-");  // not a number
  const auto csv = values->csv();
  EXPECT_TRUE(csv.contains("layer,mass [share],name") || csv.contains("mass")) << csv.toStdString();
  EXPECT_LT(csv.indexOf("9,0.25,c"), csv.indexOf("10,0.5,b"));
  shown.window().actions()["view.table"]->trigger();
  EXPECT_FALSE(values->isVisible());
}

TEST(MainWindow, JumpBoxSuggestsAndGoes) {
  ShownWindow shown;
  auto& box = shown.window().jump_box();
  box.begin({});
  EXPECT_FALSE(box.suggestions().problem.isEmpty());  // what can be typed
  QTest::keyClicks(&box, "L2.H3");
  ASSERT_EQ(box.suggestions().list.size(), 1u);
  QTest::keyClick(&box, Qt::Key_Return);
  EXPECT_EQ(shown.selection().layer, 2);
  EXPECT_EQ(shown.selection().head, 3);
  EXPECT_EQ(box.text(), "");
  box.begin({});
  QTest::keyClicks(&box, "L9");
  EXPECT_TRUE(box.suggestions().list.empty());
  EXPECT_TRUE(box.suggestions().problem.contains("has 4"));
  auto* list = shown.window().findChild<QListWidget*>("suggestions");
  EXPECT_TRUE(list->isVisible());
  QTest::keyClick(&box, Qt::Key_Escape);
  EXPECT_FALSE(list->isVisible());
  box.begin({});
  QTest::keyClicks(&box, "Lazy la");
  QTest::keyClick(&box, Qt::Key_Return);
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
}

TEST(MainWindow, PaletteRunsCommands) {
  ShownWindow shown;
  shown.window().actions()["go.palette"]->trigger();
  auto& box = shown.window().jump_box();
  EXPECT_EQ(box.text(), ">");
  QTest::keyClicks(&box, "dark");
  ASSERT_FALSE(box.suggestions().list.empty());
  EXPECT_EQ(box.suggestions().list.front().title, "Dark");
  QTest::keyClick(&box, Qt::Key_Return);
  EXPECT_TRUE(shown.session().theme().dark);
  shown.window().set_look("light");
}

TEST(MainWindow, LinkLeadsToThePlaceItWasMadeAt) {
  ShownWindow shown;
  shown.window().show_screen("lazy");
  shown.window().jump("L3.H1 q20 s4");
  const QString link = shown.window().link_now();
  shown.window().show_screen("one");
  shown.window().jump("L0.H0 s0");
  shown.window().jump(link);
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
  EXPECT_EQ(shown.selection().layer, 3);
  EXPECT_EQ(shown.selection().query, 20);
  EXPECT_EQ(shown.selection().sample, 4u);
  // What is outside is brought inside.
  shown.window().open_all({"kvatlas:#at=L400.H400&q=100000&sample=99"});
  EXPECT_EQ(shown.selection().layer, 3);
  EXPECT_EQ(shown.selection().query, calibrate::testing_profile::kTokens - 1);
  EXPECT_EQ(shown.selection().sample, 4u);
}

TEST(MainWindow, PinsAndNotesOutliveTheWindow) {
  ShownWindow shown;
  ASSERT_TRUE(wait_until([&] { return true; }));
  shown.window().jump("L2.H1");
  QTest::qWait(50);  // the file beside the profile is read
  shown.window().actions()["edit.pin"]->trigger();
  shown.window().actions()["edit.pin"]->trigger();  // the same once
  ASSERT_EQ(shown.window().pins().sidecar().pins.size(), 1u);
  Place place = shown.window().place_now();
  place.screen.clear();
  shown.window().pins().set_note(place, "looks odd");
  EXPECT_EQ(shown.window().findChild<DetailsView*>()->value("Note"), "looks odd");
  const auto file = sidecar_path(shown.small().profile_path());
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(file); }));
  shown.close();
  shown.reopen();
  ASSERT_TRUE(wait_until([&] { return shown.window().pins().sidecar().notes.size() == 1; }));
  shown.window().jump("L0.H0");
  emit shown.window().pins().wanted(shown.window().pins().sidecar().pins[0].place);
  EXPECT_EQ(shown.selection().layer, 2);
  EXPECT_EQ(shown.window().pins().notes_at(shown.window().place_now()), QStringList{"looks odd"});
}

TEST(MainWindow, ADamagedSidecarIsNotReplaced) {
  SmallSession small;
  const auto file = sidecar_path(small.profile_path());
  std::ofstream(file) << "no JSON";
  MainWindow window(small.session(), QString::fromStdString((small.folder() / "v.ini").string()),
                    kRecordingScreens);
  emit small.session().profile_changed();
  ASSERT_TRUE(wait_until([&] { return !window.banners().texts().isEmpty(); }));
  EXPECT_TRUE(window.banners().texts().front().contains("JSON object"));
  window.actions()["edit.pin"]->trigger();
  EXPECT_TRUE(window.banners().texts().back().contains("is not replaced"));
  EXPECT_EQ(std::filesystem::file_size(file), 7u);
}

TEST(MainWindow, LooksColoursAndLayoutAreKept) {
  ShownWindow shown;
  shown.window().set_look("dark");
  shown.window().findChild<QAction*>("colours.magma")->trigger();
  shown.window().show_screen("lazy");
  auto* dock = shown.window().findChild<QDockWidget*>("dock.details");
  dock->close();
  EXPECT_EQ(shown.session().tile_bytes(), TileCache::kDefaultBytes);
  shown.window().actions()["view.memory"]->trigger();
  auto* memory = shown.window().findChild<QInputDialog*>();
  ASSERT_NE(memory, nullptr);
  memory->setIntValue(64);
  memory->accept();
  shown.session().set_tile_bytes(0);
  shown.window().close();
  shown.close();
  shown.reopen();
  EXPECT_TRUE(shown.session().theme().dark);
  EXPECT_EQ(shown.session().tile_bytes(), std::int64_t{64} << 20);
  EXPECT_EQ(shown.session().theme().colours, ColourMap::magma);
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
  EXPECT_TRUE(shown.window().findChild<QDockWidget*>("dock.details")->isHidden());
  shown.window().actions()["view.reset_layout"]->trigger();
  EXPECT_FALSE(shown.window().findChild<QDockWidget*>("dock.details")->isHidden());
  shown.window().set_look("light");
}

TEST(MainWindow, LayoutsAreSavedByName) {
  ShownWindow shown;
  auto& window = shown.window();
  auto* menu = shown.menu("Layouts");
  ASSERT_TRUE(menu);
  const auto layouts = [&] {
    emit menu->aboutToShow();
    return menu->actions();
  };
  ASSERT_EQ(layouts().size(), 1);
  EXPECT_FALSE(layouts()[0]->isEnabled());
  auto* dock = window.findChild<QDockWidget*>("dock.details");
  dock->close();
  window.actions()["view.save_layout"]->trigger();
  auto* dialog = window.findChild<QInputDialog*>();
  ASSERT_NE(dialog, nullptr);
  dialog->setTextValue(" wide / one ");
  dialog->accept();
  ASSERT_EQ(layouts().size(), 1);
  EXPECT_EQ(layouts()[0]->text(), "wide  one");
  window.actions()["view.reset_layout"]->trigger();
  EXPECT_FALSE(dock->isHidden());
  layouts()[0]->trigger();
  EXPECT_TRUE(dock->isHidden());
}

// The stored layout is that of the window as it was before.
TEST(MainWindow, ClosedInFullScreenItsDocksComeBack) {
  ShownWindow shown;
  QTest::keyClick(&shown.window(), Qt::Key_F11);
  ASSERT_TRUE(shown.window().isFullScreen());
  shown.window().close();
  shown.close();
  shown.reopen();
  EXPECT_FALSE(shown.window().isFullScreen());
  EXPECT_FALSE(shown.window().findChild<QDockWidget*>("dock.model")->isHidden());
  EXPECT_TRUE(shown.window().findChild<QListWidget*>("screens")->isVisible());
}

TEST(MainWindow, FullScreenShowsTheViewAlone) {
  ShownWindow shown;
  auto& window = shown.window();
  QTest::keyClick(&window, Qt::Key_F11);
  EXPECT_TRUE(window.isFullScreen());
  EXPECT_TRUE(window.findChild<QDockWidget*>("dock.model")->isHidden());
  EXPECT_FALSE(window.findChild<QListWidget*>("screens")->isVisible());
  QTest::keyClick(window.screen(), Qt::Key_Escape);  // one step out
  EXPECT_FALSE(window.isFullScreen());
  EXPECT_FALSE(window.findChild<QDockWidget*>("dock.model")->isHidden());
}

// Qt reads freed memory there; gui_main.cpp lets that be seen.
TEST(MainWindow, LayoutsAreRestoredWhileDocksMove) {
  ShownWindow shown;
  auto& window = shown.window();
  window.resize(1000, 700);
  const auto docks = window.findChildren<QDockWidget*>();
  for (auto* dock : docks) dock->show();
  QTest::qWait(20);
  for (const bool released : {true, false})
    for (auto* dock : docks)
      for (const auto* to : docks) {
        if (dock == to) continue;
        const QPoint title = dock->mapTo(&window, QPoint(dock->width() / 3, 8));
        const QPoint target = to->geometry().center();
        auto* handle = window.windowHandle();
        QTest::mousePress(handle, Qt::LeftButton, Qt::NoModifier, title);
        for (int step = 1; step <= 6; ++step)
          QTest::mouseMove(handle, title + (target - title) * step / 6);
        if (released) QTest::mouseRelease(handle, Qt::LeftButton, Qt::NoModifier, target);
        for (int time = 0; time < 2; ++time) window.actions()["view.full_screen"]->trigger();
        window.actions()["view.reset_layout"]->trigger();
        EXPECT_FALSE(dock->isFloating());
        QTest::mouseRelease(handle, Qt::LeftButton, Qt::NoModifier, target);
        for (auto* each : docks) each->show();
        QCoreApplication::processEvents();
      }
}

TEST(MainWindow, Screenshots) {
  ShownWindow shown;
  shown.window().resize(1280, 720);
  shown.window().jump("L2.H1 q20");
  shown.window().banners().show_message(
      {.text = "'/data/q.h5': this is no profile.", .details = "x"});
  shown.window().actions()["view.table"]->trigger();
  QTest::qWait(200);
  testing_gui::grab_screenshots(shown.window(), shown.session(), "window");
}

}  // namespace
}  // namespace kvatlas::viewer
