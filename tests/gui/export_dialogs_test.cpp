// SPDX-License-Identifier: Apache-2.0
// A view and a policy as files, and never over what is there without asking.
#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QImage>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QThread>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/str.hpp"
#include "tests/gui/recording_screen.hpp"
#include "viewer/frame/export_view_dialog.hpp"
#include "viewer/frame/policy_dialog.hpp"

namespace kvatlas::viewer {
namespace {

namespace fs = std::filesystem;
using testing_gui::ShownWindow;
using testing_gui::wait_until;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

template <class Dialog>
Dialog* opened_by(MainWindow& window, const char* action) {
  window.actions()[action]->trigger();
  auto all = window.findChildren<Dialog*>();
  return all.isEmpty() ? nullptr : all.last();
}

TEST(ExportView, WritesTheFormatsAndAsksBeforeReplacing) {
  ShownWindow shown;
  const auto folder = shown.small().folder();
  for (const auto& [format, name] :
       {std::pair(0, "v.png"), std::pair(1, "v.svg"), std::pair(2, "v.csv")}) {
    auto* dialog = opened_by<ExportViewDialog>(shown.window(), "file.export_view");
    ASSERT_NE(dialog, nullptr);
    dialog->findChild<QComboBox*>("format")->setCurrentIndex(format);
    dialog->findChild<QLineEdit*>("path")->setText(
        QString::fromStdString((folder / name).string()));
    QTest::mouseClick(dialog->findChild<QPushButton*>("save"), Qt::LeftButton);
    ASSERT_TRUE(fs::exists(folder / name))
        << dialog->findChild<QLabel*>("problem")->text().toStdString();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  }
  const QImage image(QString::fromStdString((folder / "v.png").string()));
  EXPECT_FALSE(image.isNull());
  EXPECT_TRUE(content_of(folder / "v.csv").find("10,0.5,b") != std::string::npos);
  EXPECT_TRUE(content_of(folder / "v.csv").find("0123456789abcdef") != std::string::npos);
  EXPECT_TRUE(content_of(folder / "v.svg").find("<svg") != std::string::npos);
  // There now: the button says what it would do.
  auto* again = opened_by<ExportViewDialog>(shown.window(), "file.export_view");
  auto* save = again->findChild<QPushButton*>("save");
  EXPECT_EQ(save->text(), "Save");
  again->findChild<QLineEdit*>("path")->setText(
      QString::fromStdString((folder / "v.png").string()));
  EXPECT_EQ(save->text(), "Replace");
  again->findChild<QDoubleSpinBox*>("scale")->setValue(1);
  QTest::mouseClick(save, Qt::LeftButton);
  const QImage smaller(QString::fromStdString((folder / "v.png").string()));
  EXPECT_EQ(smaller.width() * 2, image.width());
}

TEST(ExportView, AFailureIsSaidInTheDialog) {
  ShownWindow shown;
  auto* dialog = opened_by<ExportViewDialog>(shown.window(), "file.export_view");
  dialog->findChild<QLineEdit*>("path")->setText("/nowhere/at/all.png");
  QTest::mouseClick(dialog->findChild<QPushButton*>("save"), Qt::LeftButton);
  EXPECT_FALSE(dialog->findChild<QLabel*>("problem")->text().isEmpty());
  EXPECT_TRUE(dialog->isVisible());
}

TEST(SavePolicy, WritesTheChoicesAsADocument) {
  ShownWindow shown;
  Choices choices = shown.session().choices();
  choices.lazy.threshold = 0.7;
  shown.session().change("threshold", choices);
  auto* dialog = opened_by<PolicyDialog>(shown.window(), "file.save_policy");
  ASSERT_NE(dialog, nullptr);
  const auto path = shown.small().folder() / "mine.json";
  dialog->findChild<QLineEdit*>("where")->setText(QString::fromStdString(path.string()));
  auto* write = dialog->findChild<QPushButton*>("write");
  ASSERT_TRUE(wait_until([&] { return dialog->is_settled(); }));
  ASSERT_TRUE(write->isEnabled()) << dialog->findChild<QLabel*>("problem")->text().toStdString();
  QTest::mouseClick(write, Qt::LeftButton);
  ASSERT_TRUE(wait_until([&] { return fs::exists(path); }));
  const auto document = calibrate::read_document(path);
  const auto part = calibrate::part_of("simlayerkv", document.sections.at("simlayerkv"));
  EXPECT_EQ(std::get<calibrate::SimLayerKv>(part).threshold, 0.7);
}

TEST(SavePolicy, AnOlderPreviewIsNotTakenForTheNewOne) {
  ShownWindow shown;
  auto* dialog = opened_by<PolicyDialog>(shown.window(), "file.save_policy");
  ASSERT_NE(dialog, nullptr);
  ASSERT_TRUE(wait_until([&] { return dialog->is_settled(); }));
  for (int i = 0; i < 20; ++i) {
    const auto older = shown.small().folder() / str("older", i, ".json"),
               newer = shown.small().folder() / str("newer", i, ".json");
    auto* where = dialog->findChild<QLineEdit*>("where");
    where->setText(QString::fromStdString(older.string()));
    QThread::msleep(20);  // its result waits to be shown
    where->setText(QString::fromStdString(newer.string()));
    ASSERT_TRUE(wait_until([&] { return dialog->is_settled(); }));
    ASSERT_EQ(dialog->targets().front().path, newer);
  }
}

TEST(ExportPolicy, ShowsFilesAndAsksBeforeReplacing) {
  ShownWindow shown;
  const auto folder = shown.small().folder() / "out";
  const auto open_dialog = [&] {
    auto* dialog = opened_by<PolicyDialog>(shown.window(), "file.export_policy");
    dialog->findChild<QLineEdit*>("where")->setText(QString::fromStdString(folder.string()));
    auto* runtime = dialog->findChild<QComboBox*>("runtime");
    runtime->setCurrentIndex(runtime->findData("transformers-cache"));
    EXPECT_TRUE(wait_until([&] { return dialog->is_settled() && !dialog->targets().empty(); }))
        << dialog->findChild<QLabel*>("problem")->text().toStdString();
    return dialog;
  };
  auto* dialog = open_dialog();
  const auto targets = dialog->targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(dialog->findChild<QListWidget*>("files")->count(), static_cast<int>(targets.size()));
  EXPECT_FALSE(dialog->findChild<QPlainTextEdit*>("remarks")->toPlainText().isEmpty());
  EXPECT_FALSE(dialog->findChild<QPlainTextEdit*>("preview")->toPlainText().isEmpty());
  QTest::mouseClick(dialog->findChild<QPushButton*>("write"), Qt::LeftButton);
  ASSERT_TRUE(wait_until([&] { return fs::exists(targets.back().path); }));
  for (const auto& target : targets) EXPECT_EQ(content_of(target.path), target.content);
  // Something else lies there: shown as a difference, and kept until it is allowed.
  std::ofstream(targets.front().path) << "mine\n";
  dialog = open_dialog();
  auto* write = dialog->findChild<QPushButton*>("write");
  EXPECT_FALSE(write->isEnabled());
  EXPECT_TRUE(dialog->findChild<QPlainTextEdit*>("preview")->toPlainText().contains("- mine"));
  dialog->findChild<QCheckBox*>("replace")->setChecked(true);
  EXPECT_TRUE(write->isEnabled());
  QTest::mouseClick(write, Qt::LeftButton);
  ASSERT_TRUE(
      wait_until([&] { return content_of(targets.front().path) == targets.front().content; }));
}

TEST(ExportPolicy, BeginsWithThePolicyOfACard) {
  ShownWindow shown;
  emit shown.screen().export_wanted("pod");
  const auto dialogs = shown.window().findChildren<PolicyDialog*>();
  ASSERT_EQ(dialogs.size(), 1);
  const auto* section = dialogs.front()->findChild<QComboBox*>("section");
  ASSERT_TRUE(wait_until([&] { return section->count() > 1; }));
  EXPECT_EQ(section->currentData().toString(), "pod");
}

TEST(ExportPolicy, SaysWhatARuntimeCannotTake) {
  ShownWindow shown;
  auto* dialog = opened_by<PolicyDialog>(shown.window(), "file.export_policy");
  ASSERT_TRUE(wait_until([&] { return dialog->is_settled(); }));
  auto* runtime = dialog->findChild<QComboBox*>("runtime");
  int refusing = 0;
  for (int i = 0; i < runtime->count(); ++i) {
    runtime->setCurrentIndex(i);
    ASSERT_TRUE(wait_until([&] { return dialog->is_settled(); }));
    const auto problem = dialog->findChild<QLabel*>("problem")->text();
    if (dialog->targets().empty()) {
      ++refusing;
      EXPECT_FALSE(problem.isEmpty()) << runtime->currentText().toStdString();
      EXPECT_FALSE(dialog->findChild<QPushButton*>("write")->isEnabled());
    }
  }
  EXPECT_GT(refusing, 0);
}

}  // namespace
}  // namespace kvatlas::viewer
