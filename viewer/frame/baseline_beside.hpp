// SPDX-License-Identifier: Apache-2.0
// The screen in front once more, of the baseline: beside it, over it right of a line that is
// dragged, or taken from it.
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
  /// `front`: the screens, of which this becomes the parent.
  BaselineBeside(Session& session, const std::vector<ScreenEntry>& entries, QStackedWidget* front,
                 QWidget* parent);
  ~BaselineBeside() override;

  /// This form, or none if it is the present one. False without a baseline, and on screens that
  /// compare by themselves.
  bool toggle(Compare form);
  Compare form() const { return form_; }
  /// The baseline's screen; nullptr while there is none.
  Screen* other() const { return other_; }
  /// The difference; nullptr while it is not shown.
  DifferenceView* difference() const;
  /// Of what is shown: one screen, the difference, or both.
  PicturePtr picture() const;
  /// Where the line stands, as a share of the width.
  void set_line(double share);

  QSize minimumSizeHint() const override;

 signals:
  /// Another form, or another screen of the baseline.
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

  Session& session_;
  const std::vector<ScreenEntry>& entries_;
  std::unique_ptr<Session> follower_;  // whose profile is the baseline
  QStackedWidget* front_;
  Screen* other_ = nullptr;
  DifferenceView* difference_;
  QTimer soon_;  // one comparison for many changes
  QMetaObject::Connection front_changes_;
  QLabel* names_;
  QWidget* line_;
  Compare form_ = Compare::off;
  double share_ = 0.5;
};

}  // namespace kvatlas::viewer
