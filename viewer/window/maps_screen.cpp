// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/maps_screen.hpp"

#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QSplitter>
#include <QStackedWidget>
#include <QToolBar>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "kernels/base/error.hpp"
#include "viewer/draw/grid_picture.hpp"
#include "viewer/models/sweep_model.hpp"
#include "viewer/models/token_texts.hpp"
#include "viewer/window/screens.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kLeastHeight = 26;
constexpr const char* kNoMaps =
    "This profile has no attention maps. 'kvatlas profile --capture maps --map-samples N' stores "
    "them for the first N samples; the other screens show what was captured.";

/// Runs of kept tokens, from a mask of bits.
std::vector<std::pair<std::int64_t, std::int64_t>> kept_runs(std::span<const std::uint8_t> bits,
                                                             std::int64_t n_tokens) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  n_tokens = std::min(n_tokens, 8 * static_cast<std::int64_t>(bits.size()));
  for (std::int64_t token = 0; token < n_tokens; ++token) {
    if ((bits[static_cast<std::size_t>(token / 8)] >> (token % 8) & 1) == 0) continue;
    if (!runs.empty() && runs.back().second == token)
      ++runs.back().second;
    else
      runs.emplace_back(token, token + 1);
  }
  return runs;
}

}  // namespace

Screen* make_maps_screen(Session& session, QWidget* parent) {
  return new MapsScreen(session, parent);
}

MapsScreen::MapsScreen(Session& session, QWidget* parent) : Screen(session, parent) {
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

  const auto page = [this](QToolBar*& bar) {
    auto* widget = new QWidget(this);
    auto* box = new QVBoxLayout(widget);
    box->setContentsMargins(0, 0, 0, 0);
    box->setSpacing(0);
    bar = new QToolBar(widget);
    bar->setToolButtonStyle(Qt::ToolButtonTextOnly);
    bar->setMinimumHeight(kLeastHeight + 6);
    box->addWidget(bar);
    pages_->addWidget(widget);
    return widget;
  };
  QToolBar *grid_bar = nullptr, *map_bar = nullptr;
  grid_page_ = page(grid_bar);
  grid_ = new HeadGrid(grid_page_);
  grid_page_->layout()->addWidget(grid_);
  map_page_ = page(map_bar);
  auto* panes = new QSplitter(map_page_);
  map_ = new MapView(panes);
  baseline_map_ = new MapView(panes);
  baseline_map_->setAccessibleName(tr("Attention map of the baseline"));
  baseline_map_->hide();
  static_cast<QVBoxLayout*>(map_page_->layout())->addWidget(panes, 1);
  readout_ = new QLabel(map_page_);
  readout_->setMinimumHeight(24);
  readout_->setMargin(4);
  readout_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  readout_->setAccessibleName(tr("Value under the cursor"));
  readout_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  map_page_->layout()->addWidget(readout_);
  make_grid_bar(*grid_bar);
  make_map_bar(*map_bar);

  connect(grid_, &HeadGrid::chosen, this, &MapsScreen::choose);
  connect(grid_, &HeadGrid::entered, this, &MapsScreen::enter);
  for (MapView* view : {map_, baseline_map_}) {
    MapView* other = view == map_ ? baseline_map_ : map_;
    // Panes of one length move together; their cursor goes by relative position.
    const auto likewise = [view, other](std::int64_t token) {
      return view->n_tokens() > 0 && token >= 0 ? token * other->n_tokens() / view->n_tokens() : -1;
    };
    connect(view, &MapView::hovered, other, [this, other, likewise](qint64 query, qint64 key) {
      if (compare_ == Compare::side_by_side) other->set_hover(likewise(query), likewise(key));
      update_readout();
    });
    connect(view, &MapView::viewport_changed, other, [this, view, other] {
      if (compare_ != Compare::side_by_side || view->n_tokens() == 0 || other->n_tokens() == 0)
        return;
      other->set_viewport(
          scaled(view->viewport(), double(other->n_tokens()) / double(view->n_tokens())));
    });
    connect(view, &MapView::content_changed, this, &MapsScreen::update_readout);
  }
  connect(map_, &MapView::focus_changed, this, [this](qint64 query, qint64 key) {
    Selection selection = this->session().selection().current();
    selection.query = query;
    selection.key = key;
    shown_ = selection;
    this->session().selection().set(selection);
    update_readout();
  });
  connect(map_, &MapView::region_changed, this, [this] { update_readout(); });
  connect(&session, &Session::profile_changed, this, &MapsScreen::profile_came);
  connect(&session, &Session::baseline_changed, this, [this] {
    compare_action_->setVisible(this->session().baseline() != nullptr);
    if (!this->session().baseline()) set_compare(Compare::off);
    show_subject();
  });
  connect(&session, &Session::documents_changed, this, &MapsScreen::read_evidence);
  connect(&session, &Session::choices_changed, this, [this] {
    if (!(evidence_lazy_.keep.initial == this->session().choices().lazy_arrays.keep.initial &&
          evidence_lazy_.keep.recent == this->session().choices().lazy_arrays.keep.recent &&
          evidence_lazy_.identify == this->session().choices().lazy_arrays.identify))
      read_evidence();
    else
      make_notes();
    show_overlays();
  });
  connect(&session, &Session::theme_changed, this, [this] {
    grid_->set_theme(this->session().theme());
    map_->set_theme(this->session().theme());
    baseline_map_->set_theme(this->session().theme());
  });
  connect(&session.selection(), &SelectionModel::changed, this, &MapsScreen::selection_came);
  grid_->set_theme(session.theme());
  map_->set_theme(session.theme());
  baseline_map_->set_theme(session.theme());
  show_scale();
  profile_came();
}

