// SPDX-License-Identifier: Apache-2.0
// LagKV's screen: score against compression, as calibration wrote them to a document.
#pragma once

#include <memory>

#include "viewer/models/sweep_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class SweepScreen : public LiveScreen {
  Q_OBJECT

 public:
  SweepScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  QString focus_text() const override;

  const SweepView& view() const { return view_; }
  ChartView& chart() const { return *chart_; }
  ChartView& pattern_chart() const { return *pattern_; }

 protected:
  std::string arrays() const override { return "document"; }
  void read() override;
  void compute() override;
  void handle_moved(Handle handle, double value, bool done) override;
  bool needs_profile() const override { return false; }

 private:
  void make_controls();
  void choose(int candidate);
  /// The chosen candidate, or the recommended one if none is chosen.
  std::optional<std::size_t> shown_candidate() const;

  ChartView *chart_, *pattern_;
  QLabel* chosen_;
  std::shared_ptr<const SweepModel> model_;
  SweepView view_;
};

}  // namespace kvatlas::viewer
