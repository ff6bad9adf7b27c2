// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/head_page.hpp"

#include <QApplication>
#include <QClipboard>
#include <QLabel>
#include <QSplitter>
#include <QVBoxLayout>
#include <utility>

#include "base/str.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

HeadPage::HeadPage(Session& session, QWidget* parent)
    : QWidget(parent),
      session_(session),
      overlays_(new MapOverlays(session, this)),
      subjects_(session) {
  auto* box = new QVBoxLayout(this);
  box->setContentsMargins(0, 0, 0, 0);
  box->setSpacing(0);
  bar_ = new MapBar(this);
  auto* panes = new QSplitter(this);
  map_ = new MapView(panes);
  baseline_map_ = new MapView(panes);
  baseline_map_->setAccessibleName(tr("Attention map of the baseline"));
  baseline_map_->hide();
  readout_ = new QLabel(this);
  readout_->setMinimumHeight(24);
  readout_->setMargin(4);
  readout_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  readout_->setAccessibleName(tr("Value under the cursor"));
  readout_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  box->addWidget(bar_);
  box->addWidget(panes, 1);
  box->addWidget(readout_);
  connect_maps();
  connect_bar();
  connect(&session_, &Session::baseline_changed, this, &HeadPage::baseline_came);
  const auto show_theme = [this] {
    map_->set_theme(session_.theme());
    baseline_map_->set_theme(session_.theme());
  };
  connect(&session_, &Session::theme_changed, this, show_theme);
  show_theme();
  show_scale();
  profile_came();
}

void HeadPage::profile_came() {
  shown_.reset();
  in_front_ = false;
  baseline_came();
  if (const OpenedProfile* profile = session_.profile())
    bar_->set_kept_choices(selection_labels(profile->header()), overlays_->kept_by());
  else
    map_->set_subject({});
}

void HeadPage::baseline_came() {
  bar_->show_has_baseline(session_.baseline() != nullptr);
  if (!session_.baseline()) set_compare(Compare::off);
  show_subject();
}

void HeadPage::set_in_front(bool in_front) {
  in_front_ = in_front;
  if (!in_front) return;
  shown_.reset();
  follow();
  map_->setFocus();
}

void HeadPage::connect_maps() {
  for (MapView* view : {map_, baseline_map_}) {
    MapView* other = view == map_ ? baseline_map_ : map_;
    view->share_cursor(session_.map_cursor());
    connect(view, &MapView::hovered, this, &HeadPage::update_readout);
    // Panes of one length move together.
    connect(view, &MapView::viewport_changed, other, [this, view, other] {
      if (compare_ != Compare::side_by_side || view->n_tokens() == 0 || other->n_tokens() == 0)
        return;
      other->set_viewport(
          scaled(view->viewport(), double(other->n_tokens()) / double(view->n_tokens())));
    });
    connect(view, &MapView::content_changed, this, &HeadPage::update_readout);
  }
  connect(map_, &MapView::focus_changed, this, [this](qint64 query, qint64 key) {
    Selection selection = session_.selection().current();
    selection.query = query;
    selection.key = key;
    shown_ = selection;
    session_.selection().set(selection);
    update_readout();
  });
  connect(map_, &MapView::region_changed, this, &HeadPage::update_readout);
  connect(overlays_, &MapOverlays::changed, this, &HeadPage::show_overlays);
}

void HeadPage::connect_bar() {
  connect(bar_, &MapBar::back, this, &HeadPage::left);
  connect(bar_, &MapBar::scale_changed, this, &HeadPage::show_scale);
  connect(bar_, &MapBar::reduction_chosen, this, [this](Reduction reduction) {
    session_.selection().change([&](Selection& selection) { selection.reduction = reduction; });
  });
  connect(bar_, &MapBar::mean_over_chosen, this, &HeadPage::set_mean_over);
  connect(bar_, &MapBar::compare_chosen, this, &HeadPage::set_compare);
  connect(bar_, &MapBar::by_depth_toggled, this, [this](bool on) {
    subjects_.by_depth = on;
    show_subject();
  });
  for (MapView* view : {map_, baseline_map_})
    connect(bar_, &MapBar::lock_toggled, view, &MapView::set_locked);
  connect(bar_, &MapBar::window_toggled, overlays_, &MapOverlays::set_window);
  connect(bar_, &MapBar::partitions_toggled, overlays_, &MapOverlays::set_partitions);
  connect(bar_, &MapBar::token_texts_toggled, overlays_, &MapOverlays::set_token_texts);
  connect(bar_, &MapBar::kept_by_chosen, overlays_, &MapOverlays::set_kept_by);
  connect(bar_, &MapBar::rectangle_wanted, map_, [this] { map_->act(Act::rectangle); });
  connect(bar_, &MapBar::copy_wanted, this, [this] {
    const QString csv = map_->region_csv();
    if (!csv.isEmpty()) QApplication::clipboard()->setText(csv);
    emit session_.message(csv.isEmpty() ? tr("No rectangle is marked.")
                                        : tr("Copied the rectangle's statistics."));
  });
}

