// SPDX-License-Identifier: Apache-2.0
// The dialog that starts a search for the best policy and shows what the search says. The search
// goes on when the dialog is closed.
#pragma once

#include <QDialog>

#include "viewer/frame/search_job.hpp"
#include "viewer/screens/session.hpp"

class QCheckBox;
class QComboBox;
class QDoubleSpinBox;
class QLabel;
class QLineEdit;
class QPlainTextEdit;
class QPushButton;
class QSettings;
class QSpinBox;

namespace kvatlas::viewer {

class SearchDialog : public QDialog {
  Q_OBJECT

 public:
  SearchDialog(Session& session, SearchJob& job, QSettings& settings, QWidget* parent);

  SearchForm request() const;

 private:
  void make_rows();
  void take_profile();
  void refresh();
  void start();
  void show_end(SearchJob::End end);

  Session& session_;
  SearchJob& job_;
  QSettings& settings_;
  QWidget* wishes_;
  QLineEdit *model_, *memory_, *output_;
  QComboBox *limit_, *runtime_;
  QDoubleSpinBox *saving_, *loss_;
  QSpinBox *context_, *batch_;
  QCheckBox* replace_;
  QLabel *profile_, *state_;
  QPlainTextEdit* log_;
  QPushButton *start_, *stop_;
};

}  // namespace kvatlas::viewer