QComboBox* MapsScreen::add_choice(QToolBar& bar, const QString& name, const QStringList& items) {
  auto* choice = new QComboBox(&bar);
  choice->addItems(items);
  choice->setAccessibleName(name);
  choice->setToolTip(name);
  choice->setMinimumHeight(kLeastHeight);
  choice->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  bar.addWidget(choice);
  return choice;
}

void MapsScreen::make_grid_bar(QToolBar& bar) {
  bar.setAccessibleName(tr("Grid of heads"));
  order_choice_ = add_choice(bar, tr("Order of the heads"),
                             {tr("By layer and head"), tr("By sink share"), tr("By recency"),
                              tr("By entropy"), tr("By likeness to the chosen one")});
  connect(order_choice_, &QComboBox::activated, this,
          [this](int row) { set_order(static_cast<Order>(row)); });
  reductions_[0] = add_choice(bar, tr("Reduction of blocks"), {tr("Mean"), tr("Greatest")});
  grid_scale_ = add_choice(bar, tr("Scale"),
                           {tr("Log, one range"), tr("Linear, one range"), tr("Log, each its own"),
                            tr("Linear, each its own")});
  connect(grid_scale_, &QComboBox::activated, this, [this](int row) {
    grid_->set_scale(row % 2 == 0 ? ScaleKind::log : ScaleKind::linear, row >= 2);
  });
  for (const bool larger : {false, true}) {
    QAction* size = bar.addAction(larger ? "+" : "−");
    size->setToolTip(larger ? tr("Larger thumbnails") : tr("Smaller thumbnails"));
    connect(size, &QAction::triggered, this,
            [this, larger] { grid_->act(larger ? Act::zoom_in : Act::zoom_out); });
    if (auto* button = bar.widgetForAction(size))
      button->setMinimumSize(kLeastHeight, kLeastHeight);
  }
  grid_about_ = new QLabel(&bar);
  grid_about_->setMargin(6);
  grid_about_->setAccessibleName(tr("Chosen head"));
  bar.addWidget(grid_about_);
}

