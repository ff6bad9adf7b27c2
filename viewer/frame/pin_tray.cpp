// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/pin_tray.hpp"

#include <QApplication>
#include <QHBoxLayout>
#include <QResizeEvent>
#include <QScrollArea>
#include <algorithm>
#include <utility>

#include "viewer/models/link.hpp"

namespace kvatlas::viewer {

namespace {

constexpr QSize kImage(480, 270);
constexpr int kLeastCard = 130, kMostCard = 420, kCardHeader = 48, kCardMargins = 10;

QString key_of(const Place& place) { return QString::fromStdString(link_text({"", place})); }

}  // namespace

PinTray::PinTray(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
  area_ = new QScrollArea(this);
  area_->setAccessibleName(tr("Pinned views"));
  area_->setFrameShape(QFrame::NoFrame);
  area_->setWidgetResizable(true);
  area_->setFocusPolicy(Qt::NoFocus);
  area_->setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  area_->setMinimumHeight(100);
  auto* cards = new QWidget(area_);
  row_ = new QHBoxLayout(cards);
  row_->setContentsMargins({});
  row_->setSpacing(6);
  row_->addStretch(1);
  area_->setWidget(cards);
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(area_, 1);
  connect(&session_, &Session::profile_changed, this, &PinTray::profile_changed);
  connect(&session_, &Session::theme_changed, this, [this] {
    for (PinCard* card : cards_) card->set_theme(session_.theme());
  });
}

void PinTray::profile_changed() {
  const auto* profile = session_.profile();
  if (profile && sidecar_path(profile->path()) == path_ && readable_) {
    refresh();  // read anew
    return;
  }
  sidecar_ = {};
  images_.clear();
  readable_ = reading_ = false;
  path_ = profile ? sidecar_path(profile->path()) : std::filesystem::path();
  refresh();
  if (!profile) return;
  reading_ = true;
  files_.start([this, path = path_, reading = ++readings_] {
    Sidecar sidecar;
    QString failure;
    try {
      sidecar = read_sidecar(path);
    } catch (const std::exception& error) {
      failure = QString::fromUtf8(error.what());
    }
    mailbox_.post([this, reading, sidecar, failure] {
      if (reading != readings_) return;
      readable_ = failure.isEmpty();
      reading_ = false;
      const Sidecar meanwhile = std::exchange(sidecar_, sidecar);
      sidecar_.pins.insert(sidecar_.pins.end(), meanwhile.pins.begin(), meanwhile.pins.end());
      sidecar_.notes.insert(sidecar_.notes.end(), meanwhile.notes.begin(), meanwhile.notes.end());
      if (!readable_) emit failed(failure);
      if (meanwhile != Sidecar{}) save();
      refresh();
      emit notes_changed();
      if (!sidecar_.pins.empty()) emit pins_came();
    });
  });
}

void PinTray::pin(const Place& place, const QString& title, const QImage& image) {
  if (!image.isNull())
    images_[key_of(place)] = image.scaled(kImage, Qt::KeepAspectRatio, Qt::SmoothTransformation);
  const auto same = [&](const Pin& pin) { return pin.place == place; };
  if (std::none_of(sidecar_.pins.begin(), sidecar_.pins.end(), same)) {
    sidecar_.pins.push_back({place, title.toStdString()});
    save();
  }
  refresh();
}

void PinTray::unpin(int index) {
  if (index < 0 || index >= static_cast<int>(sidecar_.pins.size())) return;
  sidecar_.pins.erase(sidecar_.pins.begin() + index);
  save();
  refresh();
}

void PinTray::set_note(const Place& place, const QString& text) {
  std::erase_if(sidecar_.notes, [&](const Note& note) { return note.place == place; });
  if (!text.trimmed().isEmpty()) sidecar_.notes.push_back({place, text.trimmed().toStdString()});
  save();
  emit notes_changed();
}

QString PinTray::note_at(const Place& place) const {
  for (const auto& note : sidecar_.notes)
    if (note.place == place) return QString::fromStdString(note.text);
  return {};
}

QStringList PinTray::notes_at(const Place& place) const {
  QStringList notes;
  for (const auto& note : sidecar_.notes)
    if (note.place.layer == place.layer && note.place.head == place.head &&
        (note.place.sample < 0 || note.place.sample == place.sample))
      notes << QString::fromStdString(note.text);
  return notes;
}

void PinTray::save() {
  if (path_.empty() || reading_) return;
  if (!readable_) {
    emit failed(
        tr("%1 is not replaced, for it could not be read: pins and notes of this window are "
           "not kept.")
            .arg(QString::fromStdString(path_.string())));
    return;
  }
  files_.start([this, sidecar = sidecar_, path = path_] {
    try {
      write_sidecar(sidecar, path);
    } catch (const std::exception& error) {
      mailbox_.post([this, text = QString::fromUtf8(error.what())] { emit failed(text); });
    }
  });
}

PinCard* PinTray::make_card(const Pin& pin) {
  auto* card = new PinCard(session_, pin, area_->widget());
  card->set_image(images_.value(key_of(pin.place)));
  connect(card, &PinCard::wanted, this, [this, place = pin.place] { emit wanted(place); });
  connect(card, &PinCard::unpinned, this, [this, card] {
    unpin(static_cast<int>(std::find(cards_.begin(), cards_.end(), card) - cards_.begin()));
  });
  return card;
}

/// Cards are made anew: there are few, and their tiles are in the cache.
void PinTray::refresh() {
  const std::size_t row = card_in_focus();
  const bool had_focus = row < cards_.size();
  for (PinCard* card : cards_) {
    card->hide();
    card->deleteLater();  // it may be the sender
  }
  cards_.clear();
  for (const auto& pin : sidecar_.pins) {
    cards_.push_back(make_card(pin));
    row_->insertWidget(row_->count() - 1, cards_.back());
    cards_.back()->show();
  }
  resizeEvent(nullptr);
  if (!had_focus || cards_.empty()) return;
  PinCard* next = cards_[std::min(row, cards_.size() - 1)];
  (next->map() ? static_cast<QWidget*>(next->map()) : next)->setFocus();
}

bool PinTray::act(Act act) {
  const std::size_t focused = card_in_focus();
  return focused < cards_.size() && cards_[focused]->act(act);
}

std::size_t PinTray::card_in_focus() const {
  const auto has_focus = [](const PinCard* card) {
    return card->isAncestorOf(QApplication::focusWidget());
  };
  return static_cast<std::size_t>(std::find_if(cards_.begin(), cards_.end(), has_focus) -
                                  cards_.begin());
}

/// Maps are square.
void PinTray::resizeEvent(QResizeEvent* /*event*/) {
  const int side = area_->height() - kCardHeader + kCardMargins;
  for (PinCard* card : cards_) card->setFixedWidth(std::clamp(side, kLeastCard, kMostCard));
}

}  // namespace kvatlas::viewer
