// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/pin_tray.hpp"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QListWidget>
#include <QPainter>
#include <QPushButton>
#include <QShortcut>
#include <QVBoxLayout>
#include <algorithm>

#include "viewer/models/jump.hpp"
#include "viewer/models/link.hpp"

namespace kvatlas::viewer {

namespace {

constexpr QSize kImage(160, 90);

QString key_of(const Place& place) { return QString::fromStdString(link_text({"", place})); }

}  // namespace

PinTray::PinTray(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
  files_.setMaxThreadCount(1);  // one writing after the other
  list_ = new QListWidget(this);
  list_->setAccessibleName(tr("Pinned views"));
  list_->setViewMode(QListView::IconMode);
  list_->setFlow(QListView::LeftToRight);
  list_->setWrapping(false);
  list_->setMovement(QListView::Static);
  list_->setIconSize(kImage);
  list_->setSpacing(4);
  list_->setMinimumHeight(60);
  auto* remove = new QPushButton(tr("Unpin"), this);
  remove->setAccessibleName(tr("Unpin the chosen view"));
  remove->setMinimumHeight(26);
  remove->setEnabled(false);
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(list_, 1);
  layout->addWidget(remove, 0, Qt::AlignTop);
  connect(list_, &QListWidget::itemActivated, this, [this](QListWidgetItem* item) {
    emit wanted(sidecar_.pins[static_cast<std::size_t>(list_->row(item))].place);
  });
  connect(list_, &QListWidget::currentRowChanged, remove,
          [remove](int row) { remove->setEnabled(row >= 0); });
  connect(remove, &QPushButton::clicked, this, [this] { unpin(list_->currentRow()); });
  auto* key = new QShortcut(QKeySequence::Delete, list_);
  key->setContext(Qt::WidgetShortcut);
  connect(key, &QShortcut::activated, this, [this] { unpin(list_->currentRow()); });
  connect(&session_, &Session::profile_changed, this, &PinTray::profile_changed);
}

void PinTray::profile_changed() {
  const auto* profile = session_.profile();
  if (profile && sidecar_path(profile->path()) == path_ && readable_) return;  // read anew
  sidecar_ = {};
  images_.clear();
  readable_ = false;
  path_ = profile ? sidecar_path(profile->path()) : std::filesystem::path();
  refresh();
  if (!profile) return;
  files_.start([this, path = path_, reading = ++readings_] {
    Sidecar sidecar;
    QString failure;
    try {
      sidecar = read_sidecar(path);
    } catch (const std::exception& error) {
      failure = QString::fromUtf8(error.what());
    }
    QMetaObject::invokeMethod(this, [this, reading, sidecar, failure] {
      if (reading != readings_) return;
      readable_ = failure.isEmpty();
      sidecar_ = sidecar;
      if (!readable_) emit failed(failure);
      refresh();
      emit notes_changed();
    });
  });
}

void PinTray::pin(const Place& place, const QString& title, const QImage& image) {
  if (!image.isNull())
    images_[key_of(place)] =
        image.scaled(kImage * 2, Qt::KeepAspectRatio, Qt::SmoothTransformation);
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
  if (path_.empty()) return;
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
      QMetaObject::invokeMethod(
          this, [this, text = QString::fromUtf8(error.what())] { emit failed(text); });
    }
  });
}

void PinTray::refresh() {
  const int row = list_->currentRow();
  list_->clear();
  for (const auto& pin : sidecar_.pins) {
    const auto& place = pin.place;
    const QString where =
        QString::fromStdString(place_text(place.layer, place.head, place.query, place.key));
    auto* item = new QListWidgetItem(QString::fromStdString(pin.title) + "\n" + where, list_);
    item->setToolTip(tr("Return or a double click goes there, Delete unpins."));
    QPixmap icon(kImage * 2);
    icon.fill(session_.theme().background);
    const QImage image = images_.value(key_of(place));
    if (!image.isNull()) {
      QPainter painter(&icon);
      painter.drawImage((icon.width() - image.width()) / 2, (icon.height() - image.height()) / 2,
                        image);
    }
    icon.setDevicePixelRatio(2);
    item->setIcon(icon);
  }
  list_->setCurrentRow(std::min(row, list_->count() - 1));
}

}  // namespace kvatlas::viewer