void MapsScreen::make_map_bar(QToolBar& bar) {
  bar.setAccessibleName(tr("Attention map"));
  const auto sized = [&bar](QAction* action) {
    if (auto* button = bar.widgetForAction(action)) button->setMinimumHeight(kLeastHeight);
    return action;
  };
  QAction* back = sized(bar.addAction(tr("‹ All heads")));
  back->setToolTip(tr("Back to the grid (Esc)"));
  connect(back, &QAction::triggered, this, &MapsScreen::show_grid);
  scale_choice_ =
      add_choice(bar, tr("Scale"), {tr("Linear"), tr("Log"), tr("Square root"), tr("Rank")});
  scale_choice_->setCurrentIndex(static_cast<int>(ScaleKind::log));
  connect(scale_choice_, &QComboBox::currentIndexChanged, this, [this] { show_scale(); });
  reductions_[1] = add_choice(bar, tr("Reduction of blocks"), {tr("Mean"), tr("Greatest")});
  for (QComboBox* reduction : reductions_)
    connect(reduction, &QComboBox::activated, this, [this](int row) {
      Selection selection = session().selection().current();
      selection.reduction = row == 0 ? Reduction::mean : Reduction::maximum;
      session().selection().set(selection);
    });
  mean_choice_ = add_choice(
      bar, tr("What is shown"),
      {tr("One head"), tr("Mean of KV group"), tr("Mean of layer"), tr("Mean of samples")});
  connect(mean_choice_, &QComboBox::activated, this,
          [this](int row) { set_mean_over(static_cast<MeanOver>(row)); });

  const auto menu_button = [&](const QString& name) {
    auto* button = new QToolButton(&bar);
    button->setText(name);
    button->setAccessibleName(name);
    button->setMinimumHeight(kLeastHeight);
    button->setPopupMode(QToolButton::InstantPopup);
    auto* menu = new QMenu(button);
    button->setMenu(menu);
    bar.addWidget(button);
    return menu;
  };
  const auto toggle = [this](QMenu* menu, const QString& name, bool on, auto changed) {
    QAction* action = menu->addAction(name);
    action->setCheckable(true);
    action->setChecked(on);
    connect(action, &QAction::toggled, this, changed);
    return action;
  };
  QMenu* range = menu_button(tr("Range"));
  mask_sinks_ = toggle(range, tr("Mask the sinks (M): first keys not in the range"), false,
                       [this] { show_scale(); });
  per_row_ = toggle(range, tr("Each row by its greatest value"), false, [this] { show_scale(); });
  lock_ = toggle(range, tr("Lock: one range for all maps"), false, [this](bool on) {
    map_->set_locked(on);
    baseline_map_->set_locked(on);
  });
  QMenu* overlays = menu_button(tr("Overlays"));
  const auto shown = [this] { show_overlays(); };
  window_ = toggle(overlays, tr("Sinks and recent window"), false, shown);
  partitions_ = toggle(overlays, tr("LagKV partitions"), false, shown);
  texts_ = toggle(overlays, tr("Token texts"), true, shown);
  kept_menu_ = overlays->addMenu(tr("Keys kept by"));
  QMenu* region = menu_button(tr("Rectangle"));
  connect(region->addAction(tr("Mark or clear (R, Ctrl+drag)")), &QAction::triggered, this,
          [this] { map_->act(Act::rectangle); });
  connect(region->addAction(tr("Copy its statistics as CSV")), &QAction::triggered, this, [this] {
    const QString csv = map_->region_csv();
    if (!csv.isEmpty()) QApplication::clipboard()->setText(csv);
    emit session().message(csv.isEmpty() ? tr("No rectangle is marked.")
                                         : tr("Copied the rectangle's statistics."));
  });
  auto* holder = new QWidget(&bar);
  auto* row = new QHBoxLayout(holder);
  row->setContentsMargins(0, 0, 0, 0);
  compare_choice_ = new QComboBox(holder);
  compare_choice_->addItems(
      {tr("Profile alone"), tr("Side by side"), tr("Difference (B)"), tr("Swipe (V)")});
  compare_choice_->setAccessibleName(tr("Comparison with the baseline"));
  compare_choice_->setMinimumHeight(kLeastHeight);
  row->addWidget(compare_choice_);
  compare_action_ = bar.addWidget(holder);
  compare_action_->setVisible(session().baseline() != nullptr);
  connect(compare_choice_, &QComboBox::activated, this,
          [this](int index) { set_compare(static_cast<Compare>(index)); });
  by_depth_ = new QAction(tr("Pair layers by relative depth"), this);
  by_depth_->setCheckable(true);
  connect(by_depth_, &QAction::toggled, this, [this] { show_subject(); });
  compare_choice_->addAction(by_depth_);
  compare_choice_->setContextMenuPolicy(Qt::ActionsContextMenu);
}

bool MapsScreen::shows_map() const { return pages_->currentWidget() == map_page_; }

void MapsScreen::show_message(const QString& text) {
  message_->setText(text);
  pages_->setCurrentWidget(message_);
  emit content_changed();
}

void MapsScreen::profile_came() {
  OpenedProfile* profile = session().profile();
  measures_.reset();
  evidence_.reset();
  layer_notes_.clear();
  shown_.reset();
  in_map_ = false;
  kept_by_ = -1;
  kept_lanes_.clear();
  order_ = Order::index;
  order_choice_->setCurrentIndex(0);
  compare_action_->setVisible(session().baseline() != nullptr);
  if (!profile) {
    grid_->set_maps(nullptr, 0, Reduction::mean);
    map_->set_subject({});
    show_message(tr("Open a profile to see its attention maps."));
    return;
  }
  fill_kept_menu();
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
  read_evidence();
  selection_came();
  show_grid();
}

void MapsScreen::show_grid() {
  in_map_ = false;
  if (!session().profile()) return;
  pages_->setCurrentWidget(grid_page_);
  selection_came();
  grid_->setFocus();
  emit content_changed();
}

