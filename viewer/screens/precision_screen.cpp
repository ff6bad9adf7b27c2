// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/precision_screen.hpp"

#include <QLabel>
#include <QVBoxLayout>

#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/precision.hpp"

namespace kvatlas::viewer {

PrecisionScreen::PrecisionScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  bar().add_button({"calibrated_button", tr("Take the calibrated"),
                    tr("Forgets the chosen size: the document's own policy is exported.")},
                   [this] { choose(-1); });
  chosen_ = bar().add_text({"chosen", tr("Chosen formats"),
                            tr("What is exported. Click a point of the lower chart to choose it, "
                               "or press left and right.")});
  strip_ = add_chart(tr("KL divergence where one layer alone has a format"));
  curve_ = add_chart(tr("Score and KL divergence of every size"));
  page_layout().addWidget(strip_, 2);
  page_layout().addWidget(curve_, 3);
  connect(strip_, &ChartView::cell_chosen, this, [this](int, int, int column) {
    if (model_ && model_->layers() == view_.strip.table.rows.size()) select_layer(column);
  });
  connect(curve_, &ChartView::point_chosen, this, [this](int series, int point) {
    if (series == 0 && point >= 0 && static_cast<std::size_t>(point) < view_.points.size())
      choose(static_cast<int>(view_.points[static_cast<std::size_t>(point)]));
  });
  start();
}

void PrecisionScreen::choose(int point) {
  change(tr("Number formats"), [&](Choices& choices) { choices.precision_point = point; });
}

bool PrecisionScreen::walk(int step) {
  if (!model_ || model_->curve.empty()) return false;
  const auto now = chosen() ? chosen() : model_->calibrated;
  const int next = now ? static_cast<int>(*now) + step : 0;
  if (curve_point(*model_, next)) choose(next);
  return true;
}

std::optional<std::size_t> PrecisionScreen::chosen() const {
  return model_ ? curve_point(*model_, session().choices().precision_point) : std::nullopt;
}

void PrecisionScreen::read() {
  take_model(try_read([this] {
               return precision_model(session().section_of(calibrate::method::kPrecision));
             }),
             model_);
}

void PrecisionScreen::compute() {
  compute_view([model = model_, point = chosen()] { return precision_view(*model, point); },
               [this](PrecisionView view) {
                 view_ = std::move(view);
                 set_chart(*strip_, view_.strip);
                 set_chart(*curve_, view_.curve);
                 chosen_->setText(focus_text());
               });
}

bool PrecisionScreen::act(Act act) {
  if (act != Act::left && act != Act::right) return LiveScreen::act(act);
  return walk(act == Act::right ? 1 : -1);
}

QString PrecisionScreen::focus_text() const {
  const PrecisionModel* const model = model_.get();
  if (model == nullptr || !message().isEmpty()) return {};
  const auto point = chosen();
  const auto shown = point ? point : model->calibrated;
  const QString formats = QString::fromStdString(calibrate::formats_text(model->formats_of(point)));
  if (!shown) return tr("as calibrated: %1").arg(formats);
  return (point ? tr("chosen: size %1, %2") : tr("as calibrated: size %1, %2"))
      .arg(QString::fromStdString(percent_text(model->curve[*shown].size)), formats);
}

}  // namespace kvatlas::viewer
