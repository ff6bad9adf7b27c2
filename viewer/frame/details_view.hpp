// SPDX-License-Identifier: Apache-2.0
// The selection in words: sample, layer, head, tokens, notes.
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
  void set_notes(const QStringList& notes);
  /// The text beside this name; empty: there is no such row.
  QString value(const QString& name) const;

 private:
  void refresh();

  Session& session_;
  SampleFacts& facts_;
  QString focus_;
  QStringList notes_;
  QTableWidget* table_;
};

}  // namespace kvatlas::viewer
