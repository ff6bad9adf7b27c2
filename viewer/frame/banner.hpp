// SPDX-License-Identifier: Apache-2.0
// Messages at the top of the window that nobody must answer.
#pragma once

#include <QString>
#include <QWidget>
#include <functional>

class QVBoxLayout;

namespace kvatlas::viewer {

class Banners : public QWidget {
  Q_OBJECT

 public:
  explicit Banners(QWidget* parent);

  struct Message {
    QString text, details = {};  // details: shown when asked for
    QString offer = {};          // of a button; empty: none
    std::function<void()> accept = {};
    QString subject = {};  // replaces an earlier message of the same one; empty: the text
    bool is_failure = true;
  };
  void show_message(const Message& message);
  void dismiss(const QString& subject);
  /// What is shown now, the oldest first.
  QStringList texts() const;

 private:
  QVBoxLayout* layout_;
};

}  // namespace kvatlas::viewer
