// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/baseline_beside.hpp"

#include <QFrame>
#include <QLabel>
#include <QMouseEvent>
#include <QScrollArea>
#include <QScrollBar>
#include <QStackedWidget>
#include <algorithm>

#include "base/str.hpp"
#include "viewer/draw/chart_view.hpp"
#include "viewer/frame/difference_view.hpp"
#include "viewer/screens/control_bar.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kLineWidth = 7;
constexpr int kLeastHalf = 520;  // pixels of width; with less, one stands below the other

/// What compares by itself, or shows documents alone.
bool shows_baseline(const Screen& screen) {
  static const QStringList others = {"maps", "comparison", "sweep", "precision", "needle", "text"};
  return !others.contains(screen.id());
}

/// Pages that are higher than the window show the same part.
void scroll_together(const Screen& one, const Screen& other) {
  const auto bar_of = [](const Screen& screen) {
    const auto* page = screen.findChild<QScrollArea*>(QStringLiteral("page"));
    return page ? page->verticalScrollBar() : nullptr;
  };
  QScrollBar *const first = bar_of(one), *const second = bar_of(other);
  if (!first || !second) return;
  QObject::connect(first, &QScrollBar::valueChanged, second, &QScrollBar::setValue);
  QObject::connect(second, &QScrollBar::valueChanged, first, &QScrollBar::setValue);
}

}  // namespace

BaselineBeside::BaselineBeside(Session& session, const std::vector<ScreenEntry>& entries,
                               QStackedWidget* front, QWidget* parent)
    : QWidget(parent), session_(session), entries_(entries), front_(front) {
  front_->setParent(this);
  front_->setAutoFillBackground(true);  // what lies beneath does not shine through
  names_ = new QLabel(this);
  names_->setObjectName("beside.names");
  names_->setTextFormat(Qt::PlainText);
  names_->setContentsMargins(8, 2, 8, 2);
  auto* line = new QFrame(this);
  line->setFrameShape(QFrame::Panel);
  line->setFrameShadow(QFrame::Raised);
  line->setAutoFillBackground(true);
  line->setCursor(Qt::SplitHCursor);
  line->setAccessibleName(tr("Line between the profile and the baseline"));
  line->installEventFilter(this);
  line_ = line;
  difference_ = new DifferenceView(session_, this);
  difference_->hide();
  soon_.setSingleShot(true);
  connect(&soon_, &QTimer::timeout, this, &BaselineBeside::compare);
  connect(front_, &QStackedWidget::currentChanged, this, &BaselineBeside::refresh);
  connect(&session_, &Session::baseline_changed, this, &BaselineBeside::refresh);
  connect(&session_, &Session::profile_changed, this, &BaselineBeside::refresh);
  arrange();
}

BaselineBeside::~BaselineBeside() {
  disconnect(front_, nullptr, this, nullptr);
  delete other_;  // before the session that it shows
}

Screen* BaselineBeside::front_screen() const {
  return qobject_cast<Screen*>(front_->currentWidget());
}

DifferenceView* BaselineBeside::difference() const {
  return other_ && form_ == Compare::difference ? difference_ : nullptr;
}

bool BaselineBeside::toggle(Compare form) {
  const auto* front = front_screen();
  if (!session_.baseline() || !front || !shows_baseline(*front)) return false;
  form_ = form_ == form ? Compare::off : form;
  refresh();
  return true;
}

void BaselineBeside::refresh() {
  const auto* front = front_screen();
  const bool wanted =
      form_ != Compare::off && front && session_.baseline() && shows_baseline(*front);
  if (!wanted || (other_ && other_->id() != front->id())) {
    delete other_;
    other_ = nullptr;
  }
  if (!wanted && !session_.baseline()) {
    follower_.reset();
    form_ = Compare::off;
  }
  if (wanted && !follower_) {
    follower_ = std::make_unique<Session>();
    follower_->follow(session_);
  }
  if (wanted && !other_)
    for (const auto& entry : entries_)
      if (front->id() == QString::fromUtf8(entry.id)) {
        other_ = make_screen(entry, *follower_, this);
        other_->setAccessibleName(tr("%1, baseline").arg(front->title()));
        other_->show();
        scroll_together(*front, *other_);
        connect(other_, &Screen::content_changed, &soon_, qOverload<>(&QTimer::start));
      }
  disconnect(front_changes_);
  if (front)
    front_changes_ = connect(front, &Screen::content_changed, &soon_, qOverload<>(&QTimer::start));
  arrange();
  compare();
  emit form_changed();
}

void BaselineBeside::compare() {
  line_up();
  if (!difference()) return;
  arrange();  // the controls may have become higher
  difference_->compare(*front_screen(), *other_);
}

