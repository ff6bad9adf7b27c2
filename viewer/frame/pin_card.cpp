// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/pin_card.hpp"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QPixmap>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>

#include "base/error.hpp"
#include "viewer/models/jump.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kTarget = 24;

/// The sample's position.
std::optional<std::size_t> position_of(const OpenedProfile& profile, std::int64_t index) {
  const auto& samples = profile.samples();
  const auto found = std::find_if(samples.begin(), samples.end(),
                                  [&](const auto& sample) { return sample.index == index; });
  if (found == samples.end()) return std::nullopt;
  return static_cast<std::size_t>(found - samples.begin());
}

/// The same, if its maps were stored.
std::optional<std::size_t> sample_with_maps(OpenedProfile& profile, std::int64_t index) {
  const auto at = position_of(profile, index);
  try {
    if (at && !profile.loader().levels(*at).empty()) return at;
  } catch (const Error&) {
    return std::nullopt;  // damaged: the screen of maps tells
  }
  return std::nullopt;
}

}  // namespace

PinCard::PinCard(Session& session, const Pin& pin, QWidget* parent) : QFrame(parent) {
  const Place& place = pin.place;
  const QString where =
      QString::fromStdString(place_text(place.layer, place.head, place.query, place.key));
  const QString title = QString::fromStdString(pin.title);
  setFrameShape(QFrame::StyledPanel);
  if (place.sample >= 0) {
    const auto at =
        session.profile() ? position_of(*session.profile(), place.sample) : std::nullopt;
    sample_name_ = at ? QString::fromStdString(session.profile()->samples()[*at].id)
                      : tr("sample %1").arg(place.sample);
  }
  setAccessibleName(tr("Pin: %1, %2").arg(title, where) +
                    (sample_name_.isEmpty() ? QString() : ", " + sample_name_));
  auto* box = new QVBoxLayout(this);
  box->setContentsMargins(4, 2, 4, 4);
  box->setSpacing(2);
  auto* row = new QHBoxLayout;
  row->setSpacing(2);
  box->addLayout(row);
  const auto add_button = [&](const QString& text, const QString& name, auto signal) {
    auto* button = new QToolButton(this);
    button->setText(text);
    button->setToolTip(name);
    button->setAccessibleName(name);
    button->setMinimumSize(kTarget, kTarget);
    button->setAutoRaise(true);
    connect(button, &QToolButton::clicked, this, signal);
    row->addWidget(button);
    return button;
  };
  auto* go = add_button(where, tr("Go to %1, %2 (Return)").arg(title, where), &PinCard::wanted);
  go->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
  add_button("×", tr("Unpin %1, %2 (Delete)").arg(title, where), &PinCard::unpinned);
  if (!sample_name_.isEmpty()) {
    sample_ = new QLabel(this);
    QFont small = font();
    small.setPointSizeF(small.pointSizeF() * 0.85);
    sample_->setFont(small);
    sample_->setTextFormat(Qt::PlainText);
    sample_->setAlignment(Qt::AlignCenter);
    sample_->setToolTip(sample_name_);
    sample_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
    box->addWidget(sample_);
  }
  if (place.screen == "maps") make_map(session, place);
  if (map_) {
    box->addWidget(map_, 1);
    return;
  }
  go->setText(title);
  picture_ = new QLabel(this);
  picture_->setAlignment(Qt::AlignCenter);
  picture_->setFocusPolicy(Qt::StrongFocus);
  picture_->setWordWrap(true);
  picture_->setMinimumSize(48, 48);
  picture_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Ignored);
  picture_->setText(where);
  picture_->installEventFilter(this);
  box->addWidget(picture_, 1);
}

void PinCard::make_map(Session& session, const Place& place) {
  OpenedProfile* profile = session.profile();
  if (!profile) return;
  const auto sample = sample_with_maps(*profile, place.sample);
  const auto& header = profile->header();
  if (!sample || place.layer >= header.n_layers || place.head >= header.n_heads) return;
  map_ = new MapView(this);
  map_->set_bare();
  map_->set_theme(session.theme());
  map_->setAccessibleName(accessibleName());
  map_->share_cursor(session.map_cursor());
  map_->set_subject(
      {"",
       {profile,
        {{*sample, place.layer, place.head, place.maximum ? Reduction::maximum : Reduction::mean}}},
       {},
       {}});
  if (place.region)
    map_->set_region(TokenRectangle{(*place.region)[0], (*place.region)[1], (*place.region)[2],
                                    (*place.region)[3]});
  map_->set_focus_cell(place.query, place.key);
  map_->installEventFilter(this);
}

void PinCard::set_image(const QImage& image) {
  image_ = image;
  show_image();
}

void PinCard::set_theme(const Theme& theme) {
  if (map_) map_->set_theme(theme);
}

void PinCard::show_image() {
  if (!picture_ || image_.isNull()) return;
  const double ratio = devicePixelRatioF();
  QPixmap pixmap = QPixmap::fromImage(image_.scaled((QSizeF(picture_->size()) * ratio).toSize(),
                                                    Qt::KeepAspectRatio, Qt::SmoothTransformation));
  pixmap.setDevicePixelRatio(ratio);
  picture_->setPixmap(pixmap);
}

bool PinCard::act(Act act) {
  if (act == Act::enter) {
    emit wanted();
    return true;
  }
  return map_ && map_->act(act);
}

void PinCard::keyPressEvent(QKeyEvent* event) {
  if (event->key() == Qt::Key_Delete)
    emit unpinned();
  else
    QFrame::keyPressEvent(event);
}

bool PinCard::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::MouseButtonDblClick) {
    emit wanted();
    return true;
  }
  return QFrame::eventFilter(watched, event);
}

void PinCard::show_sample() {
  if (!sample_) return;
  const int room = width() - 2 * frameWidth() - 8;
  sample_->setText(sample_->fontMetrics().elidedText(sample_name_, Qt::ElideMiddle, room));
}

void PinCard::resizeEvent(QResizeEvent* /*event*/) {
  show_image();
  show_sample();
}

}  // namespace kvatlas::viewer
