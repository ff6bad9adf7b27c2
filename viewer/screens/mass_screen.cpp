// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/mass_screen.hpp"

#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/str.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

MassScreen::MassScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  make_controls();
  make_charts();
  start();
}

void MassScreen::make_controls() {
  add_number(
      {"threshold", tr("Threshold \u03b4"),
       tr("A layer is lazy at a token if its mass is above this; the same as of the screen of lazy "
          "layers. Drag the line, or press [ and ].")},
      {0, 1, 0.01, 5}, tr("Threshold"),
      at([](auto& choices) -> auto& { return choices.lazy.threshold; }), Handle::lazy_threshold);
  rows_ = bar().add_combo(
      {"rows", tr("Tokens"),
       tr("Along the prompt: rows at even distances ('kvatlas profile --capture default,heatmap'). "
          "Otherwise its last rows and the generated tokens.")},
      {tr("along the prompt"), tr("last rows, generated")}, {}, [this](int) { read_again(); });
  add_proximity(
      tr("The tokens whose share of the attention is shown: so many at the start and so "
         "many before the row."),
      [](Choices & choices) -> auto& { return choices.lazy_arrays.keep; });
  bar().add_combo(
      {"sample", tr("Sample"), tr("The prompt that is shown.")},
      [this] {
        QStringList names;
        for (const auto& sample : this->session().profile()->samples())
          names.push_back(QString::fromStdString(sample.id));
        return names;
      },
      [this] { return static_cast<int>(this->session().selection().current().sample); },
      [this](int index) {
        this->session().selection().change(
            [&](Selection& selection) { selection.sample = static_cast<std::size_t>(index); });
      });
  bar().add_button({"all", tr("All tokens"),
                    tr("Ends the zoom; brushing the chart of the last rows begins one.")},
                   [this] { show_all_tokens(); });
}

void MassScreen::make_charts() {
  heatmap_ = add_chart(tr("Proximal mass, layer by token"));
  shares_ = add_chart(tr("Share of tokens at which a layer is lazy"));
  page_layout().addWidget(split(Qt::Vertical, {{heatmap_, 7}, {shares_, 3}}));
  connect(heatmap_, &ChartView::cell_chosen, this,
          [this](int, int row, int column) { select_cell(row, column); });
  connect(shares_, &ChartView::column_chosen, this,
          [this](double x) { select_layer(std::lround(x)); });
}

void MassScreen::show_all_tokens() {
  session().selection().change([](Selection& selection) { selection.tokens.reset(); });
}

void MassScreen::select_cell(std::int64_t layer, std::int64_t column) {
  if (!read_of_) return;
  const auto& positions = shown_.positions;
  if (column < 0 || static_cast<std::size_t>(column) >= positions.size()) return;
  const std::int64_t query = positions[column];
  Selection selection = session().selection().current();
  selection.layer = layer;
  // Generated tokens have no row in a map.
  const bool of_prompt = query < shown_.prompt_tokens;
  generated_ = of_prompt ? -1 : query;
  selection.query = of_prompt ? query : -1;
  session().selection().set(selection);
  emit content_changed();  // also from one generated token to the next
}

std::int64_t MassScreen::chosen_column() const {
  const auto& positions = shown_.positions;
  const std::int64_t query = session().selection().current().query;
  const auto after =
      std::upper_bound(positions.begin(), positions.end(), query < 0 ? generated_ : query);
  return std::max<std::int64_t>(0, after - positions.begin() - 1);
}

bool MassScreen::act(Act act) {
  if (!read_of_) return LiveScreen::act(act);
  const std::int64_t layer = session().selection().current().layer, column = chosen_column();
  switch (act) {
    case Act::left:
      select_cell(layer, column - 1);
      return true;
    case Act::right:
      select_cell(layer, column + 1);
      return true;
    case Act::up:
      select_cell(layer - 1, column);
      return true;
    case Act::down:
      select_cell(layer + 1, column);
      return true;
    case Act::escape:
      if (!session().selection().current().tokens) return false;
      show_all_tokens();
      return true;
    default:
      return LiveScreen::act(act);
  }
}

std::string MassScreen::arrays() const {
  const auto& keep = session().choices().lazy_arrays.keep;
  return str(session().selection().current().sample, ' ', keep.initial, ' ', keep.recent);
}

void MassScreen::read() {
  const int wanted = rows_->currentIndex();
  read_model(
      [position = session().selection().current().sample,
       keep = session().choices().lazy_arrays.keep, wanted](const profile::Reader& profile) {
        // Without rows along the prompt, what there is.
        const bool along = wanted == 0 && (has_mass_rows(profile, MassRows::along) ||
                                           !has_mass_rows(profile, MassRows::last));
        return Read{
            read_mass_model(profile, position, keep, along ? MassRows::along : MassRows::last),
            read_shown_texts(profile, position)};
      },
      [this](Read read) {
        read_of_ = std::make_shared<const Read>(std::move(read));
        generated_ = -1;
        ControlBar::set(*rows_, read_of_->model.rows == MassRows::along ? 0 : 1);
      });
}

void MassScreen::compute() {
  computed_ = session().selection().current().tokens;
  compute_view(
      [read = read_of_, threshold = session().choices().lazy.threshold, tokens = computed_] {
        MassModel part = tokens ? part_of(read->model, tokens->first, tokens->second) : read->model;
        MassView view = mass_view(part, threshold, read->texts);
        return std::pair(std::move(part), std::move(view));
      },
      [this](std::pair<MassModel, MassView> made) {
        std::tie(shown_, view_) = std::move(made);
        set_chart(*heatmap_, view_.heatmap);
        show_selection();
      });
}

void MassScreen::show_selection() {
  if (session().selection().current().tokens != computed_) return compute();
  set_chart(*shares_, with_layer(view_.shares, session().selection().current().layer));
}

QString MassScreen::focus_text() const {
  if (!read_of_ || !message().isEmpty()) return {};
  const MassModel& model = shown_;
  const auto layer = session().selection().current().layer;
  const auto column = chosen_column();
  if (layer >= model.layers || column < 0 || column >= model.masses.cols()) return {};
  const auto position = static_cast<std::size_t>(model.positions[column]);
  const QString text =
      position < read_of_->texts.size()
          ? QStringLiteral(" \u201c%1\u201d").arg(QString::fromStdString(read_of_->texts[position]))
          : QString();
  const double mass = model.masses(layer, column);
  return tr("layer %1, token %2%3: mass %4, %5")
      .arg(layer)
      .arg(position)
      .arg(text)
      .arg(QString::fromStdString(fixed_text(mass, 4)))
      .arg(calibrate::is_lazy(mass, session().choices().lazy.threshold) ? tr("lazy")
                                                                        : tr("not lazy"));
}

}  // namespace kvatlas::viewer
