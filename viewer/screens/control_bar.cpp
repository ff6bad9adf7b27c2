// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/control_bar.hpp"

#include <QHBoxLayout>
#include <QSignalBlocker>
#include <memory>

#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::viewer {

ControlBar::Range ControlBar::range_of(const char* part, const char* key, double step,
                                       int decimals) {
  const auto& allowed = calibrate::setting_named(part, key).allowed;
  if (const auto* whole = std::get_if<calibrate::WholeRange>(&allowed))
    return {static_cast<double>(whole->least), static_cast<double>(whole->most), step, decimals};
  const auto& number = std::get<calibrate::NumberRange>(allowed);
  return {number.least, number.most, step, decimals};
}

ControlBar::ControlBar(QWidget* parent) : QWidget(parent) {
  auto* rows = new FlowLayout(this, 10);
  rows->setContentsMargins(10, 8, 10, 6);
  QSizePolicy policy(QSizePolicy::Preferred, QSizePolicy::Minimum);
  policy.setHeightForWidth(true);
  setSizePolicy(policy);
}

void ControlBar::place(QWidget* control, const Words& words, bool with_label) {
  control->setObjectName(QString::fromLatin1(words.id));
  control->setAccessibleName(words.name);
  control->setAccessibleDescription(words.hint);
  control->setToolTip(words.hint);
  control->setMinimumHeight(kControlHeight);
  if (words.enabled)
    shows_.push_back([control, enabled = words.enabled] { control->setEnabled(enabled()); });
  if (!with_label) {
    layout()->addWidget(control);
    return;
  }
  auto* pair = new QWidget(this);
  auto* beside = new QHBoxLayout(pair);
  beside->setContentsMargins(0, 0, 0, 0);
  beside->setSpacing(5);
  auto* label = new QLabel(words.name, pair);
  label->setBuddy(control);
  label->setToolTip(words.hint);
  beside->addWidget(label);
  beside->addWidget(control);
  layout()->addWidget(pair);
}

QComboBox* ControlBar::add_combo(const Words& words, const std::function<QStringList()>& items,
                                 const std::function<int()>& shown,
                                 const std::function<void(int)>& changed) {
  auto* combo = add_combo(words, QStringList(), {}, changed);
  shows_.push_back([combo, items, shown] {
    QStringList there;
    for (int i = 0; i < combo->count(); ++i) there.push_back(combo->itemText(i));
    if (const QStringList wanted = items(); there != wanted) {
      const QSignalBlocker quiet(combo);
      const QString chosen = combo->currentText();
      combo->clear();
      combo->addItems(wanted);
      combo->setCurrentIndex(combo->findText(chosen));
    }
    if (shown) set(*combo, shown());
  });
  return combo;
}

QComboBox* ControlBar::add_combo(const Words& words, const QStringList& items,
                                 const std::function<int()>& shown,
                                 const std::function<void(int)>& changed) {
  auto* combo = new QComboBox(this);
  combo->addItems(items);
  combo->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  place(combo, words, true);
  connect(combo, &QComboBox::currentIndexChanged, this, [changed](int index) {
    if (index >= 0) changed(index);
  });
  if (shown) shows_.push_back([combo, shown] { set(*combo, shown()); });
  return combo;
}

QCheckBox* ControlBar::add_switch(const Words& words, const std::function<bool()>& shown,
                                  const std::function<void(bool)>& changed) {
  auto* box = new QCheckBox(words.name, this);
  place(box, words, false);
  connect(box, &QCheckBox::toggled, this, changed);
  shows_.push_back([box, shown] {
    const QSignalBlocker quiet(box);
    box->setChecked(shown());
  });
  return box;
}

QDoubleSpinBox* ControlBar::add_number(const Words& words, const Range& range,
                                       const std::function<double()>& shown,
                                       const std::function<void(double)>& changed) {
  auto* box = new QDoubleSpinBox(this);
  box->setDecimals(range.decimals);
  box->setRange(range.least, range.most);
  box->setSingleStep(range.step);
  box->setSuffix(range.suffix);
  box->setKeyboardTracking(false);
  place(box, words, true);
  connect(box, &QDoubleSpinBox::valueChanged, this,
          [changed, scale = range.scale](double value) { changed(value / scale); });
  if (shown) shows_.push_back([box, shown, scale = range.scale] { set(*box, shown() * scale); });
  return box;
}

QSlider* ControlBar::add_slider(const Words& words, const std::function<int()>& most,
                                const std::function<int()>& shown,
                                const std::function<void(int, bool)>& moved) {
  auto* slider = new QSlider(Qt::Horizontal, this);
  slider->setRange(0, 0);
  slider->setMinimumWidth(150);
  place(slider, words, true);
  const auto dragged = std::make_shared<bool>(false);
  connect(slider, &QSlider::valueChanged, this, [slider, moved, dragged](int value) {
    *dragged = slider->isSliderDown();
    moved(value, !*dragged);
  });
  connect(slider, &QSlider::sliderReleased, this, [slider, moved, dragged] {
    if (*dragged) moved(slider->value(), true);
    *dragged = false;
  });
  shows_.push_back([slider, most, shown] {
    const QSignalBlocker quiet(slider);  // a smaller range may move it
    slider->setRange(0, most());
    if (!slider->isSliderDown()) slider->setValue(shown());  // else it leads
  });
  return slider;
}

QLineEdit* ControlBar::add_field(const Words& words,
                                 const std::function<void(const QString&)>& changed) {
  auto* field = new QLineEdit(this);
  field->setClearButtonEnabled(true);
  field->setMinimumWidth(150);
  place(field, words, true);
  connect(field, &QLineEdit::textChanged, this, changed);
  return field;
}

QPushButton* ControlBar::add_button(const Words& words, const std::function<void()>& pressed) {
  auto* button = new QPushButton(words.name, this);
  place(button, words, false);
  connect(button, &QPushButton::clicked, this, pressed);
  return button;
}

QLabel* ControlBar::add_text(const Words& words) {
  auto* label = new QLabel(this);
  place(label, words, false);
  return label;
}

void ControlBar::show_values() {
  for (const auto& show : shows_) show();
}

void ControlBar::set(QComboBox& combo, int index) {
  const QSignalBlocker quiet(combo);
  combo.setCurrentIndex(index);
}

void ControlBar::set(QDoubleSpinBox& box, double value) {
  const QSignalBlocker quiet(box);
  box.setValue(value);
}

}  // namespace kvatlas::viewer
