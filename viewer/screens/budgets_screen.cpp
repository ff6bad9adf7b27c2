// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/budgets_screen.hpp"

#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {

using calibrate::Pooling;

BudgetsScreen::BudgetsScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  make_controls();
  make_charts();
  start();
}

void BudgetsScreen::make_controls() {
  const QString hint =
      tr("Tokens that a layer keeps in the mean, the window included; the total "
         "is fixed, layers share it. The budgets that the profile counted for; "
         "[ and ] take the next.");
  bar().add_slider(
      {"budget_slider", tr("Tokens a layer"), hint},
      [this] { return std::max(0, static_cast<int>(levels().size()) - 1); },
      [this] { return level(); }, [this](int value, bool done) { choose_level(value, done); });
  bar().add_combo(
      {"budget", tr("Budget"), hint},
      [this] {
        QStringList words;
        for (const auto budget : levels()) words.push_back(QString::number(budget));
        return words;
      },
      [this] { return levels().empty() ? -1 : level(); },
      [this](int index) { choose_level(index, true); });
  bar().add_combo(
      {"kind", tr("Window"),
       tr("The last prompt rows whose attention scores the keys, and the pooling of the scores: "
          "kernel width, average or maximum. As the profile has them.")},
      [this] {
        QStringList words;
        for (const auto& kind : kinds())
          words.push_back(
              tr("%1 rows, kernel %2, %3")
                  .arg(kind.window)
                  .arg(kind.kernel)
                  .arg(kind.pooling == Pooling::maximum ? tr("maximum") : tr("average")));
        return words;
      },
      [this] {
        const auto all = kinds();
        const auto& now = this->session().choices().budget_counts;
        const auto chosen = std::find_if(all.begin(), all.end(), [&](const auto& kind) {
          return kind.window == now.window && kind.kernel == now.kernel &&
                 kind.pooling == now.pooling;
        });
        return chosen == all.end() ? -1 : static_cast<int>(chosen - all.begin());
      },
      [this](int index) {
        const auto all = kinds();
        change(tr("Window"), [&](Choices& choices) {
          choices.budget_counts = all[index];
          const auto there = levels();
          if (!there.empty() && choices.budgets.budget <= choices.budget_counts.window)
            choices.budgets.budget = there.front();
        });
      });
  add_combo(
      {"form", tr("Budgets"),
       tr("Raw: tokens by where the largest scores lie. Scaled: to the total, with the cap. Exact: "
          "whole numbers that sum to the total; what is exported.")},
      {tr("raw"), tr("scaled"), tr("exact")}, tr("Form of budgets"),
      at([](auto& choices) -> auto& { return choices.budgets.form; }));
  add_number({"r_max", tr("Cap r_max"),
              tr("No layer keeps more than this times the mean budget; the paper has 10.")},
             ControlBar::range_of(calibrate::method::kDynamicKv.name, "r_max", 1, 1), tr("Cap"),
             at([](auto& choices) -> auto& { return choices.budgets.r_max; }));
}

void BudgetsScreen::make_charts() {
  heatmap_ = add_chart(tr("Tokens kept, layer by task"));
  lines_ = add_chart(tr("Tokens kept over the layers, a line a task"));
  shares_ = add_chart(tr("Share of each layer, a stack a task"));
  page_layout().addWidget(split(
      Qt::Horizontal, {{heatmap_, 2}, {split(Qt::Vertical, {{lines_, 3}, {shares_, 2}}), 3}}));
  connect(heatmap_, &ChartView::cell_chosen, this,
          [this](int, int row, int) { select_layer(row); });
  connect(lines_, &ChartView::column_chosen, this,
          [this](double x) { select_layer(std::lround(x)); });
}

std::vector<std::int64_t> BudgetsScreen::levels() const {
  std::vector<std::int64_t> out;
  for (const auto budget : profile::axis_of(session().profile()->header(), "budget").values)
    if (budget > session().choices().budget_counts.window) out.push_back(budget);
  std::sort(out.begin(), out.end());
  return out;
}

int BudgetsScreen::level() const {
  const auto there = levels();
  const auto budget = session().choices().budgets.budget;
  const auto nearest = std::min_element(there.begin(), there.end(), [&](auto a, auto b) {
    return std::abs(a - budget) < std::abs(b - budget);
  });
  return static_cast<int>(nearest - there.begin());
}

void BudgetsScreen::choose_level(int level, bool done) {
  if (!session().profile()) return;
  const auto there = levels();
  if (level < 0 || static_cast<std::size_t>(level) >= there.size()) return;
  drag(tr("Budget"), done, [&](Choices& choices) { choices.budgets.budget = there[level]; });
}

std::vector<BudgetChoices> BudgetsScreen::kinds() const {
  std::vector<BudgetChoices> out;
  const auto& table = profile::axis_of(session().profile()->header(), "window_kind");
  if (table.columns.size() != 3) return out;
  for (std::size_t row = 0; 3 * row + 2 < table.values.size(); ++row)
    out.push_back({table.values[3 * row], table.values[3 * row + 1],
                   table.values[3 * row + 2] != 0 ? Pooling::maximum : Pooling::average});
  return out;
}

bool BudgetsScreen::move_threshold(double by) {
  if (!session().profile()) return false;
  const int count = static_cast<int>(levels().size());
  if (count == 0) return false;
  choose_level(std::clamp(level() + (by > 0 ? 1 : -1), 0, count - 1), true);
  return true;
}

std::string BudgetsScreen::arrays() const { return str(session().evidence().budgets().version); }

void BudgetsScreen::read() { take_model(session().evidence().budgets(), model_); }

void BudgetsScreen::compute() {
  BudgetSettings settings = session().choices().budgets;
  const auto there = levels();
  if (!there.empty()) settings.budget = there[level()];
  compute_view([model = model_, settings] { return budgets_view(*model, settings); },
               [this](BudgetsView view) {
                 view_ = std::move(view);
                 set_chart(*heatmap_, view_.heatmap);
                 set_chart(*shares_, view_.shares);
                 show_selection();
               });
}

void BudgetsScreen::show_selection() {
  set_chart(*lines_, with_layer(view_.lines, session().selection().current().layer));
}

QString BudgetsScreen::focus_text() const {
  const auto layer = static_cast<std::size_t>(session().selection().current().layer);
  if (!message().isEmpty() || layer >= view_.all.mean.size()) return {};
  QString text = tr("layer %1: %2 tokens in the mean")
                     .arg(layer)
                     .arg(QString::fromStdString(fixed_text(view_.all.mean[layer], 1)));
  for (const auto& task : view_.tasks)
    text += tr(", %1 %2")
                .arg(QString::fromStdString(task.task))
                .arg(QString::fromStdString(fixed_text(task.summary.mean[layer], 1)));
  return text;
}

}  // namespace kvatlas::viewer
