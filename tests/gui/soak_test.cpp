// SPDX-License-Identifier: Apache-2.0
// Thousands of random actions on the whole window. KVATLAS_SOAK: for so many seconds (20);
// KVATLAS_SEED: the seed that a failure printed.
#include <QApplication>
#include <QDialog>
#include <QElapsedTimer>
#include <QLineEdit>
#include <QListWidget>
#include <QMenu>
#include <QPointer>
#include <QTest>
#include <QTimer>
#include <QWheelEvent>
#include <QWindow>
#include <array>
#include <fstream>
#include <iostream>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <random>

#include <gtest/gtest.h>

#include "calibrate/policy/policy.hpp"
#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/frame/main_window.hpp"

namespace kvatlas::viewer {
namespace {

namespace fs = std::filesystem;

/// What Qt complains of that is a defect of ours.
QStringList complaints;
std::mutex complaints_lock;
void note_complaint(QtMsgType type, const QMessageLogContext&, const QString& text) {
  const bool is_ours = text.startsWith("QObject") || text.startsWith("QPainter") ||
                       text.startsWith("QLayout") || text.startsWith("QWidget") ||
                       text.startsWith("QThread") || text.startsWith("QAction");
  if (type != QtCriticalMsg && !(type == QtWarningMsg && is_ours)) return;
  const std::lock_guard lock(complaints_lock);
  if (complaints.size() < 10) complaints << text;
}

std::ptrdiff_t threads_now() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

/// Profiles and a policy that the window opens.
void write_files(const fs::path& folder) {
  using calibrate::testing_profile::write_profile;
  write_profile(folder / "a.h5", {.samples = 9, .short_samples = 2});
  write_profile(folder / "b.h5", {.samples = 3, .js = false});
  testing_gui::write_map_profile(folder / "maps.h5", {300, 200});
  calibrate::Document document;
  document.model = {"small", "llama", "0123456789abcdef", 4, 4, 2, 8};
  document.sections["simlayerkv"] = calibrate::section_of(calibrate::SimLayerKv{});
  calibrate::write_document(document, folder / "policy.json", false);
}

class Soak {
 public:
  explicit Soak(unsigned seed) : random_(seed) {
    write_files(folder_.path());
    calibrate::testing_profile::write_profile(
        path("bare.h5"),
        {.samples = 2, .lazy = false, .js = false, .scores = false, .kept = false});
    std::ofstream(path("bad.h5")) << "\x89HDF\r\n\x1a\n no more";
    std::ofstream(path("bad.json")) << "{";
    window_ =
        std::make_unique<MainWindow>(session_, QString::fromStdString(path("viewer.ini").string()));
    window_->show();
    EXPECT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
    testing_gui::open_and_wait(session_, {path(below(2) ? "a.h5" : "maps.h5")});
  }
  ~Soak() { window_.reset(); }

  void step() {
    switch (below(17)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return key();
      case 4:
      case 5:
      case 6:
        return click();
      case 7:
      case 8:
        return drag();
      case 9:
        return wheel();
      case 10:
        if (const auto& all = screens(); !all.empty())
          window_->show_screen(all[below(static_cast<int>(all.size()))].id);
        return;
      case 11:
        return open();
      case 12:
        below(2) ? session_.undo().undo() : session_.undo().redo();
        return;
      case 13:
        return jump();
      case 14:
        return filter();
      case 15:
        window_->resize(500 + below(1400), 400 + below(700));
        return;
      default:
        QTest::qWait(below(20));
    }
  }

  /// What must hold after every step.
  void check() {
    while (auto* popup = QApplication::activePopupWidget()) popup->close();
    for (auto* widget : QApplication::topLevelWidgets())
      if (qobject_cast<QDialog*>(widget) && below(3) == 0) widget->close();
    const auto& selection = session_.selection().current();
    if (const auto* profile = session_.profile()) {
      ASSERT_LT(selection.sample, profile->samples().size());
      const auto tokens = profile->samples()[selection.sample].n_tokens;
      ASSERT_TRUE(selection.layer >= 0 && selection.layer < profile->header().n_layers);
      ASSERT_TRUE(selection.head >= 0 && selection.head < profile->header().n_heads);
      ASSERT_TRUE(selection.query >= -1 && selection.query < tokens) << selection.query;
      ASSERT_TRUE(selection.key >= -1 && selection.key < tokens) << selection.key;
    }
    const std::lock_guard lock(complaints_lock);
    ASSERT_TRUE(complaints.isEmpty()) << complaints.join("\n").toStdString();
  }
  const std::string& last() const { return last_; }

