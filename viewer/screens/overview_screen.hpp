// SPDX-License-Identifier: Apache-2.0
// The front page: what was profiled, and a card for each policy.
#pragma once

#include <memory>
#include <vector>

#include "viewer/methods/overview_model.hpp"
#include "viewer/screens/live_screen.hpp"

class QGridLayout;

namespace kvatlas::viewer {

class FactsPanel;
class PolicyCardView;

class OverviewScreen : public LiveScreen {
  Q_OBJECT

 public:
  OverviewScreen(Session& session, QWidget* parent);
  Table table() const override { return view_.table; }
  QString focus_text() const override;

  const OverviewView& view() const { return view_; }
  const std::vector<PolicyCardView*>& cards() const { return cards_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void show_view();
  void open(const PolicyCard& card);
  /// Places as many cards beside each other as there is room for.
  void arrange(int width);

  QWidget* content_;
  QGridLayout* grid_;
  FactsPanel *model_facts_, *profile_facts_;
  std::vector<PolicyCardView*> cards_;
  int columns_ = 0;
  std::shared_ptr<const OverviewModel> model_;
  OverviewView view_;
};

}  // namespace kvatlas::viewer
