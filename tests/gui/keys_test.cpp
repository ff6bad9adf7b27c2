// SPDX-License-Identifier: Apache-2.0
// Every key of the table does what the table says, or is disabled; keys can be changed.
#include <QApplication>
#include <QClipboard>
#include <QDialog>
#include <QKeySequenceEdit>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QTreeWidget>
#include <QTreeWidgetItemIterator>
#include <set>

#include <gtest/gtest.h>

#include "tests/gui/recording_screen.hpp"
#include "viewer/frame/keys_dialog.hpp"
#include "viewer/frame/screen_key.hpp"
#include "viewer/screens/screens.hpp"

namespace kvatlas::viewer {
namespace {

using testing_gui::ShownWindow;

void press(QWidget& widget, const QKeySequence& keys) {
  const auto key = keys[0];
  const auto modifiers = key.keyboardModifiers();
  const bool is_typed =
      key.key() < Qt::Key_Escape && (modifiers & ~Qt::ShiftModifier) == Qt::NoModifier;
  QTest::sendKeyEvent(QTest::Click, &widget, key.key(),
                      is_typed ? QString(QChar(key.key())) : QString(), modifiers);
}

TEST(Keys, NoKeyIsGivenTwice) {
  std::map<QString, QString> owners;
  for (const auto& entry : action_table())
    for (const auto& key : Actions::default_keys(entry)) {
      EXPECT_FALSE(key.toString().isEmpty()) << entry.id << " " << entry.keys;
      EXPECT_TRUE(owners.emplace(key.toString(), entry.id).second)
          << entry.id << " and " << owners[key.toString()].toStdString();
    }
}

TEST(Keys, EveryScreenHasAKeyOfItsOwn) {
  std::set<QString> keys;
  for (std::size_t i = 0; i < screens().size(); ++i) {
    const QKeySequence key(screen_key(i));
    EXPECT_FALSE(key.toString().isEmpty()) << screens()[i].id;
    EXPECT_TRUE(keys.insert(key.toString()).second) << screens()[i].id;
  }
  EXPECT_EQ(screen_key(screens().size()), QString());
}

TEST(Keys, EveryKeyTriggersItsAction) {
  ShownWindow shown;
  auto& window = shown.window();
  int pressed = 0;
  for (auto* action : window.actions().all()) {
    if (action->objectName() == "file.quit") continue;
    for (const auto& key : action->shortcuts()) {
      // Those that open something are only seen to do so.
      shown.screen().setFocus();
      QSignalSpy triggered(action, &QAction::triggered);
      const bool enabled = action->isEnabled();
      press(shown.screen(), key);
      EXPECT_EQ(triggered.size(), enabled ? 1 : 0)
          << action->objectName().toStdString() << " by " << key.toString().toStdString();
      ++pressed;
      for (auto* dialog : window.findChildren<QDialog*>()) dialog->close();
      window.jump_box().clear();
      QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
      if (window.isFullScreen()) window.actions()["view.full_screen"]->trigger();
    }
  }
  EXPECT_GT(pressed, 50);
}

TEST(Keys, ActsReachTheScreenInFront) {
  ShownWindow shown;
  for (auto* action : shown.window().actions().all()) {
    const auto& entry = shown.window().actions().entry(action);
    if (!entry.act || !action->isEnabled()) continue;
    shown.screen().acts.clear();
    shown.screen().setFocus();
    press(shown.screen(), action->shortcuts().front());
    ASSERT_EQ(shown.screen().acts, std::vector<Act>{*entry.act}) << entry.id;
  }
}

TEST(Keys, LayersAndHeadsStopAtTheEnds) {
  ShownWindow shown;
  auto& screen = shown.screen();
  screen.setFocus();
  QTest::keyClick(&screen, Qt::Key_PageUp);
  EXPECT_EQ(shown.selection().layer, 0);
  for (int i = 0; i < 6; ++i) QTest::keyClick(&screen, Qt::Key_PageDown);
  EXPECT_EQ(shown.selection().layer, 3);
  for (int i = 0; i < 2; ++i) QTest::keyClick(&screen, Qt::Key_Period);
  EXPECT_EQ(shown.selection().head, 2);
  QTest::keyClick(&screen, Qt::Key_Comma);
  EXPECT_EQ(shown.selection().head, 1);
  QTest::keyClick(&screen, Qt::Key_Left, Qt::AltModifier);
  EXPECT_EQ(shown.selection().head, 2);
  QTest::keyClick(&screen, Qt::Key_Right, Qt::AltModifier);
  EXPECT_EQ(shown.selection().head, 1);
}

TEST(Keys, CentreThenFit) {
  ShownWindow shown;
  shown.screen().setFocus();
  QTest::keyClick(&shown.screen(), Qt::Key_F);
  QTest::keyClick(&shown.screen(), Qt::Key_F);
  EXPECT_EQ(shown.screen().acts, (std::vector<Act>{Act::centre, Act::fit}));
  shown.window().jump("L2");  // another selection: centre again
  shown.screen().setFocus();
  QTest::keyClick(&shown.screen(), Qt::Key_F);
  EXPECT_EQ(shown.screen().acts.back(), Act::centre);
}

TEST(Keys, LettersAreTextInTextFields) {
  ShownWindow shown;
  auto& box = shown.window().jump_box();
  QSignalSpy pinned(shown.window().actions()["edit.pin"], &QAction::triggered);
  box.begin({});
  for (const char letter : {'p', 'l', 'w', 't'}) QTest::keyClick(&box, letter);
  EXPECT_EQ(box.text(), "plwt");
  EXPECT_TRUE(pinned.isEmpty());
  EXPECT_TRUE(shown.screen().acts.empty());
}

TEST(Keys, ScreensHaveNumbers) {
  ShownWindow shown;
  QTest::keyClick(&shown.window(), Qt::Key_2, Qt::ControlModifier);
  EXPECT_EQ(shown.window().screen()->id(), "lazy");
  QTest::keyClick(&shown.window(), Qt::Key_1, Qt::ControlModifier);
  EXPECT_EQ(shown.window().screen()->id(), "one");
}

/// The sheet of keys, opened by its own.
KeysDialog* opened_sheet(ShownWindow& shown) {
  shown.screen().setFocus();
  QTest::keyClick(&shown.screen(), Qt::Key_Question);
  return shown.window().findChild<KeysDialog*>();
}

TEST(Keys, SheetListsAllAndChangesThem) {
  ShownWindow shown;
  auto& actions = shown.window().actions();
  auto* sheet = opened_sheet(shown);
  ASSERT_NE(sheet, nullptr);
  auto* tree = sheet->findChild<QTreeWidget*>("keys");
  std::size_t listed = 0;
  QTreeWidgetItem* pin = nullptr;
  for (int g = 0; g < tree->topLevelItemCount(); ++g)
    for (int i = 0; i < tree->topLevelItem(g)->childCount(); ++i, ++listed)
      if (tree->topLevelItem(g)->child(i)->data(0, Qt::UserRole) == "edit.pin")
        pin = tree->topLevelItem(g)->child(i);
  EXPECT_EQ(listed, action_table().size());
  ASSERT_NE(pin, nullptr);
  EXPECT_EQ(pin->text(1), "P");
  tree->setCurrentItem(pin);
  sheet->findChild<QKeySequenceEdit*>()->setKeySequence(QKeySequence("N"));
  QTest::mouseClick(sheet->findChild<QPushButton*>("set"), Qt::LeftButton);
  EXPECT_TRUE(sheet->findChild<QLabel*>("problem")->text().contains("taken"));
  EXPECT_EQ(actions["edit.pin"]->shortcut(), QKeySequence("P"));
  sheet->findChild<QKeySequenceEdit*>()->setKeySequence(QKeySequence("Ctrl+Alt+P"));
  QTest::mouseClick(sheet->findChild<QPushButton*>("set"), Qt::LeftButton);
  EXPECT_EQ(actions["edit.pin"]->shortcut(), QKeySequence("Ctrl+Alt+P"));
  sheet->close();
  shown.close();
  shown.reopen();  // kept
  EXPECT_EQ(shown.window().actions()["edit.pin"]->shortcut(), QKeySequence("Ctrl+Alt+P"));
  shown.window().actions().reset_keys();
  EXPECT_EQ(shown.window().actions()["edit.pin"]->shortcut(), QKeySequence("P"));
}

TEST(Keys, SheetIsSearchedAndAddsAndResets) {
  ShownWindow shown;
  auto& actions = shown.window().actions();
  auto* sheet = opened_sheet(shown);
  ASSERT_NE(sheet, nullptr);
  auto* tree = sheet->findChild<QTreeWidget*>("keys");
  const auto button = [&](const QString& text) {
    for (auto* found : sheet->findChildren<QPushButton*>())
      if (found->text() == text) return found;
    return static_cast<QPushButton*>(nullptr);
  };
  const auto item_of = [&](const char* id) {
    for (QTreeWidgetItemIterator it(tree); *it; ++it)
      if ((*it)->data(0, Qt::UserRole) == id) return *it;
    return static_cast<QTreeWidgetItem*>(nullptr);
  };
  tree->setCurrentItem(nullptr);
  button("Set key")->click();
  EXPECT_EQ(sheet->findChild<QLabel*>("problem")->text(), "Choose an action first.");
  sheet->findChild<QLineEdit*>()->setText(item_of("edit.pin")->text(0));
  EXPECT_FALSE(item_of("edit.pin")->isHidden());
  EXPECT_TRUE(item_of("edit.copy_link")->isHidden());
  sheet->findChild<QLineEdit*>()->clear();
  EXPECT_FALSE(item_of("edit.copy_link")->isHidden());
  tree->setCurrentItem(item_of("edit.pin"));
  sheet->findChild<QKeySequenceEdit*>()->setKeySequence(QKeySequence("Ctrl+Alt+P"));
  button("Add key")->click();
  EXPECT_EQ(actions["edit.pin"]->shortcuts(),
            (QList<QKeySequence>{QKeySequence("P"), QKeySequence("Ctrl+Alt+P")}));
  sheet->findChild<QKeySequenceEdit*>()->clear();
  button("Set key")->click();
  EXPECT_TRUE(actions["edit.pin"]->shortcuts().isEmpty());
  button("Standard keys")->click();
  EXPECT_EQ(actions["edit.pin"]->shortcut(), QKeySequence("P"));
}

TEST(Keys, CopiedDataAndLink) {
  ShownWindow shown;
  shown.window().actions()["edit.copy_data"]->trigger();
  EXPECT_TRUE(QGuiApplication::clipboard()->text().contains("10,0.5,b"));
  shown.window().actions()["edit.copy_link"]->trigger();
  EXPECT_EQ(QGuiApplication::clipboard()->text(), shown.window().link_now());
  shown.window().actions()["edit.copy_image"]->trigger();
  EXPECT_FALSE(QGuiApplication::clipboard()->image().isNull());
}

}  // namespace
}  // namespace kvatlas::viewer
