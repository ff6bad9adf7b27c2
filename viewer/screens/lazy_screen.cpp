// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/lazy_screen.hpp"

#include <QSplitter>
#include <QVBoxLayout>
#include <cmath>

#include "base/str.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {

using Identify = calibrate::SimLayerKv::Identify;

/// The curve over thresholds that was computed last, with what it is of. Used by one computation at
/// a time.
struct LazyScreen::CurveCache {
  std::shared_ptr<const LazyModel> model;
  LazySettings of;
  LazyCurve curve;

  const LazyCurve& at(const std::shared_ptr<const LazyModel>& wanted,
                      const LazySettings& settings) {
    if (model != wanted || of.per_head != settings.per_head || of.fixed != settings.fixed ||
        (settings.fixed && of.share != settings.share)) {
      curve = lazy_curve(*wanted, settings);
      model = wanted;
      of = settings;
    }
    return curve;
  }
};

LazyScreen::LazyScreen(Session& session, QWidget* parent)
    : LiveScreen(session, parent), curve_(std::make_shared<CurveCache>()) {
  make_controls();
  make_charts();
  start();
}

void LazyScreen::make_controls() {
  add_number(
      {"threshold", tr("Threshold \u03b4"),
       tr("A layer is lazy for an input if its layer mass, the attention on the initial and recent "
          "tokens, is above this. Drag the line in either chart, or press [ and ].")},
      ControlBar::range_of(calibrate::method::kSimLayerKv.name, "threshold", 0.01, 5),
      tr("Threshold"), at([](auto& choices) -> auto& { return choices.lazy.threshold; }),
      Handle::lazy_threshold);
  add_combo({"identify", tr("Identify at"),
             tr("Prefill: by the last prompt rows. Decode: by the first generated token.")},
            {tr("prefill"), tr("decode")}, tr("Identify"),
            {[](const Choices& choices) {
               return choices.lazy_arrays.identify == Identify::prefill ? 0 : 1;
             },
             [](Choices& choices, double index) {
               choices.lazy_arrays.identify = index == 0 ? Identify::prefill : Identify::decode;
             }});
  add_number(
      {"w_last", tr("Rows"),
       tr("How many of the last prompt rows the layer mass is the mean of; prefill only."),
       [this] { return this->session().choices().lazy_arrays.identify == Identify::prefill; }},
      ControlBar::range_of(calibrate::method::kSimLayerKv.name, "w_last", 1, 0), tr("Rows"),
      at([](auto& choices) -> auto& { return choices.lazy_arrays.w_last; }));
  add_proximity(
      tr("The tokens that a lazy layer keeps: so many at the start and so many at the end. The "
         "profile's grid of them."),
      [](Choices & choices) -> auto& { return choices.lazy_arrays.keep; });
  add_combo({"granularity", tr("Trim"), tr("Whole layers, or each KV head of a layer by itself.")},
            {tr("layers"), tr("KV heads")}, tr("Layers or KV heads"),
            at([](auto& choices) -> auto& { return choices.lazy.per_head; }));
  add_switch({"fixed", tr("Fixed"),
              tr("The same layers for every input: those lazy in at least the share of the "
                 "samples. Otherwise each input decides for itself.")},
             tr("Fixed"), at([](auto& choices) -> auto& { return choices.lazy.fixed; }));
  add_number(
      {"share", tr("Share"),
       tr("A layer fills with hatching if it is lazy in at least this share of the samples. Drag "
          "the line in the lower chart.")},
      {0, 1, 0.05, 2}, tr("Share"), at([](auto& choices) -> auto& { return choices.lazy.share; }),
      Handle::lazy_share);
  add_number(
      {"near_half", tr("Flag within"),
       tr("Layers whose lazy rate is nearer to the share than this are flagged: a fixed choice "
          "will often disagree with the input's own.")},
      {0, 0.5, 0.05, 2}, tr("Flags"),
      at([](auto& choices) -> auto& { return choices.lazy.near_half; }));
}

void LazyScreen::make_charts() {
  layers_ = add_chart(tr("Layer masses of all samples, with the threshold"));
  strip_ = add_chart(tr("Lazy rate and consistency of each layer"));
  heads_ = add_chart(tr("Lazy rate of each KV head"));
  scores_ = add_chart(tr("Score and KV kept over the threshold"));
  heads_->hide();
  page_layout().addWidget(
      split(Qt::Horizontal,
            {{split(Qt::Vertical, {{layers_, 5}, {strip_, 2}, {heads_, 3}}), 3}, {scores_, 2}}));
  for (const ChartView* chart : {layers_, strip_})
    connect(chart, &ChartView::column_chosen, this,
            [this](double x) { select_layer(std::lround(x)); });
  connect(heads_, &ChartView::cell_chosen, this,
          [this](int, int, int column) { select_layer(column); });
}

std::string LazyScreen::arrays() const { return str(session().evidence().lazy().version); }

void LazyScreen::read() { take_model(session().evidence().lazy(), model_); }

void LazyScreen::compute() {
  LazySettings settings = session().choices().lazy;
  settings.length = session().choices().length;
  compute_view([model = model_, curve = curve_,
                settings] { return lazy_view(*model, settings, curve->at(model, settings)); },
               [this](LazyView view) {
                 view_ = std::move(view);
                 show_selection();
                 set_chart(*heads_, view_.heads);
                 set_chart(*scores_, view_.scores);
               });
}

void LazyScreen::show_selection() {
  const auto layer = session().selection().current().layer;
  set_chart(*layers_, with_layer(view_.layers, layer));
  set_chart(*strip_, with_layer(view_.strip, layer));
}

QString LazyScreen::focus_text() const {
  const auto layer = static_cast<std::size_t>(session().selection().current().layer);
  if (!message().isEmpty() || layer >= view_.rates.size()) return {};
  QString text = tr("layer %1: lazy in %2 of the samples, %3 in the fixed view")
                     .arg(layer)
                     .arg(QString::fromStdString(percent_text(view_.rates[layer])))
                     .arg(view_.fixed.lazy[layer] != 0 ? tr("lazy") : tr("full"));
  if (!view_.consistency.empty())
    text +=
        tr(", consistency %1").arg(QString::fromStdString(percent_text(view_.consistency[layer])));
  return text;
}

}  // namespace kvatlas::viewer
