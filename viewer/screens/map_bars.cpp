// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_bars.hpp"

#include <QActionGroup>
#include <QComboBox>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QToolButton>

#include "viewer/screens/control_bar.hpp"

namespace kvatlas::viewer {

namespace {

QComboBox* add_choice(QToolBar& bar, const QString& name, const QStringList& items) {
  auto* choice = new QComboBox(&bar);
  choice->addItems(items);
  choice->setAccessibleName(name);
  choice->setToolTip(name);
  choice->setMinimumHeight(kControlHeight);
  choice->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  bar.addWidget(choice);
  return choice;
}

QAction* add_button(QToolBar& bar, const QString& text, const QString& tip) {
  QAction* action = bar.addAction(text);
  action->setToolTip(tip);
  if (auto* button = bar.widgetForAction(action))
    button->setMinimumSize(kControlHeight, kControlHeight);
  return action;
}

void set_up(QToolBar& bar, const QString& name) {
  bar.setAccessibleName(name);
  bar.setToolButtonStyle(Qt::ToolButtonTextOnly);
  bar.setMinimumHeight(kControlHeight + 6);
}

template <class Bar>
QComboBox* add_reductions(Bar& bar) {
  auto* choice =
      add_choice(bar, Bar::tr("Reduction of blocks"), {Bar::tr("Mean"), Bar::tr("Greatest")});
  QObject::connect(choice, &QComboBox::activated, &bar, [&bar](int row) {
    emit bar.reduction_chosen(row == 0 ? Reduction::mean : Reduction::maximum);
  });
  return choice;
}

}  // namespace

GridBar::GridBar(QWidget* parent) : QToolBar(parent) {
  set_up(*this, tr("Grid of heads"));
  order_ = add_choice(*this, tr("Order of the heads"),
                      {tr("By layer and head"), tr("By sink share"), tr("By recency"),
                       tr("By entropy"), tr("By likeness")});
  order_->setItemData(4, tr("Most like the chosen head first"), Qt::ToolTipRole);
  connect(order_, &QComboBox::activated, this,
          [this](int row) { emit order_chosen(static_cast<HeadOrder::By>(row)); });
  reduction_ = add_reductions(*this);
  scale_ = add_choice(*this, tr("Scale"),
                      {tr("Log, one range"), tr("Linear, one range"), tr("Log, each its own"),
                       tr("Linear, each its own")});
  connect(scale_, &QComboBox::activated, this, &GridBar::scale_changed);
  filter_ = new QLineEdit(this);
  filter_->setObjectName("filter");
  filter_->setPlaceholderText(tr("Filter: lazy, sink>0.5"));
  filter_->setAccessibleName(tr("Filter of the heads"));
  filter_->setToolTip(
      tr("Return hides the heads that do not match all of: lazy, L10, L10-L20, H3, "
         "sink>0.5, recency, entropy, budget; not before one turns it round"));
  filter_->setMinimumHeight(kControlHeight);
  filter_->setFixedWidth(170);
  addWidget(filter_);
  connect(filter_, &QLineEdit::returnPressed, this,
          [this] { emit filter_chosen(filter_->text().simplified()); });
  chip_ = add_button(*this, {}, tr("Clear the filter: show all heads"));
  chip_->setVisible(false);
  connect(chip_, &QAction::triggered, this, [this] { emit filter_chosen({}); });
  connect(add_button(*this, "−", tr("Smaller thumbnails")), &QAction::triggered, this,
          [this] { emit size_wanted(false); });
  connect(add_button(*this, "+", tr("Larger thumbnails")), &QAction::triggered, this,
          [this] { emit size_wanted(true); });
  difference_ = add_button(*this, tr("Difference (B)"), tr("What is more than in the baseline"));
  difference_->setCheckable(true);
  difference_->setVisible(false);
  connect(difference_, &QAction::toggled, this, &GridBar::difference_chosen);
  about_ = new QLabel(this);
  about_->setMargin(6);
  about_->setAccessibleName(tr("Chosen head"));
  addWidget(about_);
}

void GridBar::scale_changed() {
  const int row = scale_->currentIndex();
  emit scale_chosen(row % 2 == 0 ? ScaleKind::log : ScaleKind::linear, row >= 2);
}

void GridBar::next_scale() {
  scale_->setCurrentIndex(scale_->currentIndex() ^ 1);
  scale_changed();
}

void GridBar::show_order(HeadOrder::By by) { order_->setCurrentIndex(static_cast<int>(by)); }
void GridBar::show_reduction(Reduction reduction) {
  reduction_->setCurrentIndex(static_cast<int>(reduction));
}
void GridBar::show_has_baseline(bool has) { difference_->setVisible(has); }
void GridBar::show_difference(bool on) { difference_->setChecked(on); }
void GridBar::focus_filter() {
  filter_->setFocus(Qt::ShortcutFocusReason);
  filter_->selectAll();
}

void GridBar::show_filter(const QString& text, const QString& chip) {
  if (text != in_force_) filter_->setText(text);
  in_force_ = text;
  chip_->setVisible(!text.isEmpty());
  chip_->setText(chip);
}
/// Return in the filter is done with there: it opens no head.
void GridBar::keyPressEvent(QKeyEvent* event) {
  event->setAccepted(event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter);
}

void GridBar::show_about(const QString& text) { about_->setText(text); }

MapBar::MapBar(QWidget* parent) : QToolBar(parent) {
  set_up(*this, tr("Attention map"));
  connect(add_button(*this, tr("‹ All heads"), tr("Back to the grid (Esc)")), &QAction::triggered,
          this, &MapBar::back);
  scale_ = add_choice(*this, tr("Scale"), {tr("Linear"), tr("Log"), tr("Square root"), tr("Rank")});
  scale_->setCurrentIndex(static_cast<int>(ScaleKind::log));
  connect(scale_, &QComboBox::currentIndexChanged, this, &MapBar::scale_changed);
  reduction_ = add_reductions(*this);
  mean_over_ = add_choice(
      *this, tr("What is shown"),
      {tr("One head"), tr("Mean of KV group"), tr("Mean of layer"), tr("Mean of samples")});
  connect(mean_over_, &QComboBox::activated, this,
          [this](int row) { emit mean_over_chosen(static_cast<MeanOver>(row)); });

  QMenu* range = add_menu(tr("Range"));
  mask_sinks_ = add_toggle(range, tr("Mask the sinks (M): first keys not in the range"), false,
                           &MapBar::scale_changed);
  per_row_ = add_toggle(range, tr("Each row by its greatest value"), false, &MapBar::scale_changed);
  lock_ = add_toggle(range, tr("Lock: one range for all maps"), false, &MapBar::lock_toggled);

  QMenu* overlays = add_menu(tr("Overlays"));
  add_toggle(overlays, tr("Sinks and recent window"), false, &MapBar::window_toggled);
  add_toggle(overlays, tr("LagKV partitions"), false, &MapBar::partitions_toggled);
  add_toggle(overlays, tr("Token texts"), true, &MapBar::token_texts_toggled);
  kept_menu_ = overlays->addMenu(tr("Keys kept by"));

  QMenu* region = add_menu(tr("Rectangle"));
  connect(region->addAction(tr("Mark or clear (R, Ctrl+drag)")), &QAction::triggered, this,
          &MapBar::rectangle_wanted);
  connect(region->addAction(tr("Copy its statistics as CSV")), &QAction::triggered, this,
          &MapBar::copy_wanted);
  add_compare();
}

QMenu* MapBar::add_menu(const QString& name) {
  auto* button = new QToolButton(this);
  button->setText(name);
  button->setAccessibleName(name);
  button->setMinimumHeight(kControlHeight);
  button->setPopupMode(QToolButton::InstantPopup);
  auto* menu = new QMenu(button);
  button->setMenu(menu);
  addWidget(button);
  return menu;
}

template <class Signal>
QAction* MapBar::add_toggle(QMenu* menu, const QString& name, bool on, Signal signal) {
  QAction* action = menu->addAction(name);
  action->setCheckable(true);
  action->setChecked(on);
  connect(action, &QAction::toggled, this, signal);
  return action;
}

void MapBar::add_compare() {
  compare_ =
      add_choice(*this, tr("Comparison with the baseline"),
                 {tr("Profile alone"), tr("Side by side"), tr("Difference (B)"), tr("Swipe (V)")});
  compare_action_ = actions().back();
  compare_action_->setVisible(false);
  connect(compare_, &QComboBox::activated, this,
          [this](int row) { emit compare_chosen(static_cast<Compare>(row)); });
  auto* by_depth = new QAction(tr("Pair layers by relative depth"), this);
  by_depth->setCheckable(true);
  connect(by_depth, &QAction::toggled, this, &MapBar::by_depth_toggled);
  compare_->addAction(by_depth);
  compare_->setContextMenuPolicy(Qt::ActionsContextMenu);
}

ScaleKind MapBar::scale() const { return static_cast<ScaleKind>(scale_->currentIndex()); }
bool MapBar::per_row() const { return per_row_->isChecked(); }
bool MapBar::masks_sinks() const { return mask_sinks_->isChecked(); }
bool MapBar::locks() const { return lock_->isChecked(); }

void MapBar::next_scale() {
  const ScaleKind next = scale() == ScaleKind::log ? ScaleKind::linear : ScaleKind::log;
  scale_->setCurrentIndex(static_cast<int>(next));
}

void MapBar::toggle_sinks() { mask_sinks_->toggle(); }
void MapBar::show_reduction(Reduction reduction) {
  reduction_->setCurrentIndex(static_cast<int>(reduction));
}
void MapBar::show_mean_over(MeanOver mean_over) {
  mean_over_->setCurrentIndex(static_cast<int>(mean_over));
}
void MapBar::show_compare(Compare compare) { compare_->setCurrentIndex(static_cast<int>(compare)); }
void MapBar::show_has_baseline(bool has) { compare_action_->setVisible(has); }

void MapBar::set_kept_choices(const std::vector<std::string>& labels, int chosen) {
  // clear() leaves menus within the menu, and groups, to whoever made them.
  kept_menu_->clear();
  for (QObject* old : kept_menu_->findChildren<QObject*>(Qt::FindDirectChildrenOnly))
    if (qobject_cast<QMenu*>(old) || qobject_cast<QActionGroup*>(old)) old->deleteLater();
  auto* group = new QActionGroup(kept_menu_);
  const auto add = [&](QMenu* menu, const QString& name, int selection) {
    QAction* action = menu->addAction(name);
    action->setCheckable(true);
    action->setChecked(selection == chosen);
    group->addAction(action);
    connect(action, &QAction::triggered, this,
            [this, selection] { emit kept_by_chosen(selection); });
  };
  add(kept_menu_, tr("None"), -1);
  QMenu* method = nullptr;
  QString of;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const QString label = QString::fromStdString(labels[i]), name = label.section(':', 0, 0);
    if (!method || name != of) {
      method = kept_menu_->addMenu(name);
      of = name;
    }
    add(method, label.section(':', 1), static_cast<int>(i));
  }
}

}  // namespace kvatlas::viewer
