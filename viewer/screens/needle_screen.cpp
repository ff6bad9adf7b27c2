// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/needle_screen.hpp"

#include <QVBoxLayout>

#include "base/error.hpp"
#include "viewer/screens/screens.hpp"

namespace kvatlas::viewer {

NeedleScreen::NeedleScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  score_ = bar().add_combo(
      {"score", tr("Score"),
       tr("Share of answers found; of pass keys also the share of digits right up to the first "
          "wrong one, or right at their place.")},
      {tr("answers found"), tr("digits up to the first wrong"), tr("digits in place")},
      [this](int index) {
        change(tr("Score"),
               [&](Choices& choices) { choices.sweep.score = static_cast<ShownScore>(index); });
      });
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
    score_->setEnabled(model_->has_digits());
    model_arrived();
  } catch (const Error& error) {
    model_.reset();
    show_message(QString::fromUtf8(error.what()));
  }
}

void NeedleScreen::compute() {
  compute_view([model = model_, score = session().choices().sweep.score,
                difference = difference_] { return needle_chart(*model, score, difference); },
               [this](const Chart& chart) { set_chart(*chart_, chart); });
}

void NeedleScreen::show_choices() {
  const auto score = session().choices().sweep.score;
  ControlBar::set(*score_, score == ShownScore::attention ? 0 : static_cast<int>(score));
  ControlBar::set(*difference_box_, difference_);
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
