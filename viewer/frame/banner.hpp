// SPDX-License-Identifier: Apache-2.0
// Messages at the top of the window, which stay until they are dismissed but need no answer.
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
    QString text;
    QString details = {};               // shown when the button "Details" is pressed
    QString offer = {};                 // text of a further button; empty: there is none
    std::function<void()> accept = {};  // what that button does
    QString subject = {};  // replaces an earlier message with the same subject; empty: the text
    bool is_failure = true;
  };
  void show_message(const Message& message);
  void dismiss(const QString& subject);
  /// The texts of the messages that are shown, the oldest first.
  QStringList texts() const;

 private:
  QVBoxLayout* layout_;
};

}  // namespace kvatlas::viewer