void MapsScreen::choose(std::int64_t layer, std::int64_t head) {
  Selection selection = session().selection().current();
  selection.layer = layer;
  selection.head = head;
  session().selection().set(selection);
}

void MapsScreen::enter(std::int64_t layer, std::int64_t head) {
  choose(layer, head);
  in_map_ = true;
  pages_->setCurrentWidget(map_page_);
  shown_.reset();
  selection_came();
  map_->setFocus();
  emit content_changed();
}

void MapsScreen::selection_came() {
  OpenedProfile* profile = session().profile();
  if (!profile) return;
  const Selection& selection = session().selection().current();
  for (QComboBox* reduction : reductions_)
    reduction->setCurrentIndex(selection.reduction == Reduction::mean ? 0 : 1);
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
    pages_->setCurrentWidget(in_map_ ? map_page_ : grid_page_);
  grid_->set_maps(profile, selection.sample, selection.reduction);
  grid_->choose(selection.layer, selection.head);
  const auto& sample = profile->samples()[selection.sample];
  grid_about_->setText(tr("L%1.H%2 · %3, %L4 tokens")
                           .arg(selection.layer)
                           .arg(selection.head)
                           .arg(QString::fromStdString(sample.id))
                           .arg(sample.n_tokens));
  if (order_ != Order::index && measured_sample_ != selection.sample) set_order(order_);
  if (in_map_) {
    const bool same = shown_ && shown_->sample == selection.sample &&
                      shown_->layer == selection.layer && shown_->head == selection.head &&
                      shown_->reduction == selection.reduction;
    const bool same_sample = shown_ && shown_->sample == selection.sample;
    shown_ = selection;
    if (!same) {
      show_subject();
      if (!same_sample) read_tokens();
      read_kept();
      show_overlays();
    }
    if (selection.query >= 0 || map_->focus_query() >= 0)
      map_->set_focus_cell(selection.query, selection.key);
    if (selection.region) map_->set_region(selection.region);
  }
  emit content_changed();
}

MapSubject MapsScreen::subject(OpenedProfile& profile, bool is_baseline) const {
  const Selection& selection = session().selection().current();
  const auto& header = profile.header();
  MapKey key{selection.sample, selection.layer, selection.head, selection.reduction};
  if (is_baseline) {
    const auto& own = session().profile()->header();
    if (by_depth_->isChecked() && own.n_layers > 1)
      key.layer =
          std::llround(double(key.layer) * double(header.n_layers - 1) / double(own.n_layers - 1));
    key.sample = std::min(key.sample, profile.samples().size() - 1);
  }
  MapSubject out;
  out.profile = &profile;
  const std::int64_t group =
      header.n_kv_heads > 0 ? std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads) : 1;
  switch (mean_over_) {
    case MeanOver::one:
      out.maps = {key};
      break;
    case MeanOver::kv_group:
    case MeanOver::layer: {
      const bool all = mean_over_ == MeanOver::layer;
      const std::int64_t first = all ? 0 : key.head / group * group;
      for (std::int64_t head = first; head < (all ? header.n_heads : first + group); ++head)
        out.maps.push_back({key.sample, key.layer, head, key.reduction});
      break;
    }
    case MeanOver::samples: {
      out.maps = {key};
      const std::string& task = profile.samples()[key.sample].task;
      for (const std::size_t sample : profile.positions(task)) {
        if (sample == key.sample) continue;
        try {
          if (!profile.loader().levels(sample).empty())
            out.maps.push_back({sample, key.layer, key.head, key.reduction});
        } catch (const Error&) {
          continue;  // damaged: the others are shown
        }
      }
      break;
    }
  }
  return out;
}

QString MapsScreen::map_title() const {
  const Selection& selection = session().selection().current();
  const OpenedProfile& profile = *session().profile();
  const auto& header = profile.header();
  const auto& sample = profile.samples()[selection.sample];
  const std::int64_t group =
      header.n_kv_heads > 0 ? std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads) : 1;
  QString what;
  switch (mean_over_) {
    case MeanOver::one:
      what = tr("Layer %1, head %2 (KV head %3)")
                 .arg(selection.layer)
                 .arg(selection.head)
                 .arg(selection.head / group);
      break;
    case MeanOver::kv_group:
      what = tr("Layer %1, mean of the %2 heads of KV head %3")
                 .arg(selection.layer)
                 .arg(group)
                 .arg(selection.head / group);
      break;
    case MeanOver::layer:
      what = tr("Layer %1, mean of its %2 heads").arg(selection.layer).arg(header.n_heads);
      break;
    case MeanOver::samples:
      what = tr("Layer %1, head %2, mean of the samples with maps of %3")
                 .arg(selection.layer)
                 .arg(selection.head)
                 .arg(QString::fromStdString(sample.task));
      break;
  }
  what += tr(" · %1, %L2 tokens").arg(QString::fromStdString(sample.id)).arg(sample.n_tokens);
  if (session().baseline() && compare_ == Compare::difference)
    what = tr("Difference to %1: ")
               .arg(QString::fromStdString(session().baseline()->path().filename().string())) +
           what;
  if (session().baseline() && compare_ == Compare::swipe)
    what += tr(" · right of the line: %1")
                .arg(QString::fromStdString(session().baseline()->path().filename().string()));
  return what;
}

