// SPDX-License-Identifier: Apache-2.0
// The parts of the overview: panels of names with their values, and cards of policies at their
// present setting.
#pragma once

#include <QFrame>
#include <vector>

#include "viewer/methods/overview_model.hpp"

class QFormLayout;
class QLabel;
class QPushButton;

namespace kvatlas::viewer {

class ChartView;

/// A panel with a title and rows of a name and a value, whose text can be selected and copied.
class FactsPanel : public QFrame {
  Q_OBJECT

 public:
  FactsPanel(const QString& title, QWidget* parent);
  void show_facts(const std::vector<Fact>& facts);

 private:
  QFormLayout* rows_;
  std::vector<QLabel*> values_;
};

class PolicyCardView : public QFrame {
  Q_OBJECT

 public:
  /// `chart` becomes a part of the card.
  PolicyCardView(ChartView* chart, QWidget* parent);
  void show_card(const PolicyCard& card);
  const PolicyCard& card() const { return card_; }
  QPushButton& open_button() const { return *open_; }
  QPushButton& export_button() const { return *export_; }

 signals:
  void open_wanted();
  void export_wanted();

 private:
  QLabel* add_line(const char* name);

  PolicyCard card_;
  ChartView* chart_;
  QLabel *title_, *setting_, *missing_, *kept_, *score_, *reason_, *risk_;
  QPushButton *open_, *export_;
};

}  // namespace kvatlas::viewer
