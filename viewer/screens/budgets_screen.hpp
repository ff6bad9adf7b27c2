// SPDX-License-Identifier: Apache-2.0
// DynamicKV's screen: how many tokens each layer keeps for each task.
#pragma once

#include <memory>
#include <vector>

#include "viewer/models/budgets_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class BudgetsScreen : public LiveScreen {
  Q_OBJECT

 public:
  BudgetsScreen(Session& session, QWidget* parent);
  bool act(Act act) override { return walk_layers(act); }
  QString focus_text() const override;

  const BudgetsView& view() const { return view_; }
  ChartView& heatmap_chart() const { return *heatmap_; }
  ChartView& lines_chart() const { return *lines_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_selection() override;
  bool move_threshold(double by) override;

 private:
  void make_controls();
  void make_charts();
  /// The profile's budgets that are greater than the window, ascending.
  std::vector<std::int64_t> levels() const;
  int level() const;  // index in levels() of the one nearest to the chosen budget
  void choose_level(int level, bool done);
  std::vector<BudgetChoices> kinds() const;

  ChartView *heatmap_, *lines_, *shares_;
  std::shared_ptr<const BudgetsModel> model_;
  BudgetsView view_;
};

}  // namespace kvatlas::viewer
