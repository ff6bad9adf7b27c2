// SPDX-License-Identifier: Apache-2.0
// Compares the screen in front with the same screen of the baseline: both side by side; both in one
// place, divided by a line that can be dragged; or the difference of their charts.
#pragma once

#include <QTimer>
#include <QWidget>
#include <memory>
#include <vector>

#include "viewer/screens/compare.hpp"
#include "viewer/screens/screens.hpp"

class QLabel;
class QStackedWidget;

namespace kvatlas::viewer {

class DifferenceView;

class BaselineBeside : public QWidget {
  Q_OBJECT

 public:
  /// `front` holds the screens; this widget becomes its parent.
  BaselineBeside(Session& session, const std::vector<ScreenEntry>& entries, QStackedWidget* front,
                 QWidget* parent);
  ~BaselineBeside() override;

  /// Compares in this form, or no more if it does so already. Returns false if there is no
  /// baseline, or if the screen in front does its own comparing.
  bool toggle(Compare form);
  Compare form() const { return form_; }
  /// The baseline's screen; nullptr while nothing is compared.
  Screen* other() const { return other_; }
  /// The view of the difference; nullptr while it is not shown.
  DifferenceView* difference() const;
  /// A picture of what is shown: one screen, the difference, or two screens.
  PicturePtr picture() const;
  /// Moves the dividing line to this share of the width.
  void set_line(double share);

  QSize minimumSizeHint() const override;

 signals:
  /// The form of comparing changed, or the screen of the baseline did.
  void form_changed();

 protected:
  void resizeEvent(QResizeEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  Screen* front_screen() const;
  void refresh();
  void arrange();
  void show_difference(const QRect& both);
  void compare();
  void line_up();

  Session& session_;
  const std::vector<ScreenEntry>& entries_;
  std::unique_ptr<Session> follower_;  // a session in which the baseline is the profile
  QStackedWidget* front_;
  Screen* other_ = nullptr;
  DifferenceView* difference_;
  QTimer soon_;  // joins many changes into one comparison
  QMetaObject::Connection front_changes_;
  QLabel* names_;
  QWidget* line_;
  Compare form_ = Compare::off;
  double share_ = 0.5;
};

}  // namespace kvatlas::viewer
