// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/rows_screen.hpp"

#include <QHeaderView>
#include <QSplitter>
#include <QTableWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

namespace {

/// Labels of the profile's axis of selections that begin so.
QStringList selections_of(const profile::Header& header, const std::string& begin) {
  QStringList found;
  for (const auto& axis : header.axes)
    if (axis.axis == "selection")
      for (const auto& label : axis.labels)
        if (label.starts_with(begin)) found << QString::fromStdString(label);
  return found;
}

}  // namespace

RowsScreen::RowsScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  bar().add_combo(
      {"lines", tr("Lines"), tr("Whose rows are shown; the chosen head's has a band.")},
      {tr("chosen head"), tr("heads of its KV group"), tr("all heads of the layer"),
       tr("mean of the layer")},
      [this] { return static_cast<int>(lines_); },
      [this](int index) { set_lines(static_cast<Lines>(index)); });
  const auto add_marks = [this](const calibrate::Method& method, const QString& name) {
    return bar().add_combo(
        {method.name, name, tr("Whose kept keys are marked under the axis.")},
        [this, begin = std::string(method.name) + ":"] {
          return QStringList{tr("none")} +
                 selections_of(this->session().profile()->header(), begin);
        },
        {}, [this](int) { read_again(); });
  };
  dynamic_choice_ = add_marks(calibrate::method::kDynamicKv, tr("Marks of DynamicKV"));
  lag_choice_ = add_marks(calibrate::method::kLagKv, tr("of LagKV"));
  // Names of settings are long; the lists below are as wide as they need.
  for (QComboBox* choice : {dynamic_choice_, lag_choice_}) choice->setMaximumWidth(180);
  bar().add_button({"all", tr("All keys"), tr("Ends the zoom; brushing the chart begins one.")},
                   [this] { show_keys(0, 0); });

  lines_view_ = add_chart(tr("Attention of the last rows over keys"));
  heatmap_ = add_chart(tr("Each of the last rows"));
  table_ = new QTableWidget(page());
  table_->setAccessibleName(tr("Keys with the most attention"));
  table_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table_->setSelectionBehavior(QAbstractItemView::SelectRows);
  table_->verticalHeader()->hide();
  table_->setMinimumSize(220, 180);
  page_layout().addWidget(split(
      Qt::Horizontal, {{split(Qt::Vertical, {{lines_view_, 3}, {heatmap_, 2}}), 3}, {table_, 1}}));
  lines_view_->set_brushing(true);
  connect(lines_view_, &ChartView::range_brushed, this, [this](double first, double last) {
    const std::int64_t from = std::lround(std::ceil(first));
    show_keys(from, std::max(from, std::int64_t{std::lround(std::floor(last))}) + 1);
  });
  connect(table_, &QTableWidget::currentCellChanged, this, [this](int row) {
    if (row < 0 || static_cast<std::size_t>(row) >= top_.rows.size() || !read_of_) return;
    Selection selection = this->session().selection().current();
    selection.query = read_of_->model.n_tokens - 1;
    selection.key = std::lround(top_.rows[row][1].number);
    this->session().selection().set(selection);
  });
  start();
}

void RowsScreen::set_lines(Lines lines) {
  lines_ = lines;
  read_again();
}

RowsChoices RowsScreen::rows_choices() const {
  const Selection& selection = session().selection().current();
  const auto& header = session().profile()->header();
  const std::int64_t group = heads_per_kv_head(header);
  RowsChoices choices;
  choices.layer = selection.layer;
  choices.kept_of_head = selection.head;
  const auto& keep = session().choices().lazy_arrays.keep;
  choices.keep = keep;
  if (lines_ != Lines::mean) choices.heads = {selection.head};  // the first one has the band
  const bool all = lines_ == Lines::all_heads;
  if (all || lines_ == Lines::kv_group) {
    const std::int64_t first = all ? 0 : selection.head / group * group;
    for (std::int64_t head = first; head < (all ? header.n_heads : first + group); ++head)
      if (head != selection.head) choices.heads.push_back(head);
  }
  for (const QComboBox* choice : {dynamic_choice_, lag_choice_})
    if (choice->currentIndex() > 0)
      choices.selections.push_back(choice->currentText().toStdString());
  return choices;
}

std::string RowsScreen::arrays() const {
  const Selection& selection = session().selection().current();
  const auto& keep = session().choices().lazy_arrays.keep;
  return str(selection.sample, ' ', selection.layer, ' ', selection.head, ' ', keep.initial, ' ',
             keep.recent, ' ', static_cast<int>(lines_));
}

