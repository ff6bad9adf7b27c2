// SPDX-License-Identifier: Apache-2.0
// The jump box: a line to type a place into, with suggestions below it. After '>' it suggests
// commands instead.
#pragma once

#include <QLineEdit>
#include <functional>
#include <vector>

class QListWidget;

namespace kvatlas::viewer {

struct Suggestion {
  QString title, detail;
  std::function<void()> take;
  bool enabled = true;
};
struct Suggestions {
  std::vector<Suggestion> list;
  QString problem;  // why the list is empty
};

class JumpBox : public QLineEdit {
  Q_OBJECT

 public:
  using Suggest = std::function<Suggestions(const QString&)>;
  JumpBox(Suggest suggest, QWidget* parent);

  /// Moves the keyboard's focus here and sets the text.
  void begin(const QString& text);
  const Suggestions& suggestions() const { return suggestions_; }

 signals:
  void left();  // a suggestion was taken, or Esc was pressed

 protected:
  void keyPressEvent(QKeyEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  void refresh();
  void take(int row);
  void leave();

  Suggest suggest_;
  Suggestions suggestions_;
  QListWidget* list_;
};

}  // namespace kvatlas::viewer
