// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/policy_card.hpp"

#include <QFormLayout>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

#include "viewer/draw/chart_view.hpp"

namespace kvatlas::viewer {
namespace {

constexpr int kChartHeight = 230;

QString text_of(const std::string& text) { return QString::fromStdString(text); }

QLabel* make_label(QWidget* parent) {
  auto* label = new QLabel(parent);
  label->setTextFormat(Qt::PlainText);
  label->setWordWrap(true);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  return label;
}

void make_title(QLabel& label, double larger) {
  QFont font = label.font();
  font.setBold(true);
  font.setPointSizeF(font.pointSizeF() + larger);
  label.setFont(font);
}

void make_panel(QFrame& frame) {
  frame.setFrameShape(QFrame::StyledPanel);
  frame.setAutoFillBackground(true);
  frame.setBackgroundRole(QPalette::Base);
}

}  // namespace

FactsPanel::FactsPanel(const QString& title, QWidget* parent) : QFrame(parent) {
  make_panel(*this);
  setAccessibleName(title);
  auto* below = new QVBoxLayout(this);
  below->setContentsMargins(12, 8, 12, 8);
  auto* label = make_label(this);
  label->setText(title);
  make_title(*label, 1);
  below->addWidget(label);
  rows_ = new QFormLayout;
  rows_->setHorizontalSpacing(12);
  rows_->setVerticalSpacing(2);
  rows_->setRowWrapPolicy(QFormLayout::DontWrapRows);
  rows_->setLabelAlignment(Qt::AlignLeft | Qt::AlignTop);
  below->addLayout(rows_);
  below->addStretch(1);
}

void FactsPanel::show_facts(const std::vector<Fact>& facts) {
  if (values_.size() != facts.size()) {
    while (rows_->rowCount() > 0) rows_->removeRow(0);
    values_.clear();
    for (const Fact& fact : facts) {
      auto* name = make_label(this);
      name->setText(text_of(fact.name));
      name->setWordWrap(false);
      name->setForegroundRole(QPalette::PlaceholderText);
      values_.push_back(make_label(this));
      rows_->addRow(name, values_.back());
    }
  }
  for (std::size_t i = 0; i < facts.size(); ++i) {
    static_cast<QLabel*>(rows_->labelForField(values_[i]))->setText(text_of(facts[i].name));
    values_[i]->setText(text_of(facts[i].value));
    values_[i]->setAccessibleName(text_of(facts[i].name));
  }
}

PolicyCardView::PolicyCardView(ChartView* chart, QWidget* parent) : QFrame(parent), chart_(chart) {
  make_panel(*this);
  auto* below = new QVBoxLayout(this);
  below->setContentsMargins(12, 8, 12, 10);
  below->setSpacing(4);
  title_ = make_label(this);
  make_title(*title_, 2);
  below->addWidget(title_);
  setting_ = add_line("setting");
  setting_->setForegroundRole(QPalette::PlaceholderText);
  missing_ = add_line("missing");
  chart_->setParent(this);
  chart_->setFixedHeight(kChartHeight);
  below->addWidget(chart_);
  kept_ = add_line("kept");
  QFont bold = kept_->font();
  bold.setBold(true);
  kept_->setFont(bold);
  score_ = add_line("score");
  reason_ = add_line("reason");
  risk_ = add_line("risk");
  below->addStretch(1);
  auto* buttons = new QHBoxLayout;
  open_ = new QPushButton(tr("Open"), this);
  export_ = new QPushButton(tr("Export…"), this);
  for (QPushButton* button : {open_, export_}) {
    button->setMinimumHeight(26);
    buttons->addWidget(button);
  }
  buttons->addStretch(1);
  below->addLayout(buttons);
  connect(open_, &QPushButton::clicked, this, &PolicyCardView::open_wanted);
  connect(export_, &QPushButton::clicked, this, &PolicyCardView::export_wanted);
}

QLabel* PolicyCardView::add_line(const char* name) {
  auto* label = make_label(this);
  label->setObjectName(QLatin1String(name));
  layout()->addWidget(label);
  return label;
}

void PolicyCardView::show_card(const PolicyCard& card) {
  card_ = card;
  const QString title = text_of(card.title);
  setObjectName(text_of(card.section));
  setAccessibleName(title);
  title_->setText(title);
  open_->setAccessibleName(tr("Open %1").arg(title));
  export_->setAccessibleName(tr("Export %1").arg(title));
  const auto set = [](QLabel* label, const QString& text) {
    label->setText(text);
    label->setVisible(!text.isEmpty());
  };
  const auto sentence = [](const QString& words, const std::string& text) {
    return text.empty() ? QString() : words.arg(text_of(text));
  };
  set(setting_, text_of(card.setting));
  set(missing_, sentence(tr("Not shown: %1"), card.missing));
  set(kept_, text_of(card.kept));
  set(score_, sentence(tr("Score: %1"), card.score));
  set(reason_, sentence(tr("Why: %1"), card.advice.reason));
  set(risk_, sentence(tr("Risk: %1"), card.advice.risk));
  const bool there = card.missing.empty();
  chart_->setVisible(there);
  export_->setEnabled(there);
}

}  // namespace kvatlas::viewer