void MapsScreen::show_subject() {
  OpenedProfile* profile = session().profile();
  if (!profile || !in_map_) return;
  OpenedProfile* baseline = session().baseline();
  if (baseline && baseline->samples().empty()) baseline = nullptr;
  MapView::Subject shown{map_title(), subject(*profile, false), {}, {}};
  if (baseline && compare_ == Compare::difference) shown.less = subject(*baseline, true);
  if (baseline && compare_ == Compare::swipe) shown.swiped = subject(*baseline, true);
  map_->set_subject(shown);
  const bool beside = baseline && compare_ == Compare::side_by_side;
  baseline_map_->setVisible(beside);
  baseline_map_->set_subject(
      beside
          ? MapView::Subject{tr("Baseline: %1")
                                 .arg(QString::fromStdString(baseline->path().filename().string())),
                             subject(*baseline, true),
                             {},
                             {}}
          : MapView::Subject{});
  update_readout();
  emit content_changed();
}

void MapsScreen::set_compare(Compare compare) {
  if (compare != Compare::off && !session().baseline()) {
    emit session().message(tr("Open a baseline first (Ctrl+Shift+O)."));
    compare = Compare::off;
  }
  if (compare == compare_) return;
  compare_ = compare;
  if (compare != Compare::side_by_side && !lock_->isChecked())
    baseline_map_->share_range(std::nullopt);
  compare_choice_->setCurrentIndex(static_cast<int>(compare));
  show_subject();
}

void MapsScreen::set_mean_over(MeanOver mean_over) {
  mean_over_ = mean_over;
  mean_choice_->setCurrentIndex(static_cast<int>(mean_over));
  show_subject();
}

void MapsScreen::show_scale() {
  const auto kind = static_cast<ScaleKind>(scale_choice_->currentIndex());
  const std::int64_t masked =
      mask_sinks_->isChecked() ? session().choices().lazy_arrays.keep.initial : 0;
  for (MapView* view : {map_, baseline_map_}) view->set_scale(kind, per_row_->isChecked(), masked);
}

std::string MapsScreen::lag_label() const {
  try {
    const SweepModel model = sweep_model(session().section("lagkv"));
    auto at = static_cast<std::size_t>(session().choices().lag_candidate);
    if (session().choices().lag_candidate < 0)
      at = sweep_view(model, session().choices().sweep).recommended.value_or(0);
    if (at < model.candidates.size()) {
      const auto& candidate = model.candidates[at];
      return str("lagkv:sink=", model.sink, ",lag=", candidate.lag, ",ratio=", candidate.ratio,
                 ",variant=", candidate.variant);
    }
  } catch (const Error&) {
    // No document has a sweep: the profile's first setting stands in.
  }
  for (const auto& axis : session().profile()->header().axes)
    if (axis.axis == "selection")
      for (const auto& label : axis.labels)
        if (label.starts_with("lagkv:")) return label;
  return {};
}

