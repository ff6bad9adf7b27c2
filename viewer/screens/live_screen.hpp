// SPDX-License-Identifier: Apache-2.0
// What the screens of policies share. Their model is read anew when the choices that it depends on
// change. At every other change a view of the model is computed outside the UI thread. Dragged
// handles change the choices. Results that come late, for another profile or an older model, are
// dropped.
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

  /// All charts that show something, one below the other.
  PicturePtr picture() const override;
  std::vector<Chart> charts() const override;
  Table table() const override;  // the table of the first of these charts
  bool act(Act act) override;

  /// Whether nothing is being read or computed, so that the present choices are shown.
  bool settled() const;
  /// The sentence that is shown in place of the charts; empty while charts are shown.
  QString message() const;

 signals:
  void settled_changed();

 protected:
  /// A text that is different whenever another model has to be read.
  virtual std::string arrays() const = 0;
  /// Starts reading the model, with read_model() or take_model().
  virtual void read() = 0;
  /// Asks for a view of the model at the present choices, with compute_view().
  virtual void compute() = 0;
  /// Sets the controls to the present choices.
  virtual void show_choices() = 0;
  /// Shows that another layer or sample is selected; does nothing by default.
  virtual void show_selection() {}
  /// Moves the threshold, for the keys that do so; false if the screen has none.
  virtual bool move_threshold(double by) = 0;
  virtual bool needs_profile() const { return true; }

  /// To be called at the end of a constructor.
  void start();
  ControlBar& bar() { return *bar_; }
  QWidget* page() const { return page_; }  // the place of the charts below the bar
  /// Adds a chart; picture() and table() follow the order in which charts were added.
  ChartView* add_chart(const QString& name);
  /// Shows a chart, which is then exported and in tables too; a chart without content is hidden.
  static void set_chart(ChartView& view, Chart chart);
  void show_message(const QString& text);

  template <class Work, class Take>
  void read_model(Work work, Take take);
  template <class Make, class Take>
  void compute_view(Make make, Take take);
  /// To be called when the model is there, unless read_model() or take_model() brought it.
  void model_arrived();
  /// To be called by read() if the model is not there yet; arrays() must change when it comes.
  void wait_for_model() { reading_ = true; }
  /// Used in place of read_model() for a model of the session's evidence.
  template <class Model>
  void take_model(const OrReason<Model>& found, std::shared_ptr<const Model>& into);
  /// Reads and computes everything again.
  void read_again();

  /// Changes the choices as one step of undo; all moves of a drag become one step.
  template <class Set>
  void change(const QString& name, Set set, bool going_on = false);
  template <class Set>
  void drag(const QString& name, bool done, Set set);
  void select_layer(std::int64_t layer);

  /// The pairs of initial and recent tokens that the profile has: their words, the row of a pair
  /// (-1 if it has none), and the pair in a row.
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
  std::optional<std::string> read_;  // arrays() when the reading of the model began
  int generation_ = 0;
  bool has_model_ = false, reading_ = false, stale_ = true, dragging_ = false;
  bool computing_ = false;  // true until the result is shown
  Latest latest_;           // declared last, so that its thread ends first
};

/// The chart, whose x axis has layers, with a faint line at the chosen one.
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
