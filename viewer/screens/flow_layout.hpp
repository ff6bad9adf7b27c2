// SPDX-License-Identifier: Apache-2.0
// Lays widgets out in rows, each as wide as it needs; a new row begins when one is full.
#pragma once

#include <QLayout>
#include <memory>
#include <vector>

namespace kvatlas::viewer {

class FlowLayout : public QLayout {
  Q_OBJECT

 public:
  explicit FlowLayout(QWidget* parent = nullptr, int gap = 8);
  ~FlowLayout() override;

  void addItem(QLayoutItem* item) override;
  int count() const override;
  QLayoutItem* itemAt(int index) const override;
  QLayoutItem* takeAt(int index) override;
  Qt::Orientations expandingDirections() const override { return {}; }
  bool hasHeightForWidth() const override { return true; }
  int heightForWidth(int width) const override;
  QSize sizeHint() const override { return minimumSize(); }
  QSize minimumSize() const override;
  void setGeometry(const QRect& area) override;

 private:
  /// Returns the height that the items need, and places them unless `only_measure` is set.
  int arrange(const QRect& area, bool only_measure) const;

  std::vector<std::unique_ptr<QLayoutItem>> items_;
  int gap_;
};

}  // namespace kvatlas::viewer
