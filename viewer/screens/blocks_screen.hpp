// SPDX-License-Identifier: Apache-2.0
// PoD's screen: how alike the layers attend, which blocks a similarity joins, and what these save.
#pragma once

#include <QTimer>
#include <memory>
#include <utility>

#include "viewer/models/blocks_model.hpp"
#include "viewer/screens/live_screen.hpp"

class QTabWidget;

namespace kvatlas::viewer {

class BlocksScreen : public LiveScreen {
  Q_OBJECT

 public:
  BlocksScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  QString focus_text() const override;

  const BlocksView& view() const { return view_; }
  ChartView& matrices_chart() const { return *matrices_; }
  ChartView& enlarged_chart() const { return *enlarged_; }
  ChartView& sweep_chart() const { return *sweep_; }
  ChartView& gate_chart() const { return *gate_; }
  ChartView& rows_chart() const { return *rows_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_choices() override;
  void show_selection() override;
  void handle_moved(Handle handle, double value, bool done) override;

 private:
  void make_controls();
  void make_charts();
  std::int64_t group_of(std::int64_t query_head) const;
  void select_group(std::int64_t group, std::int64_t layer);
  void read_gate();
  void compute_gate();
  void read_pair(std::int64_t layer_a, std::int64_t layer_b);
  void show_note(ChartView& view, const QString& text);

  ChartView *matrices_, *enlarged_, *counts_, *sweep_, *gate_, *rows_;
  QTabWidget* tabs_;
  QDoubleSpinBox *wanted_ = nullptr, *tau_;
  std::shared_ptr<const BlocksModel> model_;
  BlocksView view_;
  std::shared_ptr<const GateModel> gate_model_;
  std::string gate_read_;  // the choices that `gate_model_` was read for
  std::pair<std::int64_t, std::int64_t> pair_{0, 0};
  int pair_generation_ = 0;
  QTimer hover_;
  std::pair<std::int64_t, std::int64_t> hovered_{0, 0};
  /// Tab to go back to when the pointer leaves a cell; -1 if there is none.
  int tab_before_ = -1;
  Latest gate_latest_;  // declared last, so that its thread ends first
};

}  // namespace kvatlas::viewer