/// Charts of both sides have the same frames and ranges, wherever both have content.
void BaselineBeside::line_up() {
  const auto charts = [](const Screen* screen) {
    return screen ? screen->findChildren<ChartView*>() : QList<ChartView*>();
  };
  const auto mine = charts(front_screen()), theirs = charts(other_);
  for (qsizetype i = 0; i < mine.size(); ++i) {
    const bool compared = form_ != Compare::difference && i < theirs.size() &&
                          has_content(mine[i]->chart()) && has_content(theirs[i]->chart());
    if (compared)
      ChartView::line_up(*mine[i], *theirs[i]);
    else
      mine[i]->stand_alone();
  }
}

PicturePtr BaselineBeside::picture() const {
  const auto* front = front_screen();
  if (!front || !other_) return front ? front->picture() : nullptr;
  if (form_ == Compare::difference) return difference_->picture();
  auto mine = front->picture(), theirs = other_->picture();
  if (!mine || !theirs) return mine;
  const std::string title = str(front->title().toStdString(), ": ", name_of(session_.profile()),
                                " beside ", name_of(session_.baseline()));
  return stacked_picture(title, {mine, theirs}, true);
}

void BaselineBeside::set_line(double share) {
  share_ = std::clamp(share, 0.05, 0.95);
  arrange();
}

void BaselineBeside::arrange() {
  names_->setVisible(other_ != nullptr);
  line_->setVisible(other_ && form_ == Compare::swipe);
  difference_->setVisible(difference() != nullptr);
  // What lies beneath is not for the keyboard.
  for (auto* screen : {front_screen(), other_})
    for (auto* chart : screen ? screen->findChildren<ChartView*>() : QList<ChartView*>())
      chart->setFocusPolicy(difference() ? Qt::NoFocus : Qt::StrongFocus);
  if (!other_) {
    front_->setGeometry(rect());
    return;
  }
  const auto first = QString::fromStdString(name_of(session_.profile()));
  const auto second = QString::fromStdString(name_of(session_.baseline()));
  const int strip = names_->sizeHint().height();
  other_->clearMask();
  // The settings are the same ones. Both sides lie alike, so that what is compared lines up.
  const bool below = width() < 2 * kLeastHalf && form_ == Compare::side_by_side;
  for (auto* bar : other_->findChildren<ControlBar*>()) {
    QSizePolicy policy = bar->sizePolicy();
    policy.setRetainSizeWhenHidden(!below);
    bar->setSizePolicy(policy);
    bar->setVisible(form_ == Compare::swipe);
  }
  const QRect both(0, strip, width(), height() - strip);
  if (form_ == Compare::difference) {
    names_->setText(tr("difference: %1 less %2 (baseline)").arg(first, second));
    names_->setGeometry(0, 0, width(), strip);
    show_difference(both);
    return;
  }
  if (form_ == Compare::swipe) {
    const int at = static_cast<int>(share_ * width());
    names_->setText(tr("left of the line: %1, right of it: %2 (baseline)").arg(first, second));
    names_->setGeometry(0, 0, width(), strip);
    front_->setGeometry(both);
    other_->setGeometry(both);
    other_->setMask(QRegion(at, 0, width() - at, both.height()));
    other_->raise();
    line_->setGeometry(at - kLineWidth / 2, strip, kLineWidth, both.height());
    line_->raise();
    return;
  }
  if (below) {
    const int half = height() / 2;
    names_->setText(tr("baseline: %1").arg(second));
    front_->setGeometry(0, 0, width(), half);
    names_->setGeometry(0, half, width(), strip);
    other_->setGeometry(0, half + strip, width(), height() - half - strip);
    return;
  }
  const int half = width() / 2;
  names_->setText(tr("left: %1, right: %2 (baseline)").arg(first, second));
  names_->setGeometry(0, 0, width(), strip);
  front_->setGeometry(QRect(0, strip, half, both.height()));
  other_->setGeometry(QRect(half, strip, half, both.height()));
}

/// It lies where the charts in front are, below their controls; the baseline's screen works
/// beneath.
void BaselineBeside::show_difference(const QRect& both) {
  front_->setGeometry(both);
  other_->setGeometry(both);
  other_->lower();
  const auto* bar = front_screen()->findChild<ControlBar*>();
  const int controls = bar && !bar->isHidden() ? bar->geometry().bottom() + 1 : 0;
  difference_->setGeometry(both.adjusted(0, controls, 0, 0));
  difference_->raise();
}

QSize BaselineBeside::minimumSizeHint() const { return front_->minimumSizeHint(); }

void BaselineBeside::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  arrange();
}

bool BaselineBeside::eventFilter(QObject* watched, QEvent* event) {
  if (watched == line_ && event->type() == QEvent::MouseMove) {
    const auto* mouse = static_cast<QMouseEvent*>(event);
    if (mouse->buttons() & Qt::LeftButton)
      set_line(mapFromGlobal(mouse->globalPosition()).x() / std::max(width(), 1));
    return true;
  }
  return QWidget::eventFilter(watched, event);
}

}  // namespace kvatlas::viewer
