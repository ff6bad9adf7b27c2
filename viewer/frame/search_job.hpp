// SPDX-License-Identifier: Apache-2.0
// A search for the best policy: runs `kvatlas calibrate auto` as a child process, reports each line
// that it prints and how it ended.
#pragma once

#include <QObject>
#include <QProcess>
#include <QString>
#include <QStringList>
#include <QTimer>

#include "viewer/models/search_form.hpp"

namespace kvatlas::viewer {

class SearchJob : public QObject {
  Q_OBJECT

 public:
  enum class End : std::uint8_t { found, not_met, stopped, failed };

  /// `program` is the path of the kvatlas to run.
  SearchJob(QString program, QObject* parent);
  /// Stops a search that still runs; its trials are kept beside its output.
  ~SearchJob() override;

  /// Throws Error(usage) if the request is incomplete, or while another search runs.
  void start(const SearchForm& request);
  /// Asks the search to end, which it does after its present trial.
  void stop();
  bool is_running() const { return process_.state() != QProcess::NotRunning; }
  /// Has the next start run another program.
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
  QByteArray unfinished_;  // the beginning of a line whose end has not come yet
  bool stopping_ = false;
  QTimer patience_;
  QProcess process_;
};

}  // namespace kvatlas::viewer
