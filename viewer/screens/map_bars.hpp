// SPDX-License-Identifier: Apache-2.0
// The controls above the grid of heads and above a map.
#pragma once

#include <QToolBar>
#include <cstdint>

#include "viewer/maps/scale.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/screens/compare.hpp"
#include "viewer/screens/head_order.hpp"
#include "viewer/screens/map_subjects.hpp"

class QAction;
class QComboBox;
class QLabel;
class QLineEdit;
class QMenu;

namespace kvatlas::viewer {

class GridBar : public QToolBar {
  Q_OBJECT

 public:
  explicit GridBar(QWidget* parent);

  void show_order(HeadOrder::By by);
  void show_reduction(Reduction reduction);
  void show_about(const QString& text);
  void show_has_baseline(bool has);
  void show_difference(bool on);
  /// Shows the filter in force and what its chip says; without a filter there is no chip.
  void show_filter(const QString& text, const QString& chip);
  void focus_filter();
  /// Switches to the logarithmic scale, or back to the linear one.
  void next_scale();

 signals:
  void order_chosen(kvatlas::viewer::HeadOrder::By by);
  void reduction_chosen(kvatlas::viewer::Reduction reduction);
  void scale_chosen(kvatlas::viewer::ScaleKind kind, bool each_its_own);
  void size_wanted(bool larger);
  void difference_chosen(bool on);
  void filter_chosen(const QString& text);

 protected:
  void keyPressEvent(QKeyEvent* event) override;

 private:
  void scale_changed();

  QComboBox *order_, *reduction_, *scale_;
  QAction *difference_, *chip_;
  QLineEdit* filter_;
  QString in_force_;  // the filter in force, which may differ from what is being typed
  QLabel* about_;
};

class MapBar : public QToolBar {
  Q_OBJECT

 public:
  explicit MapBar(QWidget* parent);

  ScaleKind scale() const;
  bool per_row() const;
  bool masks_sinks() const;
  bool locks() const;
  void next_scale();
  void toggle_sinks();
  void show_reduction(Reduction reduction);
  void show_mean_over(MeanOver mean_over);
  void show_compare(Compare compare);
  void show_has_baseline(bool has);
  /// Sets the selections whose kept keys can be marked, such as "lagkv:sink=4,…", grouped by
  /// method.
  void set_kept_choices(const std::vector<std::string>& labels, int chosen);

 signals:
  void back();
  void scale_changed();
  void lock_toggled(bool on);
  void reduction_chosen(kvatlas::viewer::Reduction reduction);
  void mean_over_chosen(kvatlas::viewer::MeanOver mean_over);
  void compare_chosen(kvatlas::viewer::Compare compare);
  void by_depth_toggled(bool on);
  void window_toggled(bool on);
  void partitions_toggled(bool on);
  void token_texts_toggled(bool on);
  void kept_by_chosen(int selection);
  void rectangle_wanted();
  void copy_wanted();

 private:
  QMenu* add_menu(const QString& name);
  template <class Signal>
  QAction* add_toggle(QMenu* menu, const QString& name, bool on, Signal signal);
  void add_compare();

  QComboBox *scale_, *reduction_, *mean_over_, *compare_;
  QAction *mask_sinks_, *per_row_, *lock_, *compare_action_;
  QMenu* kept_menu_;
};

}  // namespace kvatlas::viewer
