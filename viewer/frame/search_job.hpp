// SPDX-License-Identifier: Apache-2.0
// `kvatlas calibrate auto` as a child process: what it says line by line, how it ended.
#pragma once

#include <QObject>
#include <QProcess>
#include <QString>
#include <QStringList>
#include <QTimer>

#include "viewer/models/search_order.hpp"

namespace kvatlas::viewer {

class SearchJob : public QObject {
  Q_OBJECT

 public:
  enum class End : std::uint8_t { found, not_met, stopped, failed };

  /// `program`: the kvatlas that is run.
  SearchJob(QString program, QObject* parent);
  /// A search that still runs is stopped; what it tried is kept beside its output.
  ~SearchJob() override;

  /// Error(usage) for an order that is not complete, or while another search runs.
  void start(const SearchOrder& order);
  /// It ends when the trial at hand is over.
  void stop();
  bool is_running() const { return process_.state() != QProcess::NotRunning; }
  /// Another program from the next start on.
  void set_program(const QString& program) { program_ = program; }
  const QString& output() const { return output_; }
  const QString& last_line() const { return last_line_; }

 signals:
  void started();
  void said(const QString& line);
  void ended(kvatlas::viewer::SearchJob::End end);

 private:
  void read_lines();
  void finish(End end);

  QString program_, output_, last_line_;
  QByteArray unfinished_;  // a line whose end has not come
  bool stopping_ = false;
  QTimer patience_;
  QProcess process_;
};

}  // namespace kvatlas::viewer
