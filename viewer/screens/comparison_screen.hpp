// SPDX-License-Identifier: Apache-2.0
// Compares policies with each other, and two profiles.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/methods/comparison_model.hpp"
#include "viewer/models/diff_model.hpp"
#include "viewer/screens/live_screen.hpp"

class QListWidget;
class QStackedWidget;

namespace kvatlas::viewer {

class ComparisonScreen : public LiveScreen {
  Q_OBJECT

 public:
  enum class Show : std::uint8_t { policies, profiles, difference };

  ComparisonScreen(Session& session, QWidget* parent);
  Table table() const override;
  bool act(Act act) override;
  QString focus_text() const override;

  void show_kind(Show show);
  Show shown() const { return show_; }
  const ComparisonView& view() const { return view_; }
  const DiffView& diff() const { return diff_; }
  ChartView& pareto_chart() const { return *pareto_; }
  ChartView& memory_chart() const { return *memory_; }
  ChartView& turns_chart() const { return *turns_; }
  QListWidget& changes() const { return *changes_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void handle_moved(Handle, double value, bool) override { set_share(value); }
  bool move_threshold(double by) override;
  bool needs_profile() const override { return false; }

 private:
  void make_charts();
  void show_page(int page, const std::vector<Chart>& charts);
  void show_changes();
  void set_share(double share);
  void choose(int series, int point);
  void choose_front(const ComparedPolicy& policy);
  bool profiles_shown() const { return show_ != Show::policies; }

  Show show_ = Show::policies;
  double share_ = 0.5;  // the share at which policies are compared
  CostAxis cost_ = CostAxis::kept;
  bool by_depth_ = false;
  QStackedWidget* pages_;
  ChartView *pareto_, *equal_, *strips_, *memory_, *turns_, *masses_, *budgets_, *similarity_;
  QListWidget* changes_;
  /// The model, and the one that `view_` points into.
  std::shared_ptr<const ComparisonModel> model_, of_view_;
  std::shared_ptr<const ProfileNumbers> first_, second_;
  ComparisonView view_;
  DiffView diff_;
};

}  // namespace kvatlas::viewer
