// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/jobs_bar.hpp"

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <algorithm>
#include <utility>

namespace kvatlas::viewer {

JobsBar::JobsBar(QWidget* parent, int patience_ms) : QWidget(parent) {
  label_ = new QLabel(this);
  auto* progress = new QProgressBar(this);
  progress->setRange(0, 0);
  progress->setFixedWidth(80);
  progress->setAccessibleName(tr("Something goes on"));
  cancel_ = new QPushButton(tr("Cancel"), this);
  cancel_->setMinimumHeight(24);
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins({});
  layout->addWidget(label_);
  layout->addWidget(progress);
  layout->addWidget(cancel_);
  setVisible(false);
  patience_.setSingleShot(true);
  patience_.setInterval(patience_ms);
  connect(&patience_, &QTimer::timeout, this, [this] { setVisible(!jobs_.empty()); });
  connect(cancel_, &QPushButton::clicked, this, [this] {
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    end(job.number);
    if (job.cancel) job.cancel();
  });
}

int JobsBar::begin(const QString& name, std::function<void()> cancel) {
  jobs_.push_back({next_, name, std::move(cancel)});
  if (jobs_.size() == 1) patience_.start();
  refresh();
  return next_++;
}

void JobsBar::rename(int job, const QString& name) {
  for (auto& at : jobs_)
    if (at.number == job) at.name = name;
  refresh();
}

void JobsBar::end(int job) {
  std::erase_if(jobs_, [&](const Job& at) { return at.number == job; });
  refresh();
}

void JobsBar::end(const QString& name) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& at) { return at.name == name; });
  if (found != jobs_.end()) end(found->number);
}

void JobsBar::refresh() {
  if (jobs_.empty()) {
    patience_.stop();
    setVisible(false);
    return;
  }
  label_->setText(jobs_.size() == 1
                      ? jobs_.front().name
                      : tr("%1 (and %2 more)").arg(jobs_.front().name).arg(jobs_.size() - 1));
  cancel_->setEnabled(static_cast<bool>(jobs_.front().cancel));
}

}  // namespace kvatlas::viewer
