// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/difference_view.hpp"

#include <QGridLayout>
#include <QLabel>
#include <algorithm>

#include "viewer/draw/chart_view.hpp"
#include "viewer/models/chart_difference.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

namespace {

/// What a screen says in the place of its charts.
QString said_by(const Screen& screen) {
  const auto* live = qobject_cast<const LiveScreen*>(&screen);
  return live ? live->message() : QString();
}

}  // namespace

DifferenceView::DifferenceView(Session& session, QWidget* parent)
    : Screen(session, parent), grid_(new QGridLayout(this)), message_(new QLabel(this)) {
  setAutoFillBackground(true);
  grid_->setContentsMargins(0, 0, 0, 0);
  message_->setObjectName(QStringLiteral("difference.message"));
  message_->setWordWrap(true);
  message_->setAlignment(Qt::AlignCenter);
  message_->setMargin(40);
  message_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  connect(&session, &Session::theme_changed, this, [this] {
    for (auto* view : views_) view->set_theme(this->session().theme());
  });
}

void DifferenceView::compare(const Screen& front, const Screen& other) {
  set_names(front.id(), tr("%1, difference").arg(front.title()));
  const std::string name = name_of(session().profile());
  const std::string baseline = name_of(session().baseline());
  const auto mine = front.charts(), theirs = other.charts();
  std::vector<Chart> found;
  QStringList reasons;
  for (const QString& said : {said_by(front), said_by(other)})
    if (!said.isEmpty() && !reasons.contains(said)) reasons << said;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    if (!has_content(mine[i]) || !has_content(theirs[i])) continue;
    Chart chart = chart_difference(mine[i], name, theirs[i], baseline);
    if (has_content(chart))
      found.push_back(std::move(chart));
    else if (const auto reason = QString::fromStdString(chart.notes.front());
             !reasons.contains(reason))
      reasons << reason;
  }
  while (views_.size() < found.size()) {
    views_.push_back(new ChartView(this));
    views_.back()->set_theme(session().theme());
  }
  const bool in_pairs = found.size() > 2;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const bool shown = i < found.size();
    const int at = static_cast<int>(i);
    const bool alone = !in_pairs || (i % 2 == 0 && i + 1 == found.size());
    if (shown)
      grid_->addWidget(views_[i], in_pairs ? at / 2 : at, in_pairs ? at % 2 : 0, 1, alone ? 2 : 1);
    if (shown) views_[i]->setAccessibleName(QString::fromStdString(found[i].title));
    views_[i]->set_chart(shown ? std::move(found[i]) : Chart());
    views_[i]->setVisible(shown);
  }
  const bool nothing = found.empty();
  message_->setText(nothing ? reasons.join('\n') : QString());
  message_->setVisible(nothing);
  grid_->addWidget(message_, 0, 0, 1, 2);
  emit content_changed();
}

std::vector<Chart> DifferenceView::charts() const {
  std::vector<Chart> charts;
  for (const auto* view : views_)
    if (has_content(view->chart())) charts.push_back(view->chart());
  return charts;
}

PicturePtr DifferenceView::picture() const {
  std::vector<PicturePtr> parts;
  for (Chart& chart : charts()) parts.push_back(chart_picture(std::move(chart)));
  return parts.empty() ? nullptr : stacked_picture(title().toStdString(), std::move(parts), false);
}

Table DifferenceView::table() const {
  const auto shown = charts();
  return shown.empty() ? Table{} : shown.front().table;
}

}  // namespace kvatlas::viewer
