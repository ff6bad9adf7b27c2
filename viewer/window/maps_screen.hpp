// SPDX-License-Identifier: Apache-2.0
// The screen of attention maps: all heads, or one of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "viewer/maps/head_measures.hpp"
#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/window/head_grid.hpp"
#include "viewer/window/latest.hpp"
#include "viewer/window/map_view.hpp"
#include "viewer/window/screen.hpp"

class QAction;
class QActionGroup;
class QComboBox;
class QLabel;
class QMenu;
class QStackedWidget;
class QToolBar;
class QToolButton;

namespace kvatlas::viewer {

class MapsScreen : public Screen {
  Q_OBJECT

 public:
  MapsScreen(Session& session, QWidget* parent);

  QString id() const override { return "maps"; }
  QString title() const override { return tr("Attention maps"); }
  PicturePtr picture() const override;
  Table table() const override;
  bool act(Act act) override;
  QString focus_text() const override;

  HeadGrid& grid() { return *grid_; }
  MapView& map() { return *map_; }
  MapView& baseline_map() { return *baseline_map_; }
  bool shows_map() const;
  enum class Compare : std::uint8_t { off, side_by_side, difference, swipe };
  void set_compare(Compare compare);
  Compare compare() const { return compare_; }
  enum class MeanOver : std::uint8_t { one, kv_group, layer, samples };
  void set_mean_over(MeanOver mean_over);
  enum class Order : std::uint8_t { index, sink, recency, entropy, likeness };
  void set_order(Order order);
  /// Of the profile's axis of selections: whose kept keys are marked; -1: none.
  void set_kept_by(int selection);

 private:
  /// What the strip of the grid is made of, as far as the profile has it.
  struct Evidence {
    std::optional<LazyModel> lazy;
    std::optional<BudgetsModel> budgets;
    std::optional<BlocksModel> blocks;
  };

  void make_grid_bar(QToolBar& bar);
  void make_map_bar(QToolBar& bar);
  QComboBox* add_choice(QToolBar& bar, const QString& name, const QStringList& items);
  void profile_came();
  void selection_came();
  void show_grid();
  void enter(std::int64_t layer, std::int64_t head);
  void show_subject();
  void show_scale();
  void show_overlays();
  void show_message(const QString& text);
  void read_evidence();
  void make_notes();
  void read_tokens();
  void read_kept();
  void apply_order();
  void fill_kept_menu();
  MapSubject subject(OpenedProfile& profile, bool is_baseline) const;
  QString map_title() const;
  std::string lag_label() const;
  void choose(std::int64_t layer, std::int64_t head);
  void update_readout();

  QStackedWidget* pages_;
  QLabel* message_;
  QWidget *grid_page_, *map_page_;
  HeadGrid* grid_;
  MapView *map_, *baseline_map_;
  QLabel *readout_, *grid_about_;
  QComboBox *order_choice_, *grid_scale_, *scale_choice_, *mean_choice_, *compare_choice_;
  QComboBox* reductions_[2];
  QAction *per_row_, *mask_sinks_, *lock_, *window_, *partitions_, *texts_, *by_depth_;
  QAction* compare_action_;
  QMenu* kept_menu_;
  Latest notes_made_;

  Order order_ = Order::index;
  MeanOver mean_over_ = MeanOver::one;
  Compare compare_ = Compare::off;
  bool in_map_ = false, shown_once_ = false;
  std::optional<Selection> shown_;  // what the map shows now
  std::shared_ptr<const Evidence> evidence_;
  LazyChoices evidence_lazy_;
  std::shared_ptr<const std::vector<HeadMeasures>> measures_;
  std::size_t measured_sample_ = 0;
  int kept_by_ = -1;
  std::vector<KeptLane> kept_lanes_;  // read from the profile
  std::vector<LayerNote> layer_notes_;
};

}  // namespace kvatlas::viewer
