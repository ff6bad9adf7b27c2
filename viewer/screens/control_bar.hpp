// SPDX-License-Identifier: Apache-2.0
// The controls of a screen in a bar above it, which wraps. Each control has its name, a tooltip
// that says what it means, the value that it shows, and what a change of it does. A control that is
// set by code does not report a change.
#pragma once

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSlider>
#include <QWidget>
#include <functional>
#include <vector>

#include "viewer/screens/flow_layout.hpp"

namespace kvatlas::viewer {

inline constexpr int kControlHeight = 26;  // large enough to be hit with a finger

class ControlBar : public QWidget {
  Q_OBJECT

 public:
  struct Words {
    const char* id;                      // the control's objectName
    QString name, hint;                  // the name and the tooltip
    std::function<bool()> enabled = {};  // always, if it is not given
  };
  struct Range {
    double least = 0, most = 1, step = 0.01;
    int decimals = 2;
    QString suffix = {};
    double scale = 1;  // what is shown of the value 1
  };
  /// What a setting of a policy may be, by the table of settings: one that is a number.
  static Range range_of(const char* part, const char* key, double step, int decimals);

  explicit ControlBar(QWidget* parent);

  // `shown` says what a control shows whenever show_values() is called. Without it the control has
  // a value of its own.
  QComboBox* add_combo(const Words& words, const QStringList& items,
                       const std::function<int()>& shown, const std::function<void(int)>& changed);
  /// The items are asked for at show_values(); the chosen one stays chosen if it is still there.
  QComboBox* add_combo(const Words& words, const std::function<QStringList()>& items,
                       const std::function<int()>& shown, const std::function<void(int)>& changed);
  QCheckBox* add_switch(const Words& words, const std::function<bool()>& shown,
                        const std::function<void(bool)>& changed);
  /// `changed` is called at Return, at a step and when the focus is lost, but not at every digit.
  QDoubleSpinBox* add_number(const Words& words, const Range& range,
                             const std::function<double()>& shown,
                             const std::function<void(double)>& changed);
  /// A slider from 0 to `most`; `moved(value, done)` is called while it is dragged.
  QSlider* add_slider(const Words& words, const std::function<int()>& most,
                      const std::function<int()>& shown,
                      const std::function<void(int, bool)>& moved);
  /// A field for words; `changed` is called at every letter.
  QLineEdit* add_field(const Words& words, const std::function<void(const QString&)>& changed);
  QPushButton* add_button(const Words& words, const std::function<void()>& pressed);
  QLabel* add_text(const Words& words);

  /// Lets every control show its value, and be enabled or not.
  void show_values();
  static void set(QComboBox& combo, int index);
  static void set(QDoubleSpinBox& box, double value);

 private:
  std::vector<std::function<void()>> shows_;

  void place(QWidget* control, const Words& words, bool with_label);
};

}  // namespace kvatlas::viewer
