// SPDX-License-Identifier: Apache-2.0
// Files: opened, dropped, watched.
#include <QDragEnterEvent>
#include <QDropEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QLabel>
#include <QListWidget>
#include <QMimeData>
#include <QStackedWidget>
#include <algorithm>
#include <utility>

#include "viewer/frame/main_window.hpp"
#include "viewer/models/link.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kMostRecent = 10;

QString text_of(const std::filesystem::path& path) { return QString::fromStdString(path.string()); }

}  // namespace

void MainWindow::connect_files() {
  connect(start_, &StartPage::open_wanted, (*actions_)["file.open"], &QAction::trigger);
  connect(start_, &StartPage::file_wanted, this, [this](const QString& path) { open_all({path}); });
  connect(&session_, &Session::opening, this, [this](const QString& names) {
    ++openings_;
    jobs_->begin(tr("Opening %1").arg(names), [this] { session_.cancel_openings(); });
  });
  connect(&session_, &Session::opened, this, [this](const QString& names) {
    jobs_->end(tr("Opening %1").arg(names));
    if (--openings_ > 0) return;
    pending_.reset();  // what they were for did not open
    front_waits_ = false;
  });
  connect(&session_, &Session::failed, this, [this](const QString& message) {
    banners_->show_message({.text = message,
                            .details = session_.is_open() ? tr("What was open before is unchanged.")
                                                          : tr("Nothing was opened.")});
  });
  connect(&session_, &Session::unfinished, this, [this](const QString& path) {
    watch_->watch(path.toStdString());
    banners_->show_message(
        {.text = tr("%1 is still being written: it opens by itself once its first "
                    "samples have been put together.")
                     .arg(QFileInfo(path).fileName()),
         .details = path,
         .subject = path,
         .is_failure = false});
  });
  connect(&session_, &Session::profile_changed, this, &MainWindow::profile_opened);
  connect(&session_, &Session::front_opened, this, [this] {
    if (!pending_) front_waits_ = true;  // unless a place was asked for
  });
  connect(&session_, &Session::baseline_changed, this, [this] {
    if (const auto* baseline = session_.baseline()) {
      remember_recent(text_of(baseline->path()));
      watch_->watch(baseline->path());
    }
  });
  connect(&session_, &Session::documents_changed, this, [this] {
    for (const auto& document : session_.documents()) {
      remember_recent(text_of(document.path));
      watch_->watch(document.path);
    }
    if (std::exchange(front_waits_, false)) show_screen("comparison");
    if (!screen() && !entries_.empty() && !session_.documents().empty())
      show_screen(QString::fromUtf8(entries_.front().id));
  });
  connect(&session_, &Session::kept_changed, this, [this] {
    remember_recent(text_of(session_.kept()->path));
    show_screen("text");
    refresh_actions();
  });
  connect(watch_, &FileWatch::replaced, this, &MainWindow::file_replaced);
  connect(watch_, &FileWatch::removed, this, &MainWindow::file_removed);
  connect(watch_, &FileWatch::parts_changed, this, [this](const QString& path, int parts) {
    const auto* profile = session_.profile();
    if (!profile || text_of(profile->path()) != path) return;
    parts_ = parts;
    refresh_writing();
  });
}

void MainWindow::open_all(const QStringList& files, bool as_baseline) {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : files) {
    if (!is_link(file.toStdString())) {
      paths.emplace_back(QFileInfo(file).absoluteFilePath().toStdString());
      continue;
    }
    try {
      const Link link = parse_link(file.toStdString());
      const auto* profile = session_.profile();
      if (link.file.empty() || (profile && profile->path() == link.file)) {
        go_to(link.place);
        continue;
      }
      pending_ = link.place;
      paths.emplace_back(link.file);
    } catch (const std::exception& error) {
      emit session_.failed(QString::fromUtf8(error.what()));
    }
  }
  session_.open(paths, as_baseline);
}

void MainWindow::go_to_when_open(const Place& place) {
  if (session_.profile())
    go_to(place);
  else
    pending_ = place;
}

