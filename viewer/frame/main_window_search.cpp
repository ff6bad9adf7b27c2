// SPDX-License-Identifier: Apache-2.0
// A search for the best policy: started from the window, watched, and shown when it ends.
#include "viewer/frame/main_window.hpp"
#include "viewer/frame/search_dialog.hpp"

namespace kvatlas::viewer {

void MainWindow::connect_search() {
  connect((*actions_)["file.search"], &QAction::triggered, this, [this] {
    if (!search_dialog_) search_dialog_ = new SearchDialog(session_, *search_, settings_, this);
    search_dialog_->show();
    search_dialog_->raise();
    search_dialog_->activateWindow();
  });
  connect(search_, &SearchJob::started, this, [this] {
    search_shown_ = jobs_->begin(tr("Searching policies"), [this] { search_->stop(); });
  });
  connect(search_, &SearchJob::said, this, [this](const QString& line) {
    if (line.contains("stage") || line.contains("finalists"))
      jobs_->rename(search_shown_, QString(line).remove("kvatlas: "));
  });
  connect(search_, &SearchJob::ended, this, &MainWindow::search_ended);
}

void MainWindow::search_ended(SearchJob::End end) {
  jobs_->end(search_shown_);
  Banners::Message message{.text = {}, .details = search_->last_line(), .subject = "search"};
  switch (end) {
    case SearchJob::End::found:
      front_waits_ = true;
      session_.open({search_->output().toStdString()});
      message.text = tr("The search has ended: a point of its front can be chosen as the policy.");
      message.is_failure = false;
      break;
    case SearchJob::End::not_met:
      message.text = tr("The search found no policy that meets what was asked.");
      break;
    case SearchJob::End::stopped:
      message.text = tr("The search was stopped; started again, it goes on where it was.");
      message.is_failure = false;
      break;
    case SearchJob::End::failed:
      message.text = tr("The search failed: %1").arg(search_->last_line());
      break;
  }
  banners_->show_message(message);
}

}  // namespace kvatlas::viewer
