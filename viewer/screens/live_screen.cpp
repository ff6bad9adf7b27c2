// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/live_screen.hpp"

#include <QLabel>
#include <QStackedWidget>
#include <QVBoxLayout>
#include <algorithm>

#include "analyzer/profile/checked_arrays.hpp"

namespace kvatlas::viewer {
LiveScreen::LiveScreen(Session& session, QWidget* parent)
    : Screen(session, parent),
      bar_(new ControlBar(this)),
      pages_(new QStackedWidget(this)),
      page_(new QWidget(pages_)),
      message_(new QLabel(pages_)) {
  auto* below = new QVBoxLayout(this);
  below->setContentsMargins(0, 0, 0, 0);
  below->setSpacing(0);
  below->addWidget(bar_);
  below->addWidget(pages_, 1);
  message_->setObjectName(QStringLiteral("message"));
  message_->setWordWrap(true);
  message_->setAlignment(Qt::AlignCenter);
  message_->setMargin(40);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  pages_->addWidget(page_);
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
    const bool shows = has_model_ && isVisible() && (!needs_profile() || session().profile());
    if (!shows || arrays() != read_) {
      refresh();
    } else {
      show_selection();
      emit content_changed();
    }
  });
  connect(&latest_, &Latest::failed, this, [this](const QString& text) { show_message(text); });
  connect(&latest_, &Latest::idle, this, [this] {
    computing_ = false;
    emit settled_changed();
  });
  read_again();
}

void LiveScreen::read_again() {
  ++generation_;
  read_.reset();
  has_model_ = reading_ = false;
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
  show_choices();
  const std::string wanted = arrays();
  if (wanted != read_) {
    ++generation_;
    read_ = wanted;
    has_model_ = false;
    read();
  } else if (has_model_) {
    compute();
  }
}

void LiveScreen::model_arrived() {
  reading_ = false;
  has_model_ = true;
  compute();
}

void LiveScreen::failed(int generation, const std::string& text) {
  if (generation != generation_) return;
  reading_ = false;
  show_message(QString::fromStdString(text));
  emit settled_changed();
}

bool LiveScreen::settled() const { return !stale_ && !reading_ && !computing_; }

QString LiveScreen::message() const {
  return pages_->currentWidget() == message_ ? message_->text() : QString();
}

void LiveScreen::show_message(const QString& text) {
  message_->setText(text);
  pages_->setCurrentWidget(text.isEmpty() ? page_ : message_);
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
  Selection selection = session().selection().current();
  selection.layer = layer;
  session().selection().set(selection);
}

const profile::AxisTable* LiveScreen::proximities() const {
  const auto& table = profile::axis_of(session().profile()->header(), "proximity");
  return table.columns.size() == 2 && table.values.size() == 2 * table.labels.size() ? &table
                                                                                     : nullptr;
}

QStringList LiveScreen::proximity_words() const {
  QStringList words;
  if (const auto* table = proximities())
    for (std::size_t row = 0; row < table->labels.size(); ++row) {
      const auto keep = proximity_at(static_cast<int>(row));
      words.push_back(tr("%1 + %2").arg(keep.initial).arg(keep.recent));
    }
  return words;
}

int LiveScreen::proximity_row(kernels::Proximity keep) const {
  const auto* table = proximities();
  const auto row = table ? profile::row_of(*table, {keep.initial, keep.recent}) : std::nullopt;
  return row ? static_cast<int>(*row) : -1;
}

kernels::Proximity LiveScreen::proximity_at(int row) const {
  const auto* table = proximities();
  const auto at = static_cast<std::size_t>(row) * 2;
  return {table->values[at], table->values[at + 1]};
}

Chart with_layer(Chart chart, std::int64_t layer) {
  chart.marks.push_back({"layer " + std::to_string(layer), static_cast<double>(layer), true,
                         Handle::none, Emphasis::faint});
  return chart;
}

}  // namespace kvatlas::viewer
