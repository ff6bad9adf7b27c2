// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/sweep_screen.hpp"

#include <QVBoxLayout>
#include <algorithm>

#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {

SweepScreen::SweepScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  make_controls();
  chart_ = add_chart(tr("Score of every lag and ratio over its compression"));
  pattern_ = add_chart(tr("Keys that the setting keeps along a prompt"));
  pattern_->setFixedHeight(120);
  page_layout().addWidget(chart_);
  page_layout().addWidget(pattern_);
  connect(chart_, &ChartView::point_chosen, this, [this](int series, int point) {
    const auto s = static_cast<std::size_t>(series), p = static_cast<std::size_t>(point);
    if (series >= 0 && point >= 0 && s < view_.candidates.size() && p < view_.candidates[s].size())
      choose(static_cast<int>(view_.candidates[s][p]));
  });
  start();
}

void SweepScreen::make_controls() {
  add_combo(
      {"score", tr("Score"),
       tr("Share of answers found; of digits right up to the first wrong one; of digits right at "
          "their place; or of the attention that the kept keys had.")},
      {tr("answers found"), tr("digits up to the first wrong"), tr("digits in place"),
       tr("attention kept")},
      tr("Score"), at([](auto& choices) -> auto& { return choices.sweep.score; }));
  add_combo({"against", tr("Against"),
             tr("The share of the cache that is dropped, or the tokens kept of each partition.")},
            {tr("compression"), tr("tokens kept of a partition")}, tr("Axis"),
            at([](auto& choices) -> auto& { return choices.sweep.against_kept; }));
  add_number(
      {"least", tr("At least"),
       tr("Of the full cache's score. The point that compresses most among those with so much is "
          "named below. Drag the horizontal line, or press [ and ].")},
      {0, 100, 1, 1, QStringLiteral(" %"), 100}, tr("Least score"),
      at([](auto& choices) -> auto& { return choices.sweep.least_share; }), Handle::least_score);
  add_number({"wanted", tr("Wanted compression"),
              tr("The best point that compresses at least so much is recommended. Drag the "
                 "vertical line.")},
             {0, 100, 1, 1, QStringLiteral(" %"), 100}, tr("Wanted compression"),
             at([](auto& choices) -> auto& { return choices.sweep.wanted_compression; }),
             Handle::wanted_compression);
  bar().add_button({"recommended_button", tr("Take the recommended"),
                    tr("Forgets the chosen point: the recommended one is exported.")},
                   [this] { choose(-1); });
  chosen_ = bar().add_text(
      {"chosen", tr("Chosen setting"), tr("What is exported. Click a point to choose it.")});
}

void SweepScreen::choose(int candidate) {
  const auto at = static_cast<std::size_t>(std::max(candidate, 0));
  if (model_ && at >= model_->candidates.size()) return;  // of an older document
  if (candidate >= 0 && model_ && !model_->candidates[at].own()) {
    emit session().message(tr("Only LagKV's own points can be exported."));
    return;
  }
  change(tr("LagKV setting"), [&](Choices& choices) { choices.lag_candidate = candidate; });
}

/// The least score is a share of the full cache's.
void SweepScreen::handle_moved(Handle handle, double value, bool done) {
  const bool least = handle == Handle::least_score;
  if (least && !(model_ && model_->full && model_->full->mean > 0)) return;
  LiveScreen::handle_moved(handle, least ? value / model_->full->mean : value, done);
}

void SweepScreen::read() {
  take_model(
      try_read([this] { return sweep_model(session().section_of(calibrate::method::kLagKv)); }),
      model_);
}

std::optional<std::size_t> SweepScreen::shown_candidate() const {
  const int chosen = session().choices().lag_candidate;
  if (model_ && chosen >= 0 && static_cast<std::size_t>(chosen) < model_->candidates.size())
    return static_cast<std::size_t>(chosen);
  return std::nullopt;
}

void SweepScreen::compute() {
  SweepSettings settings = session().choices().sweep;
  settings.length = session().choices().length;
  compute_view([model = model_, settings,
                chosen = shown_candidate()] { return sweep_view(*model, settings, chosen); },
               [this](SweepView view) {
                 view_ = std::move(view);
                 set_chart(*chart_, view_.chart);
                 set_chart(*pattern_, view_.pattern);
                 chosen_->setText(focus_text());
               });
}

/// Left and right walk the candidates.
bool SweepScreen::act(Act act) {
  if (!model_ || (act != Act::left && act != Act::right)) return LiveScreen::act(act);
  const int step = act == Act::right ? 1 : -1;
  const int count = static_cast<int>(model_->candidates.size());
  const auto now = shown_candidate() ? shown_candidate() : view_.recommended;
  int next = now ? static_cast<int>(*now) + step : 0;
  while (next >= 0 && next < count && !model_->candidates[next].own()) next += step;
  if (next >= 0 && next < count) choose(next);
  return true;
}

QString SweepScreen::focus_text() const {
  if (!model_ || !message().isEmpty()) return {};
  const auto chosen = shown_candidate();
  const auto which = chosen ? chosen : view_.recommended;
  if (!which) return tr("no point compresses so much");
  if (*which >= model_->candidates.size()) return {};  // of an older document
  const auto& candidate = model_->candidates[*which];
  return (chosen ? tr("chosen: lag %1, ratio %2, compression %3, score %4")
                 : tr("recommended: lag %1, ratio %2, compression %3, score %4"))
      .arg(candidate.lag)
      .arg(QString::fromStdString(candidate.ratio))
      .arg(QString::fromStdString(percent_text(candidate.compression)))
      .arg(QString::fromStdString(fixed_text(candidate.score.mean, 3)));
}

}  // namespace kvatlas::viewer
