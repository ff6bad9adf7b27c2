// SPDX-License-Identifier: Apache-2.0
// Charts of the difference between a screen and the same screen of the baseline.
#pragma once

#include <vector>

#include "viewer/screens/screen.hpp"

class QGridLayout;
class QLabel;

namespace kvatlas::viewer {

class ChartView;

class DifferenceView : public Screen {
  Q_OBJECT

 public:
  DifferenceView(Session& session, QWidget* parent);

  /// Compares what both screens show now; `front` shows the profile, `other` the baseline.
  void compare(const Screen& front, const Screen& other);

  PicturePtr picture() const override;
  std::vector<Chart> charts() const override;
  Table table() const override;
  bool act(Act /*act*/) override { return false; }

 private:
  std::vector<ChartView*> views_;
  QGridLayout* grid_;
  QLabel* message_;
};

}  // namespace kvatlas::viewer
