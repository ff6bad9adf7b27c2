// SPDX-License-Identifier: Apache-2.0
// Files that are no good, that are dropped, replaced, deleted, still being written.
#include <QDragEnterEvent>
#include <QDropEvent>
#include <QLabel>
#include <QMimeData>
#include <QPushButton>
#include <QSignalSpy>
#include <QUrl>
#include <fstream>

#include <gtest/gtest.h>

#include "calibrate/policy/policy.hpp"
#include "tests/gui/recording_screen.hpp"

namespace kvatlas::viewer {
namespace {

namespace fs = std::filesystem;
using testing_gui::ShownWindow;
using testing_gui::wait_until;

QString text_of(const fs::path& path) { return QString::fromStdString(path.string()); }

/// Writes a profile beside and gives it the name in one step, as the profiler does.
void replace_profile(const fs::path& path, const calibrate::testing_profile::Shape& shape) {
  const auto other = path.string() + ".new";
  calibrate::testing_profile::write_profile(other, shape);
  fs::rename(other, path);
}

void drop(QWidget& window, const QList<QUrl>& urls) {
  QMimeData data;
  data.setUrls(urls);
  QDragEnterEvent enter({50, 50}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QCoreApplication::sendEvent(&window, &enter);
  EXPECT_TRUE(enter.isAccepted());
  QDropEvent event({50, 50}, Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QCoreApplication::sendEvent(&window, &event);
}

TEST(Files, KeptTokensComeToTheFront) {
  testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "kept.jsonl";
  std::ofstream(path) << R"({"id": "a", "policy": "cut", "tokens": [1], "cache_lengths": [2],)"
                         R"( "prompt_tokens": 2, "cut_after": 2, "positions": [[[[1, 2]]]]})"
                      << '\n';
  Session session;
  MainWindow window(session, folder.path().c_str() + QStringLiteral("/settings.ini"), screens());
  window.show();
  window.open_all({text_of(path)});
  ASSERT_TRUE(wait_until([&] { return window.screen() && window.screen()->id() == "text"; }));
  // A line that is wrong says where.
  std::ofstream(path, std::ios::app) << "{\n";
  QSignalSpy failed(&session, &Session::failed);
  window.open_all({text_of(path)});
  ASSERT_TRUE(wait_until([&] { return !failed.isEmpty(); }));
  EXPECT_TRUE(failed[0][0].toString().contains("kept.jsonl: line 2"));
}

TEST(Files, WhatIsNoProfileLeavesWhatIsOpen) {
  ShownWindow shown;
  const auto folder = shown.small().folder();
  const auto bytes = [&] {
    std::ifstream in(shown.small().profile_path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const auto write = [&](const char* name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
    return folder / name;
  };
  auto changed = bytes;
  const auto schema = changed.find("kvatlas.profile");
  ASSERT_NE(schema, changed.npos);
  changed.replace(schema, 7, "kvother");
  const std::vector<fs::path> files = {
      write("cut.h5", bytes.substr(0, bytes.size() / 2)),
      write("head.h5", bytes.substr(0, 40)),
      write("schema.h5", changed),
      write("picture.png", "\x89PNG\r\n\x1a\n and more"),
      write("newer.json", R"({"schema": "kvatlas.policy/2"})"),
      write("list.json", "[1, 2]"),
      folder / "not_there.h5",
      folder,
  };
  auto* const before = shown.session().profile();
  const auto choices = shown.session().choices().length;
  shown.window().jump("L3");
  for (const auto& file : files) {
    for (auto* banner : shown.window().findChildren<QWidget*>("banner"))
      banner->findChild<QPushButton*>("dismiss")->click();
    shown.window().open_all({text_of(file)});
    ASSERT_TRUE(wait_until([&] { return !shown.window().banners().texts().isEmpty(); })) << file;
    const auto message = shown.window().banners().texts().front();
    EXPECT_TRUE(message.contains(text_of(file.filename()))) << message.toStdString();
    EXPECT_EQ(message.count('\n'), 0) << message.toStdString();
    EXPECT_EQ(shown.session().profile(), before);
    EXPECT_EQ(shown.selection().layer, 3);
    EXPECT_EQ(shown.session().choices().length, choices);
  }
  // The last one, folder, goes when it is told to; its details say that nothing has changed.
  auto* banner = shown.window().findChild<QWidget*>("banner");
  QTest::mouseClick(banner->findChild<QPushButton*>("show_details"), Qt::LeftButton);
  EXPECT_TRUE(banner->findChild<QLabel*>("details")->isVisible());
  QTest::mouseClick(banner->findChild<QPushButton*>("dismiss"), Qt::LeftButton);
  EXPECT_TRUE(shown.window().banners().texts().isEmpty());
}

TEST(Files, DroppedFilesAreOpened) {
  ShownWindow shown;
  const auto other = shown.small().folder() / "other.h5";
  calibrate::testing_profile::write_profile(other, {.samples = 6});
  drop(shown.window(), {QUrl::fromLocalFile(text_of(other))});
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->path() == other; }));
  drop(shown.window(), {QUrl("http://example.org/p.h5")});
  EXPECT_TRUE(shown.window().banners().texts().value(0).contains("no file on this machine"));
  EXPECT_EQ(shown.session().profile()->path(), other);
}

TEST(Files, BaselineComesAndGoes) {
  ShownWindow shown;
  const auto other = shown.small().folder() / "other.h5";
  calibrate::testing_profile::write_profile(other, {.samples = 6});
  EXPECT_FALSE(shown.window().actions()["in.difference"]->isEnabled());
  shown.window().open_all({text_of(other)}, true);
  ASSERT_TRUE(wait_until([&] { return shown.session().baseline() != nullptr; }));
  EXPECT_EQ(shown.window().findChild<QLabel*>("baseline")->text(), "against other.h5");
  EXPECT_TRUE(shown.window().actions()["in.difference"]->isEnabled());
  shown.window().actions()["file.close_baseline"]->trigger();
  EXPECT_EQ(shown.session().baseline(), nullptr);
  EXPECT_FALSE(shown.window().actions()["in.difference"]->isEnabled());
}

TEST(Files, DocumentsAreClosedFromTheirMenu) {
  ShownWindow shown;
  auto& session = shown.session();
  auto* menu = shown.menu("Close document");
  ASSERT_TRUE(menu);
  EXPECT_FALSE(menu->isEnabled());
  std::vector<std::filesystem::path> paths;
  for (const char* name : {"a.json", "b&c.json"}) {
    calibrate::Document document;
    document.model = {"small", "llama", "0123456789abcdef", 4, 4, 2, 8};
    document.sections["simlayerkv"] = calibrate::section_of(calibrate::SimLayerKv{});
    paths.push_back(shown.small().folder() / name);
    calibrate::write_document(document, paths.back(), false);
  }
  shown.window().open_all({text_of(paths[0]), text_of(paths[1])});
  ASSERT_TRUE(wait_until([&] { return session.documents().size() == 2; }));
  EXPECT_TRUE(menu->isEnabled());
  emit menu->aboutToShow();
  ASSERT_EQ(menu->actions().size(), 2);
  EXPECT_TRUE(menu->actions()[1]->text().endsWith("b&&c.json"));
  menu->actions()[0]->trigger();
  ASSERT_EQ(session.documents().size(), 1u);
  EXPECT_EQ(session.documents()[0].path, paths[1]);
  EXPECT_TRUE(shown.window().findChild<QLabel*>("documents")->text().contains("b&c.json"));
}

TEST(Files, AReplacedFileIsOfferedForReload) {
  ShownWindow shown;
  const auto path = shown.small().profile_path();
  shown.window().jump("L2.H3 s4");
  Choices choices = shown.session().choices();
  choices.lazy.threshold = 0.42;
  shown.session().change("threshold", choices);
  replace_profile(path, {.samples = 20});
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return !shown.window().banners().texts().isEmpty(); }));
  EXPECT_TRUE(shown.window().banners().texts().front().contains("has changed on disk"));
  EXPECT_EQ(shown.session().profile()->samples().size(), 12u);  // until it is asked for
  auto* banner = shown.window().findChild<QWidget*>("banner");
  QTest::mouseClick(banner->findChild<QPushButton*>("accept"), Qt::LeftButton);
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->samples().size() == 20; }));
  EXPECT_EQ(shown.selection().layer, 2);  // what was chosen stays
  EXPECT_EQ(shown.selection().sample, 4u);
  EXPECT_EQ(shown.session().choices().lazy.threshold, 0.42);
  EXPECT_TRUE(shown.session().undo().canUndo());
}

