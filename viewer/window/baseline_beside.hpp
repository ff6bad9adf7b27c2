// SPDX-License-Identifier: Apache-2.0
// The screen in front once more, of the baseline: beside it, or over it right of a line that is
// dragged.
#pragma once

#include <QWidget>
#include <memory>
#include <vector>

#include "viewer/window/screens.hpp"

class QLabel;
class QStackedWidget;

namespace kvatlas::viewer {

class BaselineBeside : public QWidget {
  Q_OBJECT

 public:
  enum class Form : std::uint8_t { off, beside, swipe };

  /// `front`: the screens, of which this becomes the parent.
  BaselineBeside(Session& session, const std::vector<ScreenEntry>& entries, QStackedWidget* front,
                 QWidget* parent);
  ~BaselineBeside() override;

  /// This form, or none if it is the present one. False without a baseline, and on screens that
  /// compare by themselves.
  bool toggle(Form form);
  Form form() const { return form_; }
  /// The baseline's screen; nullptr while there is none.
  Screen* other() const { return other_; }
  /// Where the line stands, as a share of the width.
  void set_line(double share);

  QSize minimumSizeHint() const override;

 protected:
  void resizeEvent(QResizeEvent* event) override;
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void refresh();
  void arrange();

  Session& session_;
  const std::vector<ScreenEntry>& entries_;
  std::unique_ptr<Session> follower_;  // whose profile is the baseline
  QStackedWidget* front_;
  Screen* other_ = nullptr;
  QLabel* names_;
  QWidget* line_;
  Form form_ = Form::off;
  double share_ = 0.5;
};

}  // namespace kvatlas::viewer
