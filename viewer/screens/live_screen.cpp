// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/live_screen.hpp"

#include <QEvent>
#include <QLabel>
#include <QScrollArea>
#include <QSplitter>
#include <QStackedWidget>
#include <QVBoxLayout>
#include <algorithm>

#include "analyzer/profile/checked_arrays.hpp"

namespace kvatlas::viewer {

namespace {

/// Parts beside each other, or above each other while they would be too narrow.
class SplitParts : public QSplitter {
 public:
  SplitParts(Qt::Orientation way, std::initializer_list<std::pair<QWidget*, int>> parts)
      : QSplitter(way), beside_(way == Qt::Horizontal) {
    setChildrenCollapsible(false);
    for (const auto& [part, share] : parts) {
      addWidget(part);
      setStretchFactor(count() - 1, share);
      shares_.push_back(1000 * share);
    }
    setSizes(shares_);
  }

  QSize minimumSizeHint() const override {
    int widest = 0;
    for (const QSize& size : least_sizes()) widest = std::max(widest, size.width());
    return {widest, QSplitter::minimumSizeHint().height()};
  }

 protected:
  /// A part that comes, goes or needs another room is told on, which QSplitter does not do.
  bool event(QEvent* event) override {
    if (event->type() == QEvent::LayoutRequest) {
      arrange();
      updateGeometry();
    }
    return QSplitter::event(event);
  }

  void resizeEvent(QResizeEvent* event) override {
    arrange();
    QSplitter::resizeEvent(event);
  }

 private:
  void arrange() {
    int needed = 0;
    for (const QSize& size : least_sizes()) needed += size.width() + handleWidth();
    const auto way = beside_ && width() >= needed ? Qt::Horizontal : Qt::Vertical;
    if (way == orientation()) return;
    setOrientation(way);
    setSizes(shares_);
    updateGeometry();
  }

  std::vector<QSize> least_sizes() const {
    std::vector<QSize> sizes;
    for (int i = 0; i < count(); ++i)
      if (!widget(i)->isHidden())
        sizes.push_back(widget(i)->minimumSizeHint().expandedTo(widget(i)->minimumSize()));
    return sizes;
  }