 private:
  fs::path path(const char* name) const { return folder_.path() / name; }
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }
  QPoint anywhere() { return {below(window_->width()), below(window_->height())}; }

  void key() {
    const auto& all = window_->actions().all();
    auto* action = all[below(static_cast<int>(all.size()))];
    if (action->objectName() == "file.quit") return;
    last_ = action->objectName().toStdString();
    const auto keys = action->shortcuts();
    QWidget* target = QApplication::focusWidget() ? QApplication::focusWidget() : window_.get();
    if (keys.isEmpty() || below(4) == 0) {
      if (action->isEnabled()) action->trigger();
      return;
    }
    const auto key = keys[below(static_cast<int>(keys.size()))][0];
    QTest::sendKeyEvent(QTest::Click, target, key.key(), QString(), key.keyboardModifiers());
  }

  void click() {
    const auto at = anywhere();
    last_ = "click";
    if (at.y() < 24) return;  // menus: their actions are triggered by key()
    const auto modifiers = below(4) == 0 ? Qt::ShiftModifier : Qt::NoModifier;
    if (below(5) == 0)
      QTest::mouseDClick(window_->windowHandle(), Qt::LeftButton, modifiers, at);
    else
      QTest::mouseClick(window_->windowHandle(), Qt::LeftButton, modifiers, at);
  }

  void drag() {
    last_ = "drag";
    auto* handle = window_->windowHandle();
    QTest::mousePress(handle, Qt::LeftButton, below(3) ? Qt::NoModifier : Qt::ControlModifier,
                      {below(window_->width()), 60 + below(window_->height())});
    for (int i = below(6); i >= 0; --i) QTest::mouseMove(handle, anywhere());
    QTest::mouseRelease(handle, Qt::LeftButton, Qt::NoModifier, anywhere());
  }

  void wheel() {
    last_ = "wheel";
    const auto at = anywhere();
    auto* target = window_->childAt(at);
    if (!target) return;
    const QPointF inside(target->mapFrom(window_.get(), at));
    QWheelEvent event(inside, target->mapToGlobal(inside), {}, {0, (below(9) - 4) * 60},
                      Qt::NoButton, Qt::NoModifier, Qt::NoScrollPhase, false);
    QCoreApplication::sendEvent(target, &event);
  }

  void open() {
    static constexpr std::array kNames = {"a.h5",   "b.h5",     "bare.h5",     "a.h5",   "maps.h5",
                                          "bad.h5", "bad.json", "policy.json", "none.h5"};
    const char* name = kNames[below(kNames.size())];
    last_ = std::string("open ") + name;
    const int way = below(5);
    if (way == 0) session_.close_baseline();
    if (way == 1 && !session_.documents().empty()) session_.close_document(0);
    if (way == 2) session_.reload();
    if (way >= 3) window_->open_all({QString::fromStdString(path(name).string())}, below(3) == 0);
  }

  void filter() {
    static constexpr std::array kTexts = {"lazy", "not L0 H1", "sink>0.2", "budget<100",
                                          "H9",   "?",         ""};
    last_ = "filter";
    auto* field = window_->findChild<QLineEdit*>("filter");
    if (!field || !field->isVisible()) return;
    field->setText(kTexts[below(kTexts.size())]);
    QTest::keyClick(field, Qt::Key_Return);
  }

