// SPDX-License-Identifier: Apache-2.0
// The screen of scores by prompt length and depth.
#pragma once

#include <memory>

#include "viewer/models/needle_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class NeedleScreen : public LiveScreen {
  Q_OBJECT

 public:
  NeedleScreen(Session& session, QWidget* parent);
  bool act(Act act) override;

  ChartView& chart() const { return *chart_; }

 protected:
  std::string arrays() const override { return "documents"; }
  void read() override;
  void compute() override;
  bool needs_profile() const override { return false; }

 private:
  void show_difference(bool on);

  bool difference_ = false;
  QComboBox* score_;
  ChartView* chart_;
  std::shared_ptr<const NeedleModel> model_;
};

}  // namespace kvatlas::viewer