TEST(Files, ADeletedFileIsNoticed) {
  ShownWindow shown;
  fs::remove(shown.small().profile_path());
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return !shown.window().banners().texts().isEmpty(); }));
  EXPECT_TRUE(shown.window().banners().texts().front().contains("was deleted"));
  EXPECT_NE(shown.session().profile(), nullptr);
}

/// A profile that is being written: `done` of its samples are in the file, `parts` beside it.
class RunningProfile {
 public:
  explicit RunningProfile(const fs::path& path) : path_(path) {
    const auto whole = path.string() + ".whole";
    calibrate::testing_profile::write_profile(whole, {.samples = 6});
    whole_ = std::make_unique<profile::Reader>(whole);
    header_ = whole_->header();
  }
  /// As after an interruption: p.h5 with these samples, not complete.
  void write(std::size_t samples) {
    profile::Writer writer(path_, header_, {.resume = fs::exists(path_)});
    for (std::size_t i = 0; i < samples; ++i) {
      profile::Sample sample = whole_->samples()[i];
      sample.tokens = whole_->tokens(i);
      for (const auto& about : header_.arrays) {
        if (!whole_->has(i, about.name)) continue;
        if (about.sizes.empty()) continue;
        sample.arrays[about.name] = whole_->array(i, about.name);
      }
      writer.add(sample);
    }
    writer.finish();
  }

