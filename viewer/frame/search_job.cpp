// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/search_job.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/exit_codes.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kPatience = 60'000;        // ms that a trial may still take
constexpr qsizetype kLongest = 1 << 16;  // bytes of a line; a longer one is cut there

}  // namespace

SearchJob::SearchJob(QString program, QObject* parent)
    : QObject(parent), program_(std::move(program)) {
  process_.setProcessChannelMode(QProcess::MergedChannels);
  process_.setStandardInputFile(QProcess::nullDevice());
  patience_.setSingleShot(true);
  patience_.setInterval(kPatience);
  connect(&patience_, &QTimer::timeout, &process_, &QProcess::kill);
  connect(&process_, &QProcess::readyRead, this, &SearchJob::read_lines);
  connect(&process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return;  // of others finished() tells
    last_line_ = tr("%1 cannot be run: %2").arg(program_, process_.errorString());
    emit said(last_line_);
    finish(End::failed);
  });
  connect(&process_, &QProcess::finished, this, [this](int code, QProcess::ExitStatus status) {
    read_lines();
    if (!unfinished_.isEmpty()) {
      unfinished_ += '\n';
      read_lines();
    }
    const bool ended = status == QProcess::NormalExit;
    if (ended && code == 0)
      finish(End::found);
    else if (stopping_)
      finish(End::stopped);
    else
      finish(ended && code == kExitNotMet ? End::not_met : End::failed);
  });
}

SearchJob::~SearchJob() {
  disconnect(&process_, nullptr, this, nullptr);
  if (!is_running()) return;
  process_.terminate();
  if (!process_.waitForFinished(3000)) process_.kill();
  process_.waitForFinished(1000);
}

void SearchJob::start(const SearchForm& request) {
  if (is_running()) fail(ErrorCode::usage, "a search is running already");
  QStringList words;
  for (const auto& word : search_words(request)) words << QString::fromStdString(word);
  output_ = QString::fromStdString(request.output.string());
  last_line_.clear();
  unfinished_.clear();
  stopping_ = false;
  emit started();
  process_.start(program_, words);
}

void SearchJob::stop() {
  if (!is_running() || stopping_) return;
  stopping_ = true;
  process_.terminate();
  patience_.start();
}

void SearchJob::read_lines() {
  unfinished_ += process_.readAll();
  while (!unfinished_.isEmpty()) {
    qsizetype end = unfinished_.indexOf('\n');
    if (end < 0 && unfinished_.size() < kLongest) return;
    const bool cut = end < 0 || end > kLongest;
    if (cut) end = kLongest;
    const QString line = QString::fromUtf8(unfinished_.left(end));
    unfinished_.remove(0, cut ? end : end + 1);
    if (!line.trimmed().isEmpty()) last_line_ = line;
    emit said(line);
  }
}

void SearchJob::finish(End end) {
  patience_.stop();
  emit ended(end);
}

}  // namespace kvatlas::viewer
