// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/maps_screen.hpp"

#include <QLabel>
#include <QStackedWidget>
#include <QVBoxLayout>

#include "base/error.hpp"
#include "viewer/models/head_filter.hpp"

namespace kvatlas::viewer {

namespace {

constexpr const char* kNoMaps = QT_TRANSLATE_NOOP(
    "MapsScreen",
    "This profile has no attention maps. 'kvatlas profile --capture maps --map-samples N' stores "
    "them for the first N samples; the other screens show what was captured.");

}  // namespace

MapsScreen::MapsScreen(Session& session, QWidget* parent)
    : Screen(session, parent), order_(new HeadOrder(session, this)) {
  make_pages();
  connect_grid();
  connect_session();
  profile_came();
}

void MapsScreen::make_pages() {
  pages_ = new QStackedWidget(this);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(pages_);

  message_ = new QLabel(this);
  message_->setWordWrap(true);
  message_->setAlignment(Qt::AlignCenter);
  message_->setMargin(40);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  pages_->addWidget(message_);

  grid_page_ = new QWidget(this);
  auto* grid_box = new QVBoxLayout(grid_page_);
  grid_box->setContentsMargins(0, 0, 0, 0);
  grid_box->setSpacing(0);
  pages_->addWidget(grid_page_);
  grid_bar_ = new GridBar(grid_page_);
  grid_ = new HeadGrid(grid_page_);
  grid_box->addWidget(grid_bar_);
  grid_box->addWidget(grid_);

  head_page_ = new HeadPage(session(), this);
  pages_->addWidget(head_page_);
}

void MapsScreen::connect_grid() {
  connect(grid_, &HeadGrid::chosen, this, &MapsScreen::choose);
  connect(grid_, &HeadGrid::entered, this, &MapsScreen::enter);
  connect(grid_bar_, &GridBar::order_chosen, order_, &HeadOrder::set_by);
  connect(grid_bar_, &GridBar::reduction_chosen, this, &MapsScreen::choose_reduction);
  connect(grid_bar_, &GridBar::scale_chosen, grid_, &HeadGrid::set_scale);
  connect(grid_bar_, &GridBar::size_wanted, grid_,
          [this](bool larger) { grid_->act(larger ? Act::zoom_in : Act::zoom_out); });
  connect(grid_bar_, &GridBar::difference_chosen, this, &MapsScreen::set_grid_difference);
  connect(order_, &HeadOrder::changed, this, &MapsScreen::show_order);
  connect(grid_bar_, &GridBar::filter_chosen, this, &MapsScreen::choose_filter);
  grid_->set_decisions(session().evidence().layers());
  connect(&session().evidence(), &EvidenceCache::layers_changed, this, [this] {
    grid_->set_decisions(session().evidence().layers());
    show_filter();
  });
}

void MapsScreen::connect_session() {
  connect(&session(), &Session::profile_changed, this, &MapsScreen::profile_came);
  const auto baseline_came = [this] {
    set_grid_difference(false);
    grid_bar_->show_has_baseline(session().baseline() != nullptr);
  };
  connect(&session(), &Session::baseline_changed, this, baseline_came);
  baseline_came();
  connect(&session(), &Session::theme_changed, this,
          [this] { grid_->set_theme(session().theme()); });
  grid_->set_theme(session().theme());
  connect(&session().selection(), &SelectionModel::changed, this, &MapsScreen::selection_came);
  connect(head_page_, &HeadPage::left, this, &MapsScreen::show_grid);
  connect(head_page_, &HeadPage::content_changed, this, &MapsScreen::content_changed);
}

bool MapsScreen::shows_map() const { return pages_->currentWidget() == head_page_; }

void MapsScreen::show_message(const QString& text) {
  message_->setText(text);
  pages_->setCurrentWidget(message_);
  emit content_changed();
}

void MapsScreen::profile_came() {
  OpenedProfile* profile = session().profile();
  head_page_->profile_came();
  if (!profile) {
    grid_->set_maps(nullptr, 0, Reduction::mean);
    show_message(tr("Open a profile to see its attention maps."));
    return;
  }
  // The first sample that has maps.
  bool any = false;
  std::size_t first = 0;
  for (std::size_t sample = 0; sample < profile->samples().size() && !any; ++sample) {
    try {
      any = !profile->loader().levels(sample).empty();
    } catch (const Error&) {
      any = true;  // damaged: to be told
    }
    if (any) first = sample;
  }
  if (!any) {
    show_message(tr(kNoMaps));
    return;
  }
  Selection selection = session().selection().current();
  if (selection.sample != first && selection == Selection{}) {
    selection.sample = first;
    session().selection().set(selection);
  }
  selection_came();
  show_grid();
}

void MapsScreen::show_grid() {
  head_page_->set_in_front(false);
  if (!session().profile()) return;
  pages_->setCurrentWidget(grid_page_);
  selection_came();
  grid_->setFocus();
  emit content_changed();
}

void MapsScreen::choose(std::int64_t layer, std::int64_t head) {
  session().selection().change([&](Selection& selection) {
    selection.layer = layer;
    selection.head = head;
  });
}

void MapsScreen::choose_reduction(Reduction reduction) {
  session().selection().change([&](Selection& selection) { selection.reduction = reduction; });
}

void MapsScreen::enter(std::int64_t layer, std::int64_t head) {
  choose(layer, head);
  pages_->setCurrentWidget(head_page_);
  head_page_->set_in_front(true);
  emit content_changed();
}

void MapsScreen::selection_came() {
  OpenedProfile* profile = session().profile();
  if (!profile) return;
  const Selection& selection = session().selection().current();
  grid_bar_->show_reduction(selection.reduction);
  std::vector<MapLevel> levels;
  QString damage;
  try {
    levels = profile->loader().levels(selection.sample);
  } catch (const Error& error) {
    damage = QString::fromUtf8(error.what());
  }
  if (levels.empty()) {
    show_message(!damage.isEmpty()
                     ? damage
                     : tr("No maps were stored of this sample. 'kvatlas profile --capture maps "
                          "--map-samples N' stores them for the first N samples."));
    return;
  }
  if (pages_->currentWidget() == message_)
    pages_->setCurrentWidget(head_page_->in_front() ? static_cast<QWidget*>(head_page_)
                                                    : grid_page_);
  grid_->set_maps(profile, selection.sample, selection.reduction);
  show_filter();
  grid_->choose(selection.layer, selection.head);
  const auto& sample = profile->samples()[selection.sample];
  const bool hidden = !grid_->is_shown(selection.layer, selection.head);
  grid_bar_->show_about(tr("L%1.H%2%3 · %4, %L5 tokens")
                            .arg(selection.layer)
                            .arg(selection.head)
                            .arg(hidden ? tr(" (hidden)") : QString())
                            .arg(QString::fromStdString(sample.id))
                            .arg(sample.n_tokens));
  head_page_->follow();
  emit content_changed();
}

void MapsScreen::set_grid_difference(bool on) {
  if (on && !session().baseline())
    emit session().message(tr("Open a baseline first (Ctrl+Shift+O)."));
  grid_->set_baseline(on ? session().baseline() : nullptr);
  grid_bar_->show_difference(grid_->is_difference());
  emit content_changed();
}

void MapsScreen::choose_filter(const QString& text) {
  try {
    const HeadFilter filter(text.toStdString());
  } catch (const Error& error) {
    emit session().message(QString::fromUtf8(error.what()));
    return;
  }
  session().selection().change(
      [&](Selection& selection) { selection.filter = text.toStdString(); });
  grid_->setFocus();
}

void MapsScreen::show_filter() {
  if (!session().profile()) return;
  const std::string& text = session().selection().current().filter;
  const HeadFilter filter(text);
  const auto& header = session().profile()->header();
  const auto count = static_cast<std::size_t>(header.n_layers * header.n_heads);
  std::vector<std::uint8_t> shown;
  if (filter.needs_measures()) order_->need_measures();
  const auto* measures = order_->measures();
  if (filter.needs_measures() && !measures) {
    grid_bar_->show_filter(QString::fromStdString(text), tr("reading… ×"));
    return;
  }
  for (std::int64_t layer = 0; !filter.empty() && layer < header.n_layers; ++layer)
    for (std::int64_t head = 0; head < header.n_heads; ++head) {
      const LayerDecision decision = session().evidence().layer(layer);
      HeadFacts facts;
      facts.layer = layer;
      facts.head = head;
      facts.lazy = decision.lazy;
      if (decision.budget >= 0) facts.budget = static_cast<double>(decision.budget);
      if (measures && measures->size() == count) {
        const auto& found = measures->at(static_cast<std::size_t>(layer * header.n_heads + head));
        facts.sink = found.sink;
        facts.recency = found.recency;
        facts.entropy = found.entropy;
      }
      shown.push_back(filter.matches(facts) ? 1 : 0);
    }
  grid_->set_shown(std::move(shown));
  grid_bar_->show_filter(QString::fromStdString(text),
                         tr("%L1 of %L2 heads ×").arg(grid_->shown_count()).arg(count));
}

void MapsScreen::show_order() {
  grid_bar_->show_order(order_->by());
  grid_->set_order(order_->places());
  show_filter();
  emit content_changed();
}

bool MapsScreen::act(Act act) {
  if (!session().profile() || pages_->currentWidget() == message_) return false;
  if (act == Act::reduction) {
    choose_reduction(session().selection().current().reduction == Reduction::mean
                         ? Reduction::maximum
                         : Reduction::mean);
    return true;
  }
  if (act == Act::filter) {
    show_grid();
    grid_bar_->focus_filter();
    return true;
  }
  if (shows_map()) {
    if (head_page_->act(act)) return true;
    if (act == Act::escape) show_grid();
    return act == Act::escape;
  }
  if (act == Act::difference) {
    set_grid_difference(!grid_->is_difference());
    return true;
  }
  if (act != Act::next_scale) return grid_->act(act);
  grid_bar_->next_scale();
  return true;
}

QString MapsScreen::focus_text() const {
  const Selection& selection = session().selection().current();
  const QString text = QString("L%1.H%2").arg(selection.layer).arg(selection.head);
  const QString cell = shows_map() ? head_page_->map().focus_text() : QString();
  return cell.isEmpty() ? text : text + " · " + cell;
}

PicturePtr MapsScreen::picture() const {
  if (shows_map()) return head_page_->picture();
  return pages_->currentWidget() == grid_page_
             ? grid_->picture(session().selection().current().filter)
             : nullptr;
}

Table MapsScreen::table() const {
  if (shows_map()) return head_page_->map().table();
  const auto* measures = order_->measures();
  Table table;
  table.columns = {{"layer"}, {"head"}};
  if (measures) {
    table.columns.push_back({"sink share", "share"});
    table.columns.push_back({"recency", "share"});
    table.columns.push_back({"entropy", "bits"});
  }
  table.columns.push_back({"lazy"});
  table.columns.push_back({"budget", "tokens"});
  if (!session().profile() || pages_->currentWidget() == message_) return table;
  const auto& header = session().profile()->header();
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer)
    for (std::int64_t head = 0; head < header.n_heads; ++head) {
      if (!grid_->is_shown(layer, head)) continue;
      std::vector<Table::Cell> row = {static_cast<double>(layer), static_cast<double>(head)};
      if (measures) {
        const auto& found = measures->at(static_cast<std::size_t>(layer * header.n_heads + head));
        row.insert(row.end(), {found.sink, found.recency, found.entropy});
      }
      const LayerDecision decision = session().evidence().layer(layer);
      row.emplace_back(decision.lazy ? (*decision.lazy ? "yes" : "no") : "");
      row.emplace_back(decision.budget >= 0 ? static_cast<double>(decision.budget) : kNoNumber);
      table.rows.push_back(std::move(row));
    }
  return table;
}

}  // namespace kvatlas::viewer