 private:
  fs::path path_;
  std::unique_ptr<profile::Reader> whole_;
  profile::Header header_;
};

TEST(Files, AFileThatIsBeingWrittenRefreshesByItself) {
  ShownWindow shown;
  const auto path = shown.small().folder() / "running.h5";
  RunningProfile running(path);
  running.write(2);
  shown.window().open_all({text_of(path)});
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->path() == path; }));
  auto* label = shown.window().findChild<QLabel*>("writing");
  EXPECT_TRUE(label->text().startsWith("2 of 6 samples, still being written"));
  shown.window().jump("L1 s1");
  // A finished sample beside the file is counted.
  fs::create_directories(path.string() + ".parts");
  std::ofstream(path.string() + ".parts/000005.h5") << "x";
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return label->text().contains("1 more beside the file"); }));
  fs::remove_all(path.string() + ".parts");
  running.write(4);
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->samples().size() == 4; }));
  EXPECT_EQ(shown.selection().sample, 1u);
  EXPECT_TRUE(label->isVisible());
  running.write(6);
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->complete(); }));
  EXPECT_FALSE(label->isVisible());
}

TEST(Files, ARunWithoutAFileYetOpensOnceItIsThere) {
  ShownWindow shown;
  const auto path = shown.small().folder() / "soon.h5";
  const auto parts = path.string() + ".parts";
  fs::create_directories(parts);
  fs::copy(shown.small().profile_path(), parts + "/000000.h5");
  shown.window().open_all({text_of(path)});
  ASSERT_TRUE(wait_until([&] { return shown.window().banners().texts().size() == 2; }));
  EXPECT_TRUE(shown.window().banners().texts().join(" ").contains("opens by itself"));
  fs::remove_all(parts);
  replace_profile(path, {.samples = 3});
  shown.window().file_watch().look_now();
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->path() == path; }));
}

TEST(Files, CancelledOpeningsAreDropped) {
  ShownWindow shown;
  const auto other = shown.small().folder() / "other.h5";
  calibrate::testing_profile::write_profile(other, {.samples = 6});
  auto* const before = shown.session().profile();
  QSignalSpy opened(&shown.session(), &Session::opened);
  shown.session().open({other});
  shown.session().cancel_openings();
  ASSERT_TRUE(wait_until([&] { return !opened.isEmpty(); }));
  EXPECT_EQ(shown.session().profile(), before);
}

TEST(Files, RecentFilesAreKept) {
  ShownWindow shown;
  const auto other = shown.small().folder() / "other.h5";
  calibrate::testing_profile::write_profile(other, {.samples = 6});
  shown.window().open_all({text_of(other)});
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->path() == other; }));
  auto* menu = shown.menu("Recent files");
  ASSERT_TRUE(menu);
  emit menu->aboutToShow();
  ASSERT_EQ(menu->actions().size(), 2);
  menu->actions()[1]->trigger();
  ASSERT_TRUE(wait_until(
      [&] { return shown.session().profile()->path() == shown.small().profile_path(); }));
  shown.window().open_all({text_of(other)});
  ASSERT_TRUE(wait_until([&] { return shown.session().profile()->path() == other; }));
  shown.window().close();
  const QSettings settings(shown.settings_file(), QSettings::IniFormat);
  EXPECT_EQ(settings.value("files/recent").toStringList(),
            (QStringList{text_of(other), text_of(shown.small().profile_path())}));
}

}  // namespace
}  // namespace kvatlas::viewer
