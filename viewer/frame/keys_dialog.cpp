// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/keys_dialog.hpp"

#include <QDialogButtonBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeySequenceEdit>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTreeWidget>
#include <QVBoxLayout>

namespace kvatlas::viewer {

KeysDialog::KeysDialog(Actions& actions, QWidget* parent) : QDialog(parent), actions_(actions) {
  setWindowTitle(tr("Keys"));
  setAttribute(Qt::WA_DeleteOnClose);
  resize(620, 620);
  auto* find = new QLineEdit(this);
  find->setPlaceholderText(tr("Find an action or a key"));
  find->setAccessibleName(tr("Find an action or a key"));
  tree_ = new QTreeWidget(this);
  tree_->setObjectName("keys");
  tree_->setAccessibleName(tr("Actions and their keys"));
  tree_->setHeaderLabels({tr("Action"), tr("Keys")});
  tree_->header()->setSectionResizeMode(0, QHeaderView::Stretch);
  tree_->header()->setStretchLastSection(false);
  tree_->header()->setSectionResizeMode(1, QHeaderView::ResizeToContents);
  edit_ = new QKeySequenceEdit(this);
  edit_->setAccessibleName(tr("New key of the chosen action"));
  auto* set = new QPushButton(tr("Set key"), this);
  set->setObjectName("set");
  auto* add = new QPushButton(tr("Add key"), this);
  auto* reset = new QPushButton(tr("Standard keys"), this);
  reset->setObjectName("reset");
  problem_ = new QLabel(this);
  problem_->setObjectName("problem");
  problem_->setWordWrap(true);
  auto* row = new QHBoxLayout;
  row->addWidget(new QLabel(tr("New key:"), this));
  row->addWidget(edit_, 1);
  row->addWidget(set);
  row->addWidget(add);
  row->addWidget(reset);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(find);
  layout->addWidget(tree_, 1);
  layout->addWidget(new QLabel(tr("Single letters act only outside text fields. Wheel and drag "
                                  "zoom and pan; a click chooses."),
                               this));
  layout->addLayout(row);
  layout->addWidget(problem_);
  layout->addWidget(buttons);
  refresh();
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::close);
  connect(find, &QLineEdit::textChanged, this, [this](const QString& text) {
    for (int g = 0; g < tree_->topLevelItemCount(); ++g) {
      auto* group = tree_->topLevelItem(g);
      for (int i = 0; i < group->childCount(); ++i) {
        auto* item = group->child(i);
        item->setHidden(!item->text(0).contains(text, Qt::CaseInsensitive) &&
                        !item->text(1).contains(text, Qt::CaseInsensitive));
      }
    }
  });
  connect(set, &QPushButton::clicked, this, [this] {
    change(edit_->keySequence().isEmpty() ? QList<QKeySequence>{}
                                          : QList<QKeySequence>{edit_->keySequence()});
  });
  connect(add, &QPushButton::clicked, this, [this] {
    if (auto* action = chosen(); action && !edit_->keySequence().isEmpty())
      change(action->shortcuts() << edit_->keySequence());
  });
  connect(reset, &QPushButton::clicked, this, [this] {
    actions_.reset_keys();
    problem_->clear();
    refresh();
  });
}

QAction* KeysDialog::chosen() const {
  const auto* item = tree_->currentItem();
  const auto id = item ? item->data(0, Qt::UserRole).toString() : QString();
  return id.isEmpty() ? nullptr : actions_[id];
}

void KeysDialog::change(const QList<QKeySequence>& keys) {
  auto* action = chosen();
  if (!action) {
    problem_->setText(tr("Choose an action first."));
    return;
  }
  if (const auto* other = actions_.set_keys(action, keys)) {
    problem_->setText(tr("That key is taken by “%1”.").arg(other->text()));
    return;
  }
  problem_->clear();
  edit_->clear();
  refresh();
}

void KeysDialog::refresh() {
  const auto before =
      tree_->currentItem() ? tree_->currentItem()->data(0, Qt::UserRole) : QVariant();
  tree_->clear();
  std::map<QString, QTreeWidgetItem*> groups;
  for (auto* action : actions_.all()) {
    const auto name = Actions::group_of(actions_.entry(action));
    auto*& group = groups[name];
    if (!group) {
      group = new QTreeWidgetItem(tree_, {Actions::title_of(name)});
      group->setFlags(Qt::ItemIsEnabled);
      QFont bold = font();
      bold.setBold(true);
      group->setFont(0, bold);
      group->setExpanded(true);
    }
    QStringList keys;
    for (const auto& key : action->shortcuts()) keys << key.toString(QKeySequence::NativeText);
    auto* item = new QTreeWidgetItem(
        group, {Actions::text_of(actions_.entry(action)), keys.join(tr(" or "))});
    item->setData(0, Qt::UserRole, action->objectName());
    if (item->data(0, Qt::UserRole) == before) tree_->setCurrentItem(item);
  }
}

}  // namespace kvatlas::viewer