  void jump() {
    static constexpr std::array kTexts = {"L3.H2",
                                          "q120 k7",
                                          "lazy",
                                          "not lazy",
                                          "s2",
                                          "sweep",
                                          "k299",
                                          "L99",
                                          "passkey",
                                          "zzz",
                                          "kvatlas:#at=L2.H1&q=900&k=5&region=10,10,500,500",
                                          "kvatlas:#at=L0.H0&tokens=20,90&filter=not%20lazy"};
    last_ = "jump";
    window_->jump(QString::fromUtf8(kTexts[below(kTexts.size())]));
  }

  std::mt19937 random_;
  testing_support::TemporaryFolder folder_;
  Session session_;
  std::unique_ptr<MainWindow> window_;
  std::string last_;
};

TEST(Soak, RandomActions) {
  const int seconds = qEnvironmentVariableIntValue("KVATLAS_SOAK");
  unsigned seed = qEnvironmentVariableIsSet("KVATLAS_SEED")
                      ? qEnvironmentVariable("KVATLAS_SEED").toUInt()
                      : std::random_device()();
  std::cout << "KVATLAS_SEED=" << seed << std::endl;
  qInstallMessageHandler(note_complaint);
  // A press on a button with a menu does not return before the menu goes.
  QTimer closing;
  QObject::connect(&closing, &QTimer::timeout, [] {
    if (auto* popup = QApplication::activePopupWidget()) popup->close();
  });
  closing.start(100);
  int steps = 0;
  std::ptrdiff_t threads = 0;
  QElapsedTimer time;
  time.start();
  // Windows come and go, too.
  for (int round = 0; time.elapsed() < 1000LL * (seconds > 0 ? seconds : 20); ++round) {
    {
      Soak soak(seed + static_cast<unsigned>(round));
      for (int i = 0; i < 300 && time.elapsed() < 1000LL * (seconds > 0 ? seconds : 20); ++i) {
        soak.step();
        soak.check();
        ++steps;
        if (HasFatalFailure()) {
          std::cout << "round " << round << ", step " << i << ": " << soak.last() << std::endl;
          return;
        }
        if (i % 8 == 0) QCoreApplication::processEvents();
      }
    }
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    // Threads of a window end with it; Qt's own stay.
    if (round == 0) threads = threads_now();
    EXPECT_LE(threads_now(), threads + 4);
  }
  qInstallMessageHandler(nullptr);
  std::cout << steps << " steps" << std::endl;
  EXPECT_GT(steps, 100);
}

/// Bytes of the heap that are in use; 0 under a sanitizer, which has a heap of its own.
std::size_t heap_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Files that are opened, shown on every screen and closed leave nothing behind. KVATLAS_SOAK: they
/// come and go for so many seconds (twenty times).
TEST(Soak, FilesComeAndGo) {
  const testing_support::TemporaryFolder folder;
  const auto path = [&](const char* name) { return folder.path() / name; };
  write_files(folder.path());
  Session session;
  MainWindow window(session, QString::fromStdString(path("viewer.ini").string()));
  window.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&window));
  const auto come_and_go = [&] {
    for (const char* profile : {"a.h5", "maps.h5"}) {
      testing_gui::open_and_wait(session, {path(profile), path("policy.json")});
      testing_gui::open_and_wait(session, {path("b.h5")}, true);
      for (const auto& screen : screens()) {
        window.show_screen(screen.id);
        QTest::qWait(10);
      }
      session.close_baseline();
      while (!session.documents().empty()) session.close_document(0);
      QTest::qWait(50);
    }
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  };
  constexpr int kWarmUp = 8, kTimes = 20;
  const int seconds = qEnvironmentVariableIntValue("KVATLAS_SOAK");
  QElapsedTimer time;
  time.start();
  std::vector<std::size_t> used;
  while (std::ssize(used) < kTimes || time.elapsed() < 1000LL * seconds) {
    come_and_go();
    used.push_back(heap_in_use());
  }
  std::cout << used.size() << " times; KiB in use after " << kWarmUp << ": "
            << used[kWarmUp - 1] / 1024 << ", after the last: " << used.back() / 1024 << std::endl;
  EXPECT_LE(used.back(), used[kWarmUp - 1] + used[kWarmUp - 1] / 100);
}

}  // namespace
}  // namespace kvatlas::viewer