void MapsScreen::show_overlays() {
  OpenedProfile* profile = session().profile();
  if (!profile) return;
  const Selection& selection = session().selection().current();
  const Choices& choices = session().choices();
  MapView::Overlays overlays;
  overlays.token_texts = texts_->isChecked();
  const auto& keep = choices.lazy_arrays.keep;
  const std::int64_t n = selection.sample < profile->samples().size()
                             ? profile->samples()[selection.sample].n_tokens
                             : 0;
  if (window_->isChecked()) {
    overlays.window = {keep.initial, keep.recent};
    const auto layer = static_cast<std::size_t>(selection.layer);
    KeptLane lane;
    const bool known = layer < layer_notes_.size() && layer_notes_[layer].lazy;
    const bool lazy = known && *layer_notes_[layer].lazy;
    lane.label = known ? (lazy ? "SimLayerKV lazy" : "SimLayerKV full") : "if lazy";
    if (known && !lazy)
      lane.kept = {{0, n}};
    else
      lane.kept = {{0, std::min(keep.initial, n)}, {std::max(keep.initial, n - keep.recent), n}};
    overlays.lanes.push_back(std::move(lane));
  }
  if (partitions_->isChecked()) {
    const std::string label = lag_label();
    long long sink = 0, lag = 0;
    if (std::sscanf(label.c_str(), "lagkv:sink=%lld,lag=%lld", &sink, &lag) == 2 && lag > 0)
      overlays.partitions = {sink, lag};
  }
  overlays.lanes.insert(overlays.lanes.end(), kept_lanes_.begin(), kept_lanes_.end());
  map_->set_overlays(overlays);
  baseline_map_->set_overlays({overlays.window, overlays.partitions, {}, overlays.token_texts});
}

void MapsScreen::fill_kept_menu() {
  kept_menu_->clear();
  auto* group = new QActionGroup(kept_menu_);
  const auto add = [&](QMenu* menu, const QString& name, int selection) {
    QAction* action = menu->addAction(name);
    action->setCheckable(true);
    action->setChecked(selection == kept_by_);
    group->addAction(action);
    connect(action, &QAction::triggered, this, [this, selection] { set_kept_by(selection); });
  };
  add(kept_menu_, tr("None"), -1);
  for (const auto& axis : session().profile()->header().axes) {
    if (axis.axis != "selection") continue;
    QMenu* method = nullptr;
    QString of;
    for (std::size_t i = 0; i < axis.labels.size(); ++i) {
      const QString label = QString::fromStdString(axis.labels[i]);
      const QString name = label.section(':', 0, 0);
      if (name != of) {
        method = kept_menu_->addMenu(name);
        of = name;
      }
      add(method, label.section(':', 1), static_cast<int>(i));
    }
  }
}

void MapsScreen::set_kept_by(int selection) {
  kept_by_ = selection;
  read_kept();
}

void MapsScreen::read_kept() {
  kept_lanes_.clear();
  OpenedProfile* profile = session().profile();
  if (!profile || kept_by_ < 0) {
    show_overlays();
    return;
  }
  const Selection& selection = session().selection().current();
  const auto& header = profile->header();
  std::string label;
  for (const auto& axis : header.axes)
    if (axis.axis == "selection" && static_cast<std::size_t>(kept_by_) < axis.labels.size())
      label = axis.labels[static_cast<std::size_t>(kept_by_)];
  const std::int64_t group =
      header.n_kv_heads > 0 ? std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads) : 1;
  const std::int64_t kv_head = selection.head / group, layer = selection.layer;
  const std::size_t sample = selection.sample;
  const std::int64_t n = profile->samples()[sample].n_tokens;
  const std::int64_t which = kept_by_;
  profile->read(
      this,
      [=](const profile::Reader& reader) {
        KeptLane lane;
        lane.label = label;
        if (!reader.has(sample, profile::name::kKeptMask))
          fail(ErrorCode::usage,
               "the keys that policies keep were not stored of this sample: "
               "'kvatlas profile --capture kept,maps' takes them");
        const auto mask = reader.array(sample, profile::name::kKeptMask, {which, layer, kv_head});
        if (mask.type == profile::Type::u8) lane.kept = kept_runs(mask.values<std::uint8_t>(), n);
        return lane;
      },
      [this, which](KeptLane lane) {
        if (which != kept_by_) return;
        kept_lanes_ = {std::move(lane)};
        show_overlays();
      },
      [this](const std::string& message) {
        emit this->session().message(QString::fromStdString(message));
      });
}

void MapsScreen::read_tokens() {
  OpenedProfile* profile = session().profile();
  const std::size_t sample = session().selection().current().sample;
  map_->set_tokens(nullptr);
  profile->read(
      this,
      [sample](const profile::Reader& reader) {
        auto texts = std::make_shared<std::vector<std::string>>();
        for (const std::string& text : read_token_texts(reader, sample))
          texts->push_back(str("‘", shown_text(text), "’"));
        if (texts->empty())
          for (const std::int32_t token : reader.tokens(sample)) texts->push_back(str("#", token));
        return TokenList(texts);
      },
      [this, sample](TokenList texts) {
        if (sample == this->session().selection().current().sample) map_->set_tokens(texts);
      },
      [this](const std::string& message) {
        emit this->session().message(QString::fromStdString(message));
      });
}

