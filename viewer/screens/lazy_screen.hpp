// SPDX-License-Identifier: Apache-2.0
// SimLayerKV's screen: which layers are lazy at a threshold, and what that saves.
#pragma once

#include <memory>
#include <optional>

#include "viewer/models/lazy_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class LazyScreen : public LiveScreen {
  Q_OBJECT

 public:
  LazyScreen(Session& session, QWidget* parent);
  bool act(Act act) override { return walk_layers(act); }
  QString focus_text() const override;

  const LazyView& view() const { return view_; }
  /// The charts that have a threshold to drag.
  ChartView& masses_chart() const { return *layers_; }
  ChartView& scores_chart() const { return *scores_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_selection() override;

 private:
  void make_controls();
  void make_charts();

  ChartView *layers_, *strip_, *heads_, *scores_;
  std::shared_ptr<const LazyModel> model_;
  /// The number of lazy layers at every threshold, which is computed anew only when something other
  /// than the threshold changes.
  struct CurveCache;
  std::shared_ptr<CurveCache> curve_;
  LazyView view_;
};

}  // namespace kvatlas::viewer
