// SPDX-License-Identifier: Apache-2.0
// What the screens of policies share. Their model is read anew when the choices that it depends on
// change. At every other change a view of the model is computed outside the UI thread. Dragged
// handles change the choices. Results that come late, for another profile or an older model, are
// dropped.
#pragma once

#include <QString>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "viewer/draw/chart_view.hpp"
#include "viewer/screens/control_bar.hpp"
#include "viewer/screens/screen.hpp"
#include "viewer/threads/latest.hpp"

class QLabel;
class QScrollArea;
class QSplitter;
class QStackedWidget;
class QVBoxLayout;

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
  /// What is to be shown of the present choices besides the controls; nothing by default.
  virtual void show_choices() {}
  /// Shows that another layer or sample is selected; does nothing by default.
  virtual void show_selection() {}
  /// Moves the threshold, for the keys that do so; false if the screen has none. By default it is
  /// the first number that has a handle.
  virtual bool move_threshold(double by);
  /// By default the number that has this handle is moved.
  virtual void handle_moved(Handle handle, double value, bool done);
  virtual bool needs_profile() const { return true; }

  /// To be called at the end of a constructor.
  void start();
  ControlBar& bar() { return *bar_; }
  QWidget* page() const { return page_; }  // the place of the charts below the bar
  QVBoxLayout& page_layout() const { return *page_layout_; }
  /// Parts beside or above each other, each with its share of the room. Parts that would be too
  /// narrow beside each other stand above each other.
  static QSplitter* split(Qt::Orientation way,
                          std::initializer_list<std::pair<QWidget*, int>> parts);
  /// Adds a chart; picture() and table() follow the order in which charts were added.
  ChartView* add_chart(const QString& name);
  /// Shows a chart, which is then exported and in tables too; a chart without content is hidden.
  static void set_chart(ChartView& view, Chart chart);
  void show_message(const QString& text);

  // A control is a row: what it is called, what it may be, what a change of it is called as a step
  // of undo, where its value lies in the choices, and the handle in the charts that moves it.
  using Words = ControlBar::Words;
  using Range = ControlBar::Range;
  struct Value {
    std::function<double(const Choices&)> get;
    std::function<void(Choices&, double)> set;
  };
  /// The number, the flag or the index at the place in the choices that the function names.
  template <class Place>
  static Value at(Place place);
  QDoubleSpinBox* add_number(const Words& words, const Range& range, const QString& step,
                             const Value& value, Handle handle = Handle::none);
  QComboBox* add_combo(const Words& words, const QStringList& items, const QString& step,
                       const Value& value);
  void add_switch(const Words& words, const QString& step, const Value& value);
  /// The pairs of initial and recent tokens that the profile has.
  void add_proximity(const QString& hint, kernels::Proximity& (*place)(Choices&));
  /// Sets the controls to the present choices.
  void show_controls();

  template <class Work, class Take>
  void read_model(Work work, Take take);
  template <class Make, class Take>
  void compute_view(Make make, Take take);
  /// To be called when the model is there, unless read_model() or take_model() brought it.
  void model_arrived();
  /// To be called by read() if the model is not there yet; arrays() must change when it comes.
  void wait_for_model() { state_ = State::reading; }
  /// Used in place of read_model() for a model of the session's evidence, or of a document.
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
  /// Left and right go from layer to layer; other keys do what they do on every screen.
  bool walk_layers(Act act);

  void showEvent(QShowEvent* event) override;

 private:
  void refresh();
  void failed(int generation, const std::string& text);
  std::vector<kernels::Proximity> proximities() const;

  /// A number that a handle moves.
  struct Handled {
    Handle handle;
    QString step;
    Value value;
    double least, most;
  };
  /// Of the present choices: there is no model, or it is being read, or a view of it is being
  /// computed, or shown.
  enum class State : std::uint8_t { missing, reading, computing, shown };
  bool has_model() const { return state_ >= State::computing; }

  ControlBar* bar_;
  QStackedWidget* pages_;
  QScrollArea* area_;  // of the page, which may need more room than the window has
  QWidget* page_;
  QVBoxLayout* page_layout_;
  QLabel* message_;
  std::vector<Handled> handled_;
  std::vector<ChartView*> charts_;
  std::optional<std::string> read_;  // arrays() when the reading of the model began
  int generation_ = 0;
  State state_ = State::missing;
  bool stale_ = true;  // something changed while the screen was not visible
  bool dragging_ = false;
  Latest latest_;  // declared last, so that its thread ends first
};

/// The chart, whose x axis has layers, with a faint line at the chosen one.
Chart with_layer(Chart chart, std::int64_t layer);

template <class Work, class Take>
void LiveScreen::read_model(Work work, Take take) {
  const int generation = generation_;
  wait_for_model();
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
  into = found.model;
  if (!found.reason.empty()) failed(generation_, found.reason);
  if (into) model_arrived();
}

template <class Place>
LiveScreen::Value LiveScreen::at(Place place) {
  return {[place](const Choices& choices) { return static_cast<double>(place(choices)); },
          [place](Choices& choices, double value) {
            auto& there = place(choices);
            there = static_cast<std::remove_reference_t<decltype(there)>>(value);
          }};
}

template <class Make, class Take>
void LiveScreen::compute_view(Make make, Take take) {
  if (state_ != State::reading) state_ = State::computing;
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
