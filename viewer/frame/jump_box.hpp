// SPDX-License-Identifier: Apache-2.0
// A line to type into, with suggestions below it: the jump box, and after '>' the command palette.
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
  QString problem;  // why there are none
};

class JumpBox : public QLineEdit {
  Q_OBJECT

 public:
  using Suggest = std::function<Suggestions(const QString&)>;
  JumpBox(Suggest suggest, QWidget* parent);

  /// Takes the focus, with this text in it.
  void begin(const QString& text);
  const Suggestions& suggestions() const { return suggestions_; }

 signals:
  void left();  // something was taken, or Esc pressed

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
