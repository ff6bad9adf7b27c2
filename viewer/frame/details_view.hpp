// SPDX-License-Identifier: Apache-2.0
// A table that describes the selection: its sample, layer, head, tokens and notes.
#pragma once

#include <QWidget>
#include <vector>

#include "viewer/screens/sample_facts.hpp"
#include "viewer/screens/screen.hpp"

class QTableWidget;

namespace kvatlas::viewer {

class DetailsView : public QWidget {
  Q_OBJECT

 public:
  DetailsView(Session& session, SampleFacts& facts, QWidget* parent);

  void set_focus_text(const QString& text);
  /// Shows these names and values in place of those of the profile and its sample.
  void set_prompt(std::vector<std::pair<QString, QString>> details);
  void set_notes(const QStringList& notes);
  /// The text in the row of this name; empty if there is no such row.
  QString value(const QString& name) const;

 private:
  void refresh();

  Session& session_;
  SampleFacts& facts_;
  QString focus_;
  std::vector<std::pair<QString, QString>> prompt_;
  QStringList notes_;
  QTableWidget* table_;
};

}  // namespace kvatlas::viewer