void HeadPage::follow() {
  const Selection& selection = session_.selection().current();
  bar_->show_reduction(selection.reduction);
  if (!in_front_) return;
  const bool same_sample = shown_ && shown_->sample == selection.sample;
  const bool same = same_sample && shown_->layer == selection.layer &&
                    shown_->head == selection.head && shown_->reduction == selection.reduction;
  const bool zooms = shown_ ? shown_->tokens != selection.tokens : selection.tokens.has_value();
  shown_ = selection;
  if (!same) {
    show_subject();
    if (!same_sample) read_tokens();
    overlays_->read_kept();
    show_overlays();
  }
  if (selection.query >= 0 || map_->focus_query() >= 0)
    map_->set_focus_cell(selection.query, selection.key);
  if (selection.region) map_->set_region(selection.region);
  if (zooms) show_tokens();
}

/// The map then shows those keys and as many of the last queries.
void HeadPage::show_tokens() {
  const auto& shown = session_.selection().current().tokens;
  const std::int64_t n = map_->n_tokens();
  if (!shown || shown->first >= n) return map_->show_all();
  const std::int64_t keys = std::min(shown->second, n) - shown->first;
  map_->show_part({n - keys, shown->first, keys, keys});
}

QString HeadPage::title() const {
  QString title = subjects_.title();
  const OpenedProfile* baseline = session_.baseline();
  if (!baseline) return title;
  const QString name = QString::fromStdString(baseline->path().filename().string());
  if (compare_ == Compare::difference) return tr("Difference to %1: ").arg(name) + title;
  if (compare_ == Compare::swipe) return title + tr(" · right of the line: %1").arg(name);
  return title;
}

void HeadPage::show_subject() {
  if (!session_.profile() || !in_front_) return;
  OpenedProfile* baseline = session_.baseline();
  if (baseline && baseline->samples().empty()) baseline = nullptr;
  MapView::Subject shown{title(), subjects_.of_profile(), {}, {}};
  if (baseline && compare_ == Compare::difference) shown.less = subjects_.of_baseline();
  if (baseline && compare_ == Compare::swipe) shown.swiped = subjects_.of_baseline();
  map_->set_subject(shown);
  const bool beside = baseline && compare_ == Compare::side_by_side;
  MapView::Subject other;
  if (beside) {
    other.title =
        tr("Baseline: %1").arg(QString::fromStdString(baseline->path().filename().string()));
    other.map = subjects_.of_baseline();
  }
  baseline_map_->setVisible(beside);
  baseline_map_->set_subject(other);
  update_readout();
  emit content_changed();
}

void HeadPage::set_compare(Compare compare) {
  if (compare != Compare::off && !session_.baseline()) {
    emit session_.message(tr("Open a baseline first (Ctrl+Shift+O)."));
    compare = Compare::off;
  }
  if (compare == compare_) return;
  compare_ = compare;
  if (compare != Compare::side_by_side && !bar_->locks()) baseline_map_->share_range(std::nullopt);
  bar_->show_compare(compare);
  show_subject();
}

void HeadPage::set_mean_over(MeanOver mean_over) {
  subjects_.mean_over = mean_over;
  bar_->show_mean_over(mean_over);
  show_subject();
}

void HeadPage::show_scale() {
  const std::int64_t masked = bar_->masks_sinks() ? session_.choices().lazy_arrays.keep.initial : 0;
  for (MapView* view : {map_, baseline_map_})
    view->set_scale(bar_->scale(), bar_->per_row(), masked);
}

void HeadPage::show_overlays() {
  if (!session_.profile()) return;
  MapView::Overlays shown = overlays_->overlays();
  map_->set_overlays(shown);
  shown.lanes.clear();  // those of this profile
  baseline_map_->set_overlays(std::move(shown));
}

void HeadPage::read_tokens() {
  OpenedProfile* profile = session_.profile();
  const std::size_t sample = session_.selection().current().sample;
  map_->set_tokens(nullptr);
  profile->read(
      this,
      [sample](const profile::Reader& reader) {
        auto texts = std::make_shared<std::vector<std::string>>();
        for (const std::string& text : read_shown_texts(reader, sample))
          texts->push_back(str("‘", text, "’"));
        if (texts->empty())
          for (const std::int32_t token : reader.tokens(sample)) texts->push_back(str("#", token));
        return TokenList(texts);
      },
      [this, sample](TokenList texts) {
        if (sample == session_.selection().current().sample) map_->set_tokens(std::move(texts));
      },
      [this](const std::string& message) {
        emit session_.message(QString::fromStdString(message));
      });
}

void HeadPage::update_readout() {
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
  if (in_front_) emit content_changed();
}

bool HeadPage::act(Act act) {
  switch (act) {
    case Act::next_scale:
      bar_->next_scale();
      return true;
    case Act::mask_sinks:
      bar_->toggle_sinks();
      return true;
    case Act::difference:
    case Act::beside:
    case Act::swipe: {
      const Compare wanted = compare_of(act);
      set_compare(compare_ == wanted ? Compare::off : wanted);
      return true;
    }
    default:
      return map_->act(act);
  }
}

PicturePtr HeadPage::picture() const {
  PicturePtr picture = map_->picture(), baseline = baseline_map_->picture();
  if (compare_ != Compare::side_by_side || !picture || !baseline) return picture;
  return stacked_picture(title().toStdString(), {picture, baseline}, true);
}

}  // namespace kvatlas::viewer