void MainWindow::ask_for_files(bool as_baseline) {
  auto* dialog = new QFileDialog(this, as_baseline ? tr("Open baseline") : tr("Open"));
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setFileMode(as_baseline ? QFileDialog::ExistingFile : QFileDialog::ExistingFiles);
  dialog->setNameFilters(
      {tr("Profiles, policies and kept tokens (*.h5 *.json *.jsonl)"), tr("All files (*)")});
  dialog->setDirectory(settings_.value("files/folder").toString());
  connect(dialog, &QFileDialog::filesSelected, this, [this, as_baseline](const QStringList& files) {
    if (!files.empty()) settings_.setValue("files/folder", QFileInfo(files.front()).path());
    open_all(files, as_baseline);
  });
  dialog->open();
}

void MainWindow::profile_opened() {
  const auto* profile = session_.profile();
  if (!profile) return;
  const QString path = text_of(profile->path());
  setWindowTitle(
      tr("%1 – %2 – kvatlas")
          .arg(QString::fromStdString(profile->header().model_name), QFileInfo(path).fileName()));
  remember_recent(path);
  parts_ = static_cast<int>(FileWatch::look_at(profile->path()).parts);
  watch_->watch(profile->path());
  banners_->dismiss(path);
  refresh_writing();
  if (pending_) {
    const Place place = *pending_;
    pending_.reset();
    go_to(place);
  }
  if (screen()) return;
  const auto last = settings_.value("window/screen").toString();
  if (!show_screen(last) && !entries_.empty()) show_screen(QString::fromUtf8(entries_.front().id));
}

void MainWindow::remember_recent(const QString& path) {
  auto recent = settings_.value("files/recent").toStringList();
  recent.removeAll(path);
  recent.prepend(path);
  settings_.setValue("files/recent", recent.mid(0, kMostRecent));
  start_->set_recent(recent);
}

void MainWindow::refresh_writing() {
  const auto* profile = session_.profile();
  const bool shown = profile && !profile->complete();
  writing_label_->setVisible(shown);
  if (!shown) return;
  QString text = tr("%1 of %2 samples, still being written")
                     .arg(profile->samples().size())
                     .arg(profile->header().planned_samples);
  if (parts_ > 0) text += tr(" (%1 more beside the file)").arg(parts_);
  writing_label_->setText(text);
}

void MainWindow::file_replaced(const QString& path) {
  const auto* profile = session_.profile();
  const auto* baseline = session_.baseline();
  const auto reload = [this, path] {
    const auto* now = session_.profile();
    const auto* base = session_.baseline();
    if (now && text_of(now->path()) == path) session_.reload();
    if (base && text_of(base->path()) == path) session_.reload(true);
    for (const auto& document : session_.documents())
      if (text_of(document.path) == path) {
        session_.open({document.path});
        break;
      }
  };
  const bool is_profile = profile && text_of(profile->path()) == path;
  const bool is_baseline = baseline && text_of(baseline->path()) == path;
  const bool is_document =
      std::any_of(session_.documents().begin(), session_.documents().end(),
                  [&](const OpenedDocument& document) { return text_of(document.path) == path; });
  banners_->dismiss(path);
  if (!is_profile && !is_baseline && !is_document) {  // waited for
    watch_->forget(path.toStdString());
    open_all({path});
  } else if (is_profile && !profile->complete()) {
    reload();  // that is what it was expected to do
  } else {
    banners_->show_message({.text = tr("%1 has changed on disk.").arg(QFileInfo(path).fileName()),
                            .details = path,
                            .offer = tr("Reload"),
                            .accept = reload,
                            .subject = path,
                            .is_failure = false});
  }
}

void MainWindow::file_removed(const QString& path) {
  banners_->show_message(
      {.text = tr("%1 was deleted or moved. What is shown is what was read of "
                  "it; the rest can no longer be read once the window closes it.")
                   .arg(QFileInfo(path).fileName()),
       .details = path,
       .subject = path});
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
  if (event->mimeData()->hasUrls() || is_link(event->mimeData()->text().toStdString()))
    event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
  QStringList files;
  for (const auto& url : event->mimeData()->urls())
    if (url.isLocalFile())
      files << url.toLocalFile();
    else if (url.scheme() == "kvatlas")
      files << event->mimeData()->text();
    else
      emit session_.failed(tr("%1 is no file on this machine.").arg(url.toDisplayString()));
  if (files.empty() && is_link(event->mimeData()->text().toStdString()))
    files << event->mimeData()->text();
  event->acceptProposedAction();
  open_all(files);
}

}  // namespace kvatlas::viewer