  bool beside_;
  QList<int> shares_;
};

}  // namespace

LiveScreen::LiveScreen(Session& session, QWidget* parent)
    : Screen(session, parent),
      bar_(new ControlBar(this)),
      pages_(new QStackedWidget(this)),
      area_(new QScrollArea(pages_)),
      page_(new QWidget(area_)),
      page_layout_(new QVBoxLayout(page_)),
      message_(new QLabel(pages_)) {
  auto* below = new QVBoxLayout(this);
  below->setContentsMargins(0, 0, 0, 0);
  below->setSpacing(0);
  below->addWidget(bar_);
  below->addWidget(pages_, 1);
  page_layout_->setContentsMargins(0, 0, 0, 0);
  message_->setObjectName(QStringLiteral("message"));
  message_->setWordWrap(true);
  message_->setAlignment(Qt::AlignCenter);
  message_->setMargin(40);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  area_->setObjectName(QStringLiteral("page"));
  area_->setFrameShape(QFrame::NoFrame);
  area_->setWidgetResizable(true);
  area_->setWidget(page_);
  pages_->addWidget(area_);
  pages_->addWidget(message_);
}

void LiveScreen::start() {
  connect(&session(), &Session::choices_changed, this, &LiveScreen::refresh);
  connect(&session(), &Session::profile_changed, this, &LiveScreen::read_again);
  connect(&session(), &Session::documents_changed, this, &LiveScreen::read_again);
  connect(&session().evidence(), &EvidenceCache::changed, this, [this] {
    if (session().profile() && arrays() != read_) refresh();
  });
  connect(&session(), &Session::theme_changed, this, [this] {
    for (ChartView* view : charts_) view->set_theme(session().theme());
  });
  connect(&session().selection(), &SelectionModel::changed, this, [this] {
    const bool shows = has_model() && isVisible() && (!needs_profile() || session().profile());
    if (!shows || arrays() != read_) {
      refresh();
    } else {
      show_selection();
      emit content_changed();
    }
  });
  connect(&latest_, &Latest::failed, this, [this](const QString& text) { show_message(text); });
  connect(&latest_, &Latest::idle, this, [this] {
    if (state_ == State::computing) state_ = State::shown;
    emit settled_changed();
  });
  read_again();
}

void LiveScreen::read_again() {
  ++generation_;
  read_.reset();
  state_ = State::missing;
  refresh();
}

void LiveScreen::refresh() {
  if (!isVisible()) {
    stale_ = true;
    return;
  }
  stale_ = false;
  if (needs_profile() && !session().profile()) {
    show_message(tr("Open a profile to see this screen: 'kvatlas profile' makes one."));
    return;
  }
  show_controls();
  const std::string wanted = arrays();
  if (wanted != read_) {
    ++generation_;
    read_ = wanted;
    state_ = State::missing;
    read();
  } else if (has_model()) {
    compute();
  }
}

void LiveScreen::model_arrived() {
  state_ = State::shown;
  compute();
}

void LiveScreen::failed(int generation, const std::string& text) {
  if (generation != generation_) return;
  state_ = State::missing;
  show_message(QString::fromStdString(text));
  emit settled_changed();
}

bool LiveScreen::settled() const {
  return !stale_ && state_ != State::reading && state_ != State::computing;
}

QString LiveScreen::message() const {
  return pages_->currentWidget() == message_ ? message_->text() : QString();
}

void LiveScreen::show_message(const QString& text) {
  message_->setText(text);
  pages_->setCurrentWidget(text.isEmpty() ? area_ : static_cast<QWidget*>(message_));
  if (!text.isEmpty()) emit content_changed();
}

void LiveScreen::showEvent(QShowEvent* event) {
  Screen::showEvent(event);
  if (stale_) refresh();
}

ChartView* LiveScreen::add_chart(const QString& name) {
  auto* view = new ChartView(page_);
  view->setAccessibleName(name);
  view->set_theme(session().theme());
  connect(view, &ChartView::handle_moved, this, &LiveScreen::handle_moved);
  charts_.push_back(view);
  return view;
}

void LiveScreen::set_chart(ChartView& view, Chart chart) {
  view.set_chart(std::move(chart));
  view.setVisible(has_content(view.chart()));
}

PicturePtr LiveScreen::picture() const {
  if (!message().isEmpty()) return nullptr;
  std::vector<PicturePtr> parts;
  for (const ChartView* view : charts_)
    if (has_content(view->chart())) parts.push_back(chart_picture(view->chart()));
  return parts.empty() ? nullptr
                       : stacked_picture(charts_.front()->chart().title, std::move(parts), false);
}

std::vector<Chart> LiveScreen::charts() const {
  std::vector<Chart> charts;
  if (message().isEmpty())
    for (const ChartView* view : charts_) charts.push_back(view->chart());
  return charts;
}

Table LiveScreen::table() const {
  if (!message().isEmpty()) return {};
  for (const ChartView* view : charts_)
    if (has_content(view->chart())) return view->chart().table;
  return {};
}

bool LiveScreen::act(Act act) {
  switch (act) {
    case Act::handle_down:
      return move_threshold(-0.01);
    case Act::handle_up:
      return move_threshold(0.01);
    case Act::handle_down_fast:
      return move_threshold(-0.1);
    case Act::handle_up_fast:
      return move_threshold(0.1);
    default:
      return false;
  }
}

void LiveScreen::select_layer(std::int64_t layer) {
  if (!session().profile() || layer < 0 || layer >= session().profile()->header().n_layers) return;
  session().selection().change([&](Selection& selection) { selection.layer = layer; });
}

bool LiveScreen::walk_layers(Act act) {
  if (act != Act::left && act != Act::right) return LiveScreen::act(act);
  select_layer(session().selection().current().layer + (act == Act::right ? 1 : -1));
  return true;
}

QSplitter* LiveScreen::split(Qt::Orientation way,
                             std::initializer_list<std::pair<QWidget*, int>> parts) {
  return new SplitParts(way, parts);
}

void LiveScreen::show_controls() {
  show_choices();
  bar_->show_values();
}

QDoubleSpinBox* LiveScreen::add_number(const Words& words, const Range& range, const QString& step,
                                       const Value& value, Handle handle) {
  if (handle != Handle::none)
    handled_.push_back({handle, step, value, range.least / range.scale, range.most / range.scale});
  return bar_->add_number(
      words, range, [this, value] { return value.get(session().choices()); },
      [this, step, value](double to) {
        change(step, [&](Choices& choices) { value.set(choices, to); });
      });
}

QComboBox* LiveScreen::add_combo(const Words& words, const QStringList& items, const QString& step,
                                 const Value& value) {
  return bar_->add_combo(
      words, items, [this, value] { return static_cast<int>(value.get(session().choices())); },
      [this, step, value](int to) {
        change(step, [&](Choices& choices) { value.set(choices, to); });
      });
}

void LiveScreen::add_switch(const Words& words, const QString& step, const Value& value) {
  bar_->add_switch(
      words, [this, value] { return value.get(session().choices()) != 0; },
      [this, step, value](bool on) {
        change(step, [&](Choices& choices) { value.set(choices, on ? 1 : 0); });
      });
}

void LiveScreen::handle_moved(Handle handle, double value, bool done) {
  for (const Handled& one : handled_)
    if (one.handle == handle)
      drag(one.step, done, [&](Choices& choices) {
        one.value.set(choices, std::clamp(value, one.least, one.most));
      });
}

bool LiveScreen::move_threshold(double by) {
  if (handled_.empty()) return false;
  const Handled& one = handled_.front();
  change(one.step, [&](Choices& choices) {
    one.value.set(choices, std::clamp(one.value.get(choices) + by, one.least, one.most));
  });
  return true;
}

std::vector<kernels::Proximity> LiveScreen::proximities() const {
  std::vector<kernels::Proximity> out;
  const auto& table = profile::axis_of(session().profile()->header(), "proximity");
  if (table.columns.size() != 2 || table.values.size() != 2 * table.labels.size()) return out;
  for (std::size_t at = 0; at < table.values.size(); at += 2)
    out.push_back({table.values[at], table.values[at + 1]});
  return out;
}

void LiveScreen::add_proximity(const QString& hint, kernels::Proximity& (*place)(Choices&)) {
  bar_->add_combo(
      {"proximity", tr("Initial + recent"), hint},
      [this] {
        QStringList words;
        for (const auto& keep : proximities())
          words.push_back(tr("%1 + %2").arg(keep.initial).arg(keep.recent));
        return words;
      },
      [this, place] {
        const auto there = proximities();
        Choices choices = session().choices();
        const auto found = std::find(there.begin(), there.end(), place(choices));
        return found == there.end() ? -1 : static_cast<int>(found - there.begin());
      },
      [this, place](int row) {
        change(tr("Initial and recent"), [&](Choices& choices) {
          place(choices) = proximities()[static_cast<std::size_t>(row)];
        });
      });
}

Chart with_layer(Chart chart, std::int64_t layer) {
  chart.marks.push_back({"layer " + std::to_string(layer), static_cast<double>(layer), true,
                         Handle::none, Emphasis::faint});
  return chart;
}

}  // namespace kvatlas::viewer
