// SPDX-License-Identifier: Apache-2.0
// What the screens of policies share: arrays are read where the choices that decide them change, a
// view of them is computed off the UI thread at every other change, handles change choices. What
// comes late, of another profile or of older arrays, is dropped.
#pragma once

#include <QString>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/draw/chart_view.hpp"
#include "viewer/screens/control_bar.hpp"
#include "viewer/screens/screen.hpp"
#include "viewer/threads/latest.hpp"

class QLabel;
class QStackedWidget;

namespace kvatlas::viewer {

class LiveScreen : public Screen {
  Q_OBJECT

 public:
  LiveScreen(Session& session, QWidget* parent);

  PicturePtr picture() const override;  // the charts that have something to show
  std::vector<Chart> charts() const override;
  Table table() const override;  // of the first of them
  bool act(Act act) override;

  /// Nothing is read or computed, and what is shown is of the present choices.
  bool settled() const;
  /// The sentence shown in the place of charts; empty while charts are shown.
  QString message() const;

 signals:
  void settled_changed();

 protected:
  /// Text of all choices that decide which arrays are read.
  virtual std::string arrays() const = 0;
  /// Reads them, through read_model().
  virtual void read() = 0;
  /// Asks for the view of the model and the choices, through compute_view().
  virtual void compute() = 0;
  /// Sets the controls.
  virtual void show_choices() = 0;
  /// Shows another layer or sample; by default nothing depends on them.
  virtual void show_selection() {}
  /// The keys of the threshold.
  virtual bool move_threshold(double by) = 0;
  virtual bool needs_profile() const { return true; }

  /// At the end of a constructor.
  void start();
  ControlBar& bar() { return *bar_; }
  QWidget* page() const { return page_; }  // the charts' place, below the bar
  /// Those of picture() and table(), in order.
  ChartView* add_chart(const QString& name);
  /// Shown, exported and in tables; a chart without content is hidden.
  static void set_chart(ChartView& view, Chart chart);
  void show_message(const QString& text);

  template <class Work, class Take>
  void read_model(Work work, Take take);
  template <class Make, class Take>
  void compute_view(Make make, Take take);
  /// The model is there; read_model() says so itself.
  void model_arrived();
  /// Instead: the model is not there yet; arrays() changes when it comes.
  void wait_for_model() { reading_ = true; }
  /// In place of read_model() where the model is one of the session's evidence.
  template <class Model>
  void take_model(const OrReason<Model>& found, std::shared_ptr<const Model>& into);
  /// read() and compute() anew.
  void read_again();

  /// One undo step; the moves of one drag are one step.
  template <class Set>
  void change(const QString& name, Set set, bool going_on = false);
  template <class Set>
  void drag(const QString& name, bool done, Set set);
  void select_layer(std::int64_t layer);

  /// initial x recent as the profile has them: words, and the row of a choice (-1: none).
  QStringList proximity_words() const;
  int proximity_row(kernels::Proximity keep) const;
  kernels::Proximity proximity_at(int row) const;

  void showEvent(QShowEvent* event) override;

 private:
  void refresh();
  void failed(int generation, const std::string& text);
  const profile::AxisTable* proximities() const;

  ControlBar* bar_;
  QStackedWidget* pages_;
  QWidget* page_;
  QLabel* message_;
  std::vector<ChartView*> charts_;
  std::optional<std::string> read_;  // arrays() of what was read or is being read
  int generation_ = 0;
  bool has_model_ = false, reading_ = false, stale_ = true, dragging_ = false;
  bool computing_ = false;  // until the result is shown
  Latest latest_;           // last: its thread ends first
};

/// A faint line at the chosen layer, where x are layers.
Chart with_layer(Chart chart, std::int64_t layer);

template <class Work, class Take>
void LiveScreen::read_model(Work work, Take take) {
  const int generation = generation_;
  reading_ = true;
  session().profile()->read(
      this, std::move(work),
      [this, generation, take = std::move(take)](auto model) {
        if (generation != generation_) return;
        take(std::move(model));
        model_arrived();
      },
      [this, generation](const std::string& text) { failed(generation, text); });
}

template <class Model>
void LiveScreen::take_model(const OrReason<Model>& found, std::shared_ptr<const Model>& into) {
  wait_for_model();
  if (!found.reason.empty()) failed(generation_, found.reason);
  if (!found.model) return;
  into = found.model;
  model_arrived();
}

template <class Make, class Take>
void LiveScreen::compute_view(Make make, Take take) {
  computing_ = true;
  latest_.request([this, generation = generation_, make = std::move(make), take = std::move(take)] {
    auto view = std::make_shared<decltype(make())>(make());
    return [this, generation, view, take] {
      if (generation != generation_) return;
      show_message({});
      take(std::move(*view));
      emit content_changed();
    };
  });
}

template <class Set>
void LiveScreen::change(const QString& name, Set set, bool going_on) {
  Choices choices = session().choices();
  choices.front = {};  // what is set by hand is no point of a front
  set(choices);
  session().change(name, choices, going_on);
}

template <class Set>
void LiveScreen::drag(const QString& name, bool done, Set set) {
  change(name, std::move(set), dragging_);
  dragging_ = !done;
}

}  // namespace kvatlas::viewer
