// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/needle_screen.hpp"

#include <QVBoxLayout>

#include "base/error.hpp"
#include "viewer/screens/screens.hpp"

namespace kvatlas::viewer {

NeedleScreen::NeedleScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  difference_box_ = bar().add_switch(
      {"difference", tr("Less the full cache"),
       tr("Shows each policy's score less that of the full cache; also with the key of the "
          "difference.")},
      [this](bool on) { show_difference(on); });
  chart_ = add_chart(tr("Scores over prompt length and depth"));
  auto* layout = new QVBoxLayout(page());
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(chart_);
  start();
}

void NeedleScreen::read() {
  try {
    model_ = std::make_shared<const NeedleModel>(needle_model(session().contents()));
    model_arrived();
  } catch (const Error& error) {
    model_.reset();
    show_message(QString::fromUtf8(error.what()));
  }
}

void NeedleScreen::compute() {
  compute_view(
      [model = model_, difference = difference_] { return needle_chart(*model, difference); },
      [this](const Chart& chart) { set_chart(*chart_, chart); });
}

void NeedleScreen::show_difference(bool on) {
  difference_ = on;
  ControlBar::set(*difference_box_, on);
  if (model_) compute();
}

bool NeedleScreen::act(Act act) {
  if (act != Act::difference) return LiveScreen::act(act);
  show_difference(!difference_);
  return true;
}

Screen* make_needle_screen(Session& session, QWidget* parent) {
  return new NeedleScreen(session, parent);
}

}  // namespace kvatlas::viewer
