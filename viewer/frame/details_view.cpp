// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/details_view.hpp"

#include <QHeaderView>
#include <QTableWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "viewer/models/model_axes.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

DetailsView::DetailsView(Session& session, SampleFacts& facts, QWidget* parent)
    : QWidget(parent), session_(session), facts_(facts) {
  table_ = new QTableWidget(0, 2, this);
  table_->setAccessibleName(tr("Details of the selection"));
  table_->horizontalHeader()->setVisible(false);
  table_->horizontalHeader()->setSectionResizeMode(0, QHeaderView::ResizeToContents);
  table_->horizontalHeader()->setSectionResizeMode(1, QHeaderView::Stretch);
  table_->verticalHeader()->setVisible(false);
  table_->verticalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  table_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table_->setShowGrid(false);
  table_->setWordWrap(true);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(table_);
  connect(&session_, &Session::profile_changed, this, &DetailsView::refresh);
  connect(&session_.selection(), &SelectionModel::changed, this, &DetailsView::refresh);
  connect(&facts_, &SampleFacts::tokens_changed, this, &DetailsView::refresh);
  connect(&session_.evidence(), &EvidenceCache::layers_changed, this, &DetailsView::refresh);
  refresh();
}

void DetailsView::set_focus_text(const QString& text) {
  if (text == focus_) return;
  focus_ = text;
  refresh();
}

void DetailsView::set_prompt(std::vector<std::pair<QString, QString>> details) {
  if (details == prompt_) return;
  prompt_ = std::move(details);
  refresh();
}

void DetailsView::set_notes(const QStringList& notes) {
  notes_ = notes;
  refresh();
}

QString DetailsView::value(const QString& name) const {
  for (int row = 0; row < table_->rowCount(); ++row)
    if (table_->item(row, 0)->text() == name) return table_->item(row, 1)->text();
  return {};
}

void DetailsView::refresh() {
  std::vector<std::pair<QString, QString>> rows;
  const auto* profile = session_.profile();
  if (!prompt_.empty()) {
    if (!focus_.isEmpty()) rows.emplace_back(tr("In focus"), focus_);
    rows.insert(rows.end(), prompt_.begin(), prompt_.end());
  } else if (profile && !profile->samples().empty()) {
    const auto& header = profile->header();
    const Selection& selection = session_.selection().current();
    const auto& sample =
        profile->samples()[std::min(selection.sample, profile->samples().size() - 1)];
    if (!focus_.isEmpty()) rows.emplace_back(tr("In focus"), focus_);
    QString layer = tr("%1 of %2").arg(selection.layer).arg(header.n_layers);
    if (!header.layer_numbers.empty())
      layer += tr(", the model's %1")
                   .arg(header.layer_numbers[static_cast<std::size_t>(selection.layer)]);
    for (const auto& [name, layers] : session_.evidence().words())
      if (std::find(layers.begin(), layers.end(), selection.layer) != layers.end())
        layer += ", " + QString::fromStdString(name);
    rows.emplace_back(tr("Layer"), layer);
    rows.emplace_back(tr("Head"), tr("%1 of %2 (KV head %3)")
                                      .arg(selection.head)
                                      .arg(header.n_heads)
                                      .arg(selection.head / heads_per_kv_head(header)));
    const auto token = [&](const QString& name, std::int64_t at) {
      if (at < 0) return;
      QString text = QString::number(at);
      const auto place = static_cast<std::size_t>(at);
      if (place < facts_.token_texts().size())
        text += QStringLiteral("  “%1”").arg(
            QString::fromStdString(shown_text(facts_.token_texts()[place])));
      if (place < facts_.tokens().size()) text += tr("  (id %1)").arg(facts_.tokens()[place]);
      rows.emplace_back(name, text);
    };
    token(tr("Query"), selection.query);
    token(tr("Key"), selection.key);
    if (const auto& region = selection.region)
      rows.emplace_back(tr("Region"), tr("q %1–%2, k %3–%4")
                                          .arg(region->first_query)
                                          .arg(region->first_query + region->queries - 1)
                                          .arg(region->first_key)
                                          .arg(region->first_key + region->keys - 1));
    if (const auto& shown = selection.tokens)
      rows.emplace_back(tr("Tokens shown"), tr("%1–%2").arg(shown->first).arg(shown->second - 1));
    rows.emplace_back(tr("Sample"), QString::fromStdString(sample.id));
    rows.emplace_back(tr("Task"), QString::fromStdString(sample.task));
    rows.emplace_back(tr("Tokens"), QString::number(sample.n_tokens));
    if (sample.depth >= 0)
      rows.emplace_back(tr("Depth"), tr("%1 %").arg(100 * sample.depth, 0, 'f', 0));
    QStringList answers;
    for (const auto& answer : sample.answers) answers << QString::fromStdString(answer);
    if (!answers.empty()) rows.emplace_back(tr("Answer"), answers.join(", ").left(400));
    for (const auto& note : notes_) rows.emplace_back(tr("Note"), note);
  }
  table_->setRowCount(static_cast<int>(rows.size()));
  for (int row = 0; row < table_->rowCount(); ++row) {
    const auto& [name, text] = rows[row];
    const auto set = [&](int column, const QString& words) {
      auto* item = table_->item(row, column);
      if (!item) table_->setItem(row, column, item = new QTableWidgetItem);
      item->setText(words);
      item->setTextAlignment(Qt::AlignLeft | Qt::AlignTop);
    };
    set(0, name);
    set(1, text);
  }
}

}  // namespace kvatlas::viewer
