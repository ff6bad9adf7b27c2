// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/needle_screen.hpp"

#include <QVBoxLayout>

namespace kvatlas::viewer {

NeedleScreen::NeedleScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  const auto shown = [](const Choices& choices) {
    const auto score = choices.sweep.score;
    return score == ShownScore::attention ? 0 : static_cast<int>(score);
  };
  score_ = add_combo(
      {"score", tr("Score"),
       tr("Share of answers found; of pass keys also the share of digits right up to the first "
          "wrong one, or right at their place.")},
      {tr("answers found"), tr("digits up to the first wrong"), tr("digits in place")}, tr("Score"),
      {shown, at([](auto& choices) -> auto& { return choices.sweep.score; }).set});
  bar().add_switch(
      {"difference", tr("Less the full cache"),
       tr("Shows each policy's score less that of the full cache; also with the key of the "
          "difference.")},
      [this] { return difference_; }, [this](bool on) { show_difference(on); });
  chart_ = add_chart(tr("Scores over prompt length and depth"));
  page_layout().addWidget(chart_);
  start();
}

void NeedleScreen::read() {
  take_model(try_read([this] { return needle_model(session().contents()); }), model_);
  if (model_) score_->setEnabled(model_->has_digits());
}

void NeedleScreen::compute() {
  compute_view([model = model_, score = session().choices().sweep.score,
                difference = difference_] { return needle_chart(*model, score, difference); },
               [this](const Chart& chart) { set_chart(*chart_, chart); });
}

void NeedleScreen::show_difference(bool on) {
  difference_ = on;
  show_controls();
  if (model_) compute();
}

bool NeedleScreen::act(Act act) {
  if (act != Act::difference) return LiveScreen::act(act);
  show_difference(!difference_);
  return true;
}

}  // namespace kvatlas::viewer