void RowsScreen::read() {
  read_model(
      [position = session().selection().current().sample,
       choices = rows_choices()](const profile::Reader& profile) {
        Read out{read_rows_model(profile, position, choices), read_shown_texts(profile, position)};
        if (out.texts.empty())
          for (const auto token : profile.tokens(position)) out.texts.push_back(str("#", token));
        return out;
      },
      [this](Read read) { read_of_ = std::make_shared<const Read>(std::move(read)); });
}

std::pair<std::int64_t, std::int64_t> RowsScreen::keys() const {
  const std::int64_t n = read_of_ ? read_of_->model.n_tokens : 0;
  const auto& shown = session().selection().current().tokens;
  if (!shown || shown->first >= n) return {0, n};
  return {shown->first, std::min(shown->second, n)};
}

void RowsScreen::compute() {
  computed_ = keys();
  compute_view(
      [read = read_of_, keys = computed_] { return rows_view(read->model, keys, read->texts); },
      [this](RowsView view) {
        top_ = std::move(view.top);
        set_chart(*lines_view_, view.lines);
        set_chart(*heatmap_, view.heatmap);
        show_table();
      });
}

void RowsScreen::show_table() {
  const QSignalBlocker quiet(table_);
  constexpr int kColumns = 4;  // rank, key, text, mean; the others are in the table of the screen
  const QStringList titles = {tr("rank"), tr("key"), tr("text"), tr("mean")};
  table_->setColumnCount(kColumns);
  table_->setHorizontalHeaderLabels(titles);
  table_->setRowCount(static_cast<int>(top_.rows.size()));
  for (int row = 0; row < table_->rowCount(); ++row)
    for (int column = 0; column < kColumns; ++column) {
      const auto& cell = top_.rows[row][column];
      table_->setItem(
          row, column,
          new QTableWidgetItem(cell.is_text  ? QString::fromStdString(cell.text)
                               : column == 3 ? QString::number(cell.number, 'g', 3)
                                             : QString::number(std::llround(cell.number))));
    }
  table_->resizeColumnsToContents();
}

void RowsScreen::show_selection() {
  if (keys() != computed_) compute();
}

void RowsScreen::show_keys(std::int64_t first, std::int64_t last) {
  if (!read_of_) return;
  const std::int64_t n = read_of_->model.n_tokens;
  first = std::clamp<std::int64_t>(first, 0, n - 1);
  last = last <= first ? n : std::clamp<std::int64_t>(last, first + 1, n);
  Selection selection = session().selection().current();
  selection.tokens.reset();
  if (first > 0 || last < n) selection.tokens = {first, last};
  session().selection().set(selection);
}

bool RowsScreen::act(Act act) {
  if (!read_of_ || !message().isEmpty()) return LiveScreen::act(act);
  const auto [first, last] = keys();
  const std::int64_t span = last - first;
  switch (act) {
    case Act::zoom_in:
      if (span > 16) show_keys(first + span / 4, last - span / 4);
      return true;
    case Act::zoom_out:
      show_keys(first - span / 2, last + span / 2);
      return true;
    case Act::pan_left:
    case Act::pan_right: {
      const std::int64_t by = std::max<std::int64_t>(1, span / 8);
      const std::int64_t moved = std::clamp<std::int64_t>(first + (act == Act::pan_left ? -by : by),
                                                          0, read_of_->model.n_tokens - span);
      show_keys(moved, moved + span);
      return true;
    }
    case Act::fit:
    case Act::escape:
      if (span == read_of_->model.n_tokens) return act == Act::fit;
      show_keys(0, 0);
      return true;
    case Act::up:
    case Act::down:
      if (table_->rowCount() == 0) return true;
      table_->setCurrentCell(
          std::clamp(table_->currentRow() + (act == Act::up ? -1 : 1), 0, table_->rowCount() - 1),
          1);
      return true;
    default:
      return LiveScreen::act(act);
  }
}

QString RowsScreen::focus_text() const {
  if (!read_of_ || !message().isEmpty() || top_.rows.empty()) return {};
  const auto row = static_cast<std::size_t>(
      std::clamp(table_->currentRow(), 0, static_cast<int>(top_.rows.size()) - 1));
  const auto& cells = top_.rows[row];
  return tr("%1: rank %2, key %3 %4, mean %5")
      .arg(QString::fromStdString(read_of_->model.lines.front().label))
      .arg(std::llround(cells[0].number))
      .arg(std::llround(cells[1].number))
      .arg(QString::fromStdString(cells[2].text))
      .arg(cells[3].number, 0, 'g', 4);
}

}  // namespace kvatlas::viewer
