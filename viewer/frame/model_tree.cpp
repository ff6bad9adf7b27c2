// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/model_tree.hpp"

#include <QHeaderView>
#include <QLineEdit>
#include <QSignalBlocker>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kKind = Qt::UserRole, kFirst = Qt::UserRole + 1, kSecond = Qt::UserRole + 2;
/// More samples are found by the line above the tree and by the jump box.
constexpr std::size_t kMostSamples = 20000;

/// Whether the item or one below it has the text; hides those that have not.
bool show_matching(QTreeWidgetItem* item, const QString& text, bool parent_has) {
  const bool has = parent_has || text.isEmpty() ||
                   item->text(0).contains(text, Qt::CaseInsensitive) ||
                   item->text(1).contains(text, Qt::CaseInsensitive);
  bool any = has;
  for (int i = 0; i < item->childCount(); ++i) any |= show_matching(item->child(i), text, has);
  item->setHidden(!any);
  return any;
}

}  // namespace

ModelTree::ModelTree(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
  find_ = new QLineEdit(this);
  find_->setPlaceholderText(tr("Find a layer, task or sample"));
  find_->setAccessibleName(tr("Find in model and samples"));
  find_->setClearButtonEnabled(true);
  find_->setMinimumHeight(28);
  tree_ = new QTreeWidget(this);
  tree_->setAccessibleName(tr("Model and samples"));
  tree_->setHeaderHidden(true);
  tree_->setColumnCount(2);
  tree_->setUniformRowHeights(true);
  tree_->setIndentation(12);
  // A long name is cut short, so that what is said of it stays in sight.
  tree_->header()->setSectionResizeMode(0, QHeaderView::Stretch);
  tree_->header()->setSectionResizeMode(1, QHeaderView::ResizeToContents);
  tree_->header()->setStretchLastSection(false);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addWidget(find_);
  layout->addWidget(tree_, 1);
  connect(find_, &QLineEdit::textChanged, this, &ModelTree::filter);
  connect(tree_, &QTreeWidget::currentItemChanged, this,
          [this](QTreeWidgetItem* item) { chosen(item); });
  connect(&session_, &Session::profile_changed, this, &ModelTree::rebuild);
  connect(&session_, &Session::choices_changed, this, &ModelTree::follow_selection);
  connect(&session_.selection(), &SelectionModel::changed, this, &ModelTree::follow_selection);
  rebuild();
}

QTreeWidgetItem* ModelTree::add(QTreeWidgetItem* parent, Kind kind, const QString& text, qint64 a,
                                qint64 b) {
  auto* item = new QTreeWidgetItem(parent, {text});
  item->setToolTip(0, text);
  item->setData(0, kKind, static_cast<int>(kind));
  item->setData(0, kFirst, a);
  item->setData(0, kSecond, b);
  if (kind == Kind::none) item->setFlags(Qt::ItemIsEnabled);
  return item;
}

void ModelTree::rebuild() {
  const QSignalBlocker quiet(tree_);
  tree_->clear();
  layers_.clear();
  sample_items_.clear();
  model_ = samples_ = nullptr;
  const auto* profile = session_.profile();
  if (!profile) return;
  const auto& header = profile->header();
  model_ = add(tree_->invisibleRootItem(), Kind::none, tr("Layers (%1)").arg(header.n_layers));
  const auto group = heads_per_kv_head(header);
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer) {
    auto* item = add(model_, Kind::layer, tr("Layer %1").arg(layer), layer);
    layers_.push_back(item);
    for (std::int64_t head = 0; head < header.n_heads; ++head)
      add(item, Kind::head, tr("Head %1").arg(head), layer, head)
          ->setText(1, tr("KV %1").arg(head / group));
  }
  const auto& samples = profile->samples();
  samples_ =
      add(tree_->invisibleRootItem(), Kind::all_samples, tr("Samples (%1)").arg(samples.size()));
  samples_->setToolTip(0, tr("All samples"));
  std::map<std::string, QTreeWidgetItem*> tasks;
  sample_items_.assign(samples.size(), nullptr);
  for (std::size_t i = 0; i < samples.size() && i < kMostSamples; ++i) {
    auto& task = tasks[samples[i].task];
    if (!task) task = add(samples_, Kind::task, QString::fromStdString(samples[i].task));
    sample_items_[i] =
        add(task, Kind::sample, QString::fromStdString(samples[i].id), static_cast<qint64>(i));
    sample_items_[i]->setText(1, tr("%1 tokens").arg(samples[i].n_tokens));
  }
  for (const auto& [name, task] : tasks) task->setText(1, QString::number(task->childCount()));
  model_->setExpanded(true);
  samples_->setExpanded(true);
  if (tasks.size() == 1) tasks.begin()->second->setExpanded(true);
  filter(find_->text());
  follow_selection();
}

void ModelTree::filter(const QString& text) {
  for (int i = 0; i < tree_->topLevelItemCount(); ++i)
    show_matching(tree_->topLevelItem(i), text.trimmed(), false);
}

void ModelTree::chosen(QTreeWidgetItem* item) {
  if (!item || !session_.profile()) return;
  Selection selection = session_.selection().current();
  const qint64 first = item->data(0, kFirst).toLongLong();
  switch (static_cast<Kind>(item->data(0, kKind).toInt())) {
    case Kind::none:
      return;
    case Kind::layer:
    case Kind::head:
      selection.layer = first;
      if (item->parent() != model_) selection.head = item->data(0, kSecond).toLongLong();
      break;
    case Kind::sample:
      if (selection.sample == static_cast<std::size_t>(first)) return;
      selection.sample = static_cast<std::size_t>(first);
      selection.query = selection.key = -1;
      selection.region.reset();
      break;
    case Kind::all_samples:
    case Kind::task:
      return session_.choose_task(item == samples_ ? "" : item->text(0).toStdString());
  }
  session_.selection().set(selection);
}

void ModelTree::follow_selection() {
  const Selection& selection = session_.selection().current();
  // The item of the kind that one is at stays the current one.
  const auto* now = tree_->currentItem();
  const auto kind = now ? static_cast<Kind>(now->data(0, kKind).toInt()) : Kind::layer;
  const auto layer = static_cast<std::size_t>(selection.layer);
  QTreeWidgetItem* wanted = nullptr;
  if (kind == Kind::sample && selection.sample < sample_items_.size())
    wanted = sample_items_[selection.sample];
  else if ((kind == Kind::layer || kind == Kind::head) && layer < layers_.size())
    wanted = layers_[layer];
  if (wanted && kind == Kind::head && wanted->isExpanded())
    wanted = wanted->child(static_cast<int>(selection.head));
  if (!wanted || wanted == now) return;
  const QSignalBlocker quiet(tree_);
  tree_->setCurrentItem(wanted);
  tree_->scrollToItem(wanted);
}

void ModelTree::set_predicates(
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& all) {
  for (auto* item : layers_) item->setText(1, {});
  for (const auto& [name, layers] : all)
    for (const auto layer : layers) {
      if (static_cast<std::size_t>(layer) >= layers_.size()) continue;
      auto* item = layers_[layer];
      const auto word = QString::fromStdString(name);
      item->setText(1, item->text(1).isEmpty() ? word : item->text(1) + ", " + word);
    }
}

}  // namespace kvatlas::viewer
