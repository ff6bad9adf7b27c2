// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/values_view.hpp"

#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QTableView>
#include <QVBoxLayout>

namespace kvatlas::viewer {

namespace {
constexpr int kRefreshMilliseconds = 100;
}

ValuesView::ValuesView(QWidget* parent) : QWidget(parent) {
  model_ = new TableModel(this);
  sorted_ = new QSortFilterProxyModel(this);
  sorted_->setSourceModel(model_);
  sorted_->setSortRole(TableModel::kValueRole);
  view_ = new QTableView(this);
  view_->setModel(sorted_);
  view_->setSortingEnabled(true);
  view_->sortByColumn(-1, Qt::AscendingOrder);  // as the screen has it
  view_->setAlternatingRowColors(true);
  view_->setSelectionBehavior(QAbstractItemView::SelectRows);
  view_->verticalHeader()->setDefaultSectionSize(24);
  view_->horizontalHeader()->setStretchLastSection(true);
  view_->setAccessibleName(tr("Values of the view"));
  label_ = new QLabel(this);
  copy_ = new QPushButton(tr("Copy as CSV"), this);
  copy_->setAccessibleName(tr("Copy the values as CSV"));
  copy_->setMinimumHeight(26);
  connect(copy_, &QPushButton::clicked, this,
          [this] { QGuiApplication::clipboard()->setText(csv()); });
  auto* foot = new QHBoxLayout;
  foot->addWidget(label_, 1);
  foot->addWidget(copy_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(view_, 1);
  layout->addLayout(foot);
  soon_.setSingleShot(true);
  soon_.setInterval(kRefreshMilliseconds);
  connect(&soon_, &QTimer::timeout, this, &ValuesView::refresh);
  refresh();
}

void ValuesView::set_screen(Screen* screen) {
  if (screen_) disconnect(screen_, nullptr, this, nullptr);
  screen_ = screen;
  if (screen_)
    connect(screen_, &Screen::content_changed, this, [this] {
      if (isVisible() && !soon_.isActive()) soon_.start();
    });
  if (isVisible()) refresh();
}

void ValuesView::showEvent(QShowEvent* event) {
  refresh();
  QWidget::showEvent(event);
}

void ValuesView::refresh() {
  model_->set_table(screen_ && isVisible() ? screen_->table() : Table{});
  const int rows = model_->rowCount();
  label_->setText(rows == 0 ? tr("No values") : tr("Rows: %1").arg(rows));
  copy_->setEnabled(rows > 0);
  if (rows > 0 && rows < 2000) view_->resizeColumnsToContents();
}

QString ValuesView::csv() const {
  Chart chart;
  if (screen_) chart.title = screen_->title().toStdString();
  chart.table.columns = model_->table().columns;
  for (int row = 0; row < sorted_->rowCount(); ++row)
    chart.table.rows.push_back(
        model_->table().rows[sorted_->mapToSource(sorted_->index(row, 0)).row()]);
  return QString::fromStdString(chart_csv(chart));
}

}  // namespace kvatlas::viewer
