// SPDX-License-Identifier: Apache-2.0
// The screen of attention maps: all heads as thumbnails, or the map of one of them.
#pragma once

#include "viewer/screens/head_grid.hpp"
#include "viewer/screens/head_order.hpp"
#include "viewer/screens/head_page.hpp"
#include "viewer/screens/screen.hpp"

class QLabel;
class QStackedWidget;

namespace kvatlas::viewer {

class MapsScreen : public Screen {
  Q_OBJECT

 public:
  MapsScreen(Session& session, QWidget* parent);

  PicturePtr picture() const override;
  Table table() const override;
  bool act(Act act) override;
  QString focus_text() const override;

  HeadGrid& grid() { return *grid_; }
  MapView& map() { return head_page_->map(); }
  MapView& baseline_map() { return head_page_->baseline_map(); }
  bool shows_map() const;
  void set_compare(Compare compare) { head_page_->set_compare(compare); }
  Compare compare() const { return head_page_->compare(); }
  void set_mean_over(MeanOver mean_over) { head_page_->set_mean_over(mean_over); }
  void set_order(HeadOrder::By by) { order_->set_by(by); }

 private:
  void make_pages();
  void connect_grid();
  void connect_session();
  void profile_came();
  void selection_came();
  void show_grid();
  void enter(std::int64_t layer, std::int64_t head);
  void show_order();
  void choose_filter(const QString& text);
  void show_filter();
  void set_grid_difference(bool on);
  void show_message(const QString& text);
  void choose(std::int64_t layer, std::int64_t head);
  void choose_reduction(Reduction reduction);

  HeadOrder* order_;
  QStackedWidget* pages_;
  QLabel* message_;
  QWidget* grid_page_;
  GridBar* grid_bar_;
  HeadGrid* grid_;
  HeadPage* head_page_;
};

}  // namespace kvatlas::viewer
