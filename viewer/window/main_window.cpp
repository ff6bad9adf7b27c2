// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/main_window.hpp"

#include <QCoreApplication>
#include <QHBoxLayout>
#include <QListWidget>
#include <QStackedWidget>
#include <utility>

namespace kvatlas::viewer {

MainWindow::MainWindow(Session& session, std::vector<ScreenEntry> entries)
    : session_(session), entries_(std::move(entries)), made_(entries_.size(), nullptr) {
  auto* centre = new QWidget(this);
  auto* layout = new QHBoxLayout(centre);
  layout->setContentsMargins({});
  bar_ = new QListWidget(centre);
  bar_->setAccessibleName(tr("Screens"));
  bar_->setMaximumWidth(180);
  stack_ = new QStackedWidget(centre);
  layout->addWidget(bar_);
  layout->addWidget(stack_, 1);
  setCentralWidget(centre);
  for (const auto& entry : entries_)
    bar_->addItem(QCoreApplication::translate("Screens", entry.title));
  connect(bar_, &QListWidget::currentRowChanged, this, [this](int row) {
    if (row >= 0) show_screen(QString::fromUtf8(entries_[static_cast<std::size_t>(row)].id));
  });
  connect(&session_, &Session::profile_changed, this, [this] {
    setWindowTitle(QString::fromStdString(session_.profile()->header().model_name));
    if (!entries_.empty() && !screen()) bar_->setCurrentRow(0);
  });
}

Screen* MainWindow::screen() const { return qobject_cast<Screen*>(stack_->currentWidget()); }

bool MainWindow::show_screen(const QString& id) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (id != QString::fromUtf8(entries_[i].id)) continue;
    if (!made_[i]) {
      made_[i] = entries_[i].make(session_, stack_);
      stack_->addWidget(made_[i]);
      connect(made_[i], &Screen::screen_wanted, this, &MainWindow::show_screen);
    }
    stack_->setCurrentWidget(made_[i]);
    bar_->setCurrentRow(static_cast<int>(i));
    return true;
  }
  return false;
}

}  // namespace kvatlas::viewer
