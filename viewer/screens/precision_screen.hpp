// SPDX-License-Identifier: Apache-2.0
// The screen of number formats: what fewer bits cost each layer, and score against size, as
// calibration wrote them to a document.
#pragma once

#include <memory>

#include "viewer/models/precision_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class PrecisionScreen : public LiveScreen {
  Q_OBJECT

 public:
  PrecisionScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  QString focus_text() const override;

  const PrecisionView& view() const { return view_; }
  ChartView& strip_chart() const { return *strip_; }
  ChartView& curve_chart() const { return *curve_; }

 protected:
  std::string arrays() const override { return "document"; }
  void read() override;
  void compute() override;
  /// The sizes that were tried take the place of a threshold.
  bool move_threshold(double by) override { return walk(by > 0 ? 1 : -1); }
  bool needs_profile() const override { return false; }

 private:
  /// Chooses a point of the curve, or the document's policy if the number is below 0.
  void choose(int point);
  /// Chooses the next smaller or larger point.
  bool walk(int step);
  std::optional<std::size_t> chosen() const;

  ChartView *strip_, *curve_;
  QLabel* chosen_;
  std::shared_ptr<const PrecisionModel> model_;
  PrecisionView view_;
};

}  // namespace kvatlas::viewer