void MapsScreen::read_evidence() {
  OpenedProfile* profile = session().profile();
  if (!profile) return;
  const Choices choices = session().choices();
  evidence_lazy_ = choices.lazy_arrays;
  const auto positions = profile->positions(choices.task);
  const nlohmann::json lazy = session().section("simlayerkv"), pod = session().section("pod");
  profile->read(
      this,
      [=](const profile::Reader& reader) {
        auto evidence = std::make_shared<Evidence>();
        // Each stands alone: a profile may have been taken without the others.
        const auto attempt = [](auto& into, auto&& read) {
          try {
            into = read();
          } catch (const Error&) {
            into.reset();
          }
        };
        attempt(evidence->lazy,
                [&] { return read_lazy_model(reader, positions, choices.lazy_arrays, lazy); });
        attempt(evidence->budgets,
                [&] { return read_budgets_model(reader, positions, choices.budget_counts); });
        attempt(evidence->blocks, [&] { return read_blocks_model(reader, positions, pod); });
        return std::shared_ptr<const Evidence>(evidence);
      },
      [this](std::shared_ptr<const Evidence> evidence) {
        evidence_ = std::move(evidence);
        make_notes();
      },
      [](const std::string&) {});
}

void MapsScreen::make_notes() {
  if (!evidence_ || !session().profile()) return;
  const auto layers = static_cast<std::size_t>(session().profile()->header().n_layers);
  notes_made_.request([this, layers, evidence = evidence_, choices = session().choices()] {
    std::vector<LayerNote> notes(layers);
    const auto attempt = [](auto&& make) {
      try {
        make();
      } catch (const Error&) {
        return;  // not known with these choices
      }
    };
    attempt([&] {
      if (!evidence->lazy) return;
      const auto view = lazy_view(*evidence->lazy, choices.lazy);
      for (std::size_t i = 0; i < std::min(layers, view.fixed.lazy.size()); ++i)
        notes[i].lazy = view.fixed.lazy[i] != 0;
    });
    attempt([&] {
      if (!evidence->budgets) return;
      const auto view = budgets_view(*evidence->budgets, choices.budgets);
      for (std::size_t i = 0; i < std::min(layers, view.all.budgets.size()); ++i)
        notes[i].budget = view.all.budgets[i];
    });
    attempt([&] {
      if (!evidence->blocks) return;
      const auto view = blocks_view(*evidence->blocks, choices.blocks);
      for (std::size_t i = 0; i < layers; ++i) {
        std::size_t begins = 0;
        for (const auto& head : view.blocks)
          if (i < head.size() && head[i] == static_cast<std::int64_t>(i)) ++begins;
        notes[i].blocks = str(begins, "/", view.blocks.size());
      }
    });
    return std::function<void()>([this, notes] {
      layer_notes_ = notes;
      grid_->set_notes(notes);
      show_overlays();
    });
  });
}

void MapsScreen::set_order(Order order) {
  order_ = order;
  order_choice_->setCurrentIndex(static_cast<int>(order));
  OpenedProfile* profile = session().profile();
  if (!profile) return;
  const std::size_t sample = session().selection().current().sample;
  if (order == Order::index || (measures_ && measured_sample_ == sample)) {
    apply_order();
    return;
  }
  std::vector<MapLevel> levels;
  try {
    levels = profile->loader().levels(sample);
  } catch (const Error&) {
    return;  // the grid tells
  }
  if (levels.empty()) return;
  std::size_t level = 0;
  while (level + 1 < levels.size() && levels[level].side > 64) ++level;
  measured_sample_ = sample;
  measures_.reset();
  const std::int64_t block = levels[level].block_tokens;
  profile->read(
      this,
      [=](const profile::Reader& reader) {
        return read_head_measures(reader, sample, static_cast<int>(level), block);
      },
      [this, sample](std::vector<HeadMeasures> measures) {
        if (sample != measured_sample_) return;
        measures_ = std::make_shared<const std::vector<HeadMeasures>>(std::move(measures));
        apply_order();
      },
      [this](const std::string& message) {
        emit this->session().message(QString::fromStdString(message));
      });
}

void MapsScreen::apply_order() {
  if (order_ == Order::index || !measures_) {
    grid_->set_order({});
    emit content_changed();
    return;
  }
  const std::int64_t heads = session().profile()->header().n_heads;
  const auto own = static_cast<std::size_t>(grid_->layer() * heads + grid_->head());
  std::vector<HeadGrid::Place> places;
  for (std::size_t i = 0; i < measures_->size(); ++i) {
    const HeadMeasures& measures = (*measures_)[i];
    double number = 0;
    switch (order_) {
      case Order::sink:
        number = measures.sink;
        break;
      case Order::recency:
        number = measures.recency;
        break;
      case Order::entropy:
        number = measures.entropy;
        break;
      default:
        number = own < measures_->size() ? likeness(measures, (*measures_)[own]) : 0;
    }
    places.push_back(
        {static_cast<std::int64_t>(i) / heads, static_cast<std::int64_t>(i) % heads, number});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.number > b.number; });
  grid_->set_order(std::move(places));
  emit content_changed();
}

