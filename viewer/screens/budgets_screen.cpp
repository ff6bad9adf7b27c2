// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/budgets_screen.hpp"

#include <QSignalBlocker>
#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "viewer/screens/screens.hpp"

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
  slider_ = bar().add_slider({"budget_slider", tr("Tokens a layer"), hint}, 0,
                             [this](int value, bool done) { choose_level(value, done); });
  budget_ = bar().add_combo({"budget", tr("Budget"), hint}, {},
                            [this](int index) { choose_level(index, true); });
  kind_ = bar().add_combo(
      {"kind", tr("Window"),
       tr("The last prompt rows whose attention scores the keys, and the pooling of the scores: "
          "kernel width, average or maximum. As the profile has them.")},
      {}, [this](int index) {
        const auto all = kinds();
        change(tr("Window"), [&](Choices& choices) {
          choices.budget_counts = all[index];
          const auto there = levels();
          if (!there.empty() && choices.budgets.budget <= choices.budget_counts.window)
            choices.budgets.budget = there.front();
        });
      });
  form_ = bar().add_combo(
      {"form", tr("Budgets"),
       tr("Raw: tokens by where the largest scores lie. Scaled: to the total, with the cap. Exact: "
          "whole numbers that sum to the total; what is exported.")},
      {tr("raw"), tr("scaled"), tr("exact")}, [this](int index) {
        change(tr("Form of budgets"),
               [&](Choices& choices) { choices.budgets.form = static_cast<BudgetForm>(index); });
      });
  r_max_ = bar().add_number(
      {"r_max", tr("Cap r_max"),
       tr("No layer keeps more than this times the mean budget; the paper has 10.")},
      ControlBar::range_of(calibrate::method::kDynamicKv.name, "r_max", 1, 1),
      [this](double value) {
        change(tr("Cap"), [&](Choices& choices) { choices.budgets.r_max = value; });
      });
}

void BudgetsScreen::make_charts() {
  heatmap_ = add_chart(tr("Tokens kept, layer by task"));
  lines_ = add_chart(tr("Tokens kept over the layers, a line a task"));
  shares_ = add_chart(tr("Share of each layer, a stack a task"));
  auto* right = new QSplitter(Qt::Vertical, page());
  right->addWidget(lines_);
  right->addWidget(shares_);
  right->setStretchFactor(0, 3);
  right->setStretchFactor(1, 2);
  auto* all = new QSplitter(Qt::Horizontal, page());
  all->addWidget(heatmap_);
  all->addWidget(right);
  all->setStretchFactor(0, 2);
  all->setStretchFactor(1, 3);
  for (QSplitter* splitter : {right, all}) splitter->setChildrenCollapsible(false);
  auto* layout = new QVBoxLayout(page());
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(all);
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

bool BudgetsScreen::act(Act act) {
  if (act != Act::left && act != Act::right) return LiveScreen::act(act);
  select_layer(session().selection().current().layer + (act == Act::right ? 1 : -1));
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

void BudgetsScreen::show_choices() {
  const Choices& choices = session().choices();
  const auto there = levels();
  QStringList words;
  for (const auto budget : there) words.push_back(QString::number(budget));
  ControlBar::set_items(*budget_, words);
  const QSignalBlocker quiet(slider_);  // fewer levels may move it
  slider_->setRange(0, std::max(0, static_cast<int>(there.size()) - 1));
  ControlBar::set(*slider_, level());
  ControlBar::set(*budget_, there.empty() ? -1 : level());
  words.clear();
  int chosen = -1;
  for (const auto& kind : kinds()) {
    const auto& now = choices.budget_counts;
    if (kind.window == now.window && kind.kernel == now.kernel && kind.pooling == now.pooling)
      chosen = static_cast<int>(words.size());
    words.push_back(tr("%1 rows, kernel %2, %3")
                        .arg(kind.window)
                        .arg(kind.kernel)
                        .arg(kind.pooling == Pooling::maximum ? tr("maximum") : tr("average")));
  }
  ControlBar::set_items(*kind_, words);
  ControlBar::set(*kind_, chosen);
  ControlBar::set(*form_, static_cast<int>(choices.budgets.form));
  ControlBar::set(*r_max_, choices.budgets.r_max);
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

Screen* make_budgets_screen(Session& session, QWidget* parent) {
  return new BudgetsScreen(session, parent);
}

}  // namespace kvatlas::viewer