void MapsScreen::update_readout() {
  if (compare_ == Compare::side_by_side && baseline_map_->n_tokens() > 0 &&
      !map_->map().sample().empty())
    baseline_map_->share_range(map_->map().scale().range());  // what is beside has one scale
  QString text = map_->focus_text();
  const QString region = map_->region_text();
  if (!region.isEmpty()) text = text.isEmpty() ? region : region + "   |   " + text;
  const QString failure = map_->failure();
  if (!failure.isEmpty()) text = failure;
  if (text.isEmpty())
    text = tr("Hover a cell; a click locks it, Shift adds cells, Ctrl+drag marks a rectangle.");
  readout_->setText(text);
  readout_->setToolTip(text);
  if (in_map_) emit content_changed();
}

bool MapsScreen::act(Act act) {
  if (!session().profile() || pages_->currentWidget() == message_) return false;
  switch (act) {
    case Act::reduction: {
      Selection selection = session().selection().current();
      selection.reduction =
          selection.reduction == Reduction::mean ? Reduction::maximum : Reduction::mean;
      session().selection().set(selection);
      return true;
    }
    case Act::next_scale:
      if (!in_map_) {
        grid_scale_->setCurrentIndex(grid_scale_->currentIndex() ^ 1);
        grid_->set_scale(grid_scale_->currentIndex() % 2 == 0 ? ScaleKind::log : ScaleKind::linear,
                         grid_scale_->currentIndex() >= 2);
        return true;
      }
      scale_choice_->setCurrentIndex(scale_choice_->currentIndex() ==
                                             static_cast<int>(ScaleKind::log)
                                         ? static_cast<int>(ScaleKind::linear)
                                         : static_cast<int>(ScaleKind::log));
      return true;
    case Act::mask_sinks:
      if (!in_map_) return false;
      mask_sinks_->toggle();
      return true;
    case Act::difference:
    case Act::swipe: {
      if (!in_map_) return false;
      const Compare wanted = act == Act::swipe ? Compare::swipe : Compare::difference;
      set_compare(compare_ == wanted ? Compare::off : wanted);
      return true;
    }
    case Act::escape:
      if (!in_map_) return false;
      if (!map_->act(act)) show_grid();
      return true;
    default:
      return in_map_ ? map_->act(act) : grid_->act(act);
  }
}

QString MapsScreen::focus_text() const {
  const Selection& selection = session().selection().current();
  QString text = QString("L%1.H%2").arg(selection.layer).arg(selection.head);
  if (in_map_) {
    const QString cell = map_->focus_text();
    if (!cell.isEmpty()) text += " · " + cell;
  }
  return text;
}

PicturePtr MapsScreen::picture() const {
  if (shows_map()) {
    if (compare_ == Compare::side_by_side && map_->picture() && baseline_map_->picture())
      return stacked_picture(map_title().toStdString(), {map_->picture(), baseline_map_->picture()},
                             true);
    return map_->picture();
  }
  return pages_->currentWidget() == grid_page_ ? grid_->picture() : nullptr;
}

Table MapsScreen::table() const {
  if (shows_map()) return map_->table();
  Table table;
  table.columns = {{"layer"}, {"head"}};
  if (measures_) {
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
      std::vector<Table::Cell> row = {static_cast<double>(layer), static_cast<double>(head)};
      const auto at = static_cast<std::size_t>(layer * header.n_heads + head);
      if (measures_ && at < measures_->size()) {
        const HeadMeasures& measures = (*measures_)[at];
        row.insert(row.end(), {measures.sink, measures.recency, measures.entropy});
      }
      const bool noted = static_cast<std::size_t>(layer) < layer_notes_.size();
      const LayerNote note = noted ? layer_notes_[static_cast<std::size_t>(layer)] : LayerNote{};
      row.emplace_back(note.lazy ? (*note.lazy ? "yes" : "no") : "");
      row.emplace_back(note.budget >= 0 ? static_cast<double>(note.budget) : kNoNumber);
      table.rows.push_back(std::move(row));
    }
  return table;
}

}  // namespace kvatlas::viewer
