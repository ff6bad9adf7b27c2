// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/overview_screen.hpp"

#include <QGridLayout>
#include <QPushButton>
#include <QScrollArea>
#include <QVBoxLayout>
#include <algorithm>

#include "base/str.hpp"
#include "viewer/screens/policy_card.hpp"

namespace kvatlas::viewer {
namespace {

constexpr int kLeastCardWidth = 340;
constexpr std::size_t kCards = calibrate::kMethods.size();

}  // namespace

OverviewScreen::OverviewScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  bar().hide();
  auto* scroll = new QScrollArea(page());
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  page_layout().addWidget(scroll);
  content_ = new QWidget(scroll);
  scroll->setWidget(content_);
  auto* rows = new QVBoxLayout(content_);
  rows->setContentsMargins(12, 12, 12, 12);
  rows->setSpacing(12);
  auto* facts = new QHBoxLayout;
  facts->setSpacing(12);
  model_facts_ = new FactsPanel(tr("Model"), content_);
  profile_facts_ = new FactsPanel(tr("Profile"), content_);
  facts->addWidget(model_facts_, 1);
  facts->addWidget(profile_facts_, 1);
  rows->addLayout(facts);
  grid_ = new QGridLayout;
  grid_->setSpacing(12);
  rows->addLayout(grid_);
  rows->addStretch(1);
  for (std::size_t i = 0; i < kCards; ++i) {
    auto* card = new PolicyCardView(add_chart(tr("Chart of the policy")), content_);
    cards_.push_back(card);
    connect(card, &PolicyCardView::open_wanted, this, [this, card] { open(card->card()); });
    connect(card, &PolicyCardView::export_wanted, this,
            [this, card] { emit export_wanted(QString::fromStdString(card->card().section)); });
  }
  arrange(width());
  start();
}

std::string OverviewScreen::arrays() const { return session().evidence().versions(); }

void OverviewScreen::read() {
  if (!session().evidence().is_read()) return wait_for_model();
  read_model(
      [methods = session().evidence().models(), path = session().profile()->path(),
       documents = session().own_contents()](const profile::Reader& profile) {
        auto model = read_overview_model(profile, methods, documents);
        model.provenance.push_back(file_date(path));
        return model;
      },
      [this](OverviewModel model) {
        model_ = std::make_shared<const OverviewModel>(std::move(model));
      });
}

void OverviewScreen::compute() {
  compute_view(
      [model = model_, choices = session().choices()] { return overview_view(*model, choices); },
      [this](OverviewView view) {
        view_ = std::move(view);
        show_view();
      });
}

void OverviewScreen::show_view() {
  auto facts = model_->facts;
  facts.insert(facts.end(), view_.cache.begin(), view_.cache.end());
  model_facts_->show_facts(facts);
  profile_facts_->show_facts(model_->provenance);
  for (std::size_t i = 0; i < cards_.size() && i < view_.cards.size(); ++i) {
    const PolicyCard& card = view_.cards[i];
    if (auto* chart = cards_[i]->findChild<ChartView*>()) {
      set_chart(*chart, card.chart);
      chart->setAccessibleName(tr("%1: %2").arg(QString::fromStdString(card.title),
                                                QString::fromStdString(card.chart.title)));
    }
    cards_[i]->show_card(card);
  }
}

void OverviewScreen::open(const PolicyCard& card) {
  Selection selection = session().selection().current();
  if (card.advice.layer) selection.layer = *card.advice.layer;
  if (card.advice.head) selection.head = *card.advice.head;
  session().selection().set(selection);
  emit screen_wanted(QString::fromStdString(card.screen));
}

QString OverviewScreen::focus_text() const {
  if (!message().isEmpty() || view_.cards.empty()) return {};
  QStringList parts;
  for (const auto& card : view_.cards)
    if (card.missing.empty())
      parts.push_back(tr("%1 keeps %2")
                          .arg(QString::fromStdString(card.title),
                               QString::fromStdString(percent_text(card.kept_share))));
  return parts.join(tr(", "));
}

void OverviewScreen::resizeEvent(QResizeEvent* event) {
  LiveScreen::resizeEvent(event);
  arrange(width());
}

void OverviewScreen::arrange(int width) {
  constexpr int most = static_cast<int>(kCards);
  const int wanted = std::clamp((width - 12) / (kLeastCardWidth + 12), 1, most);
  // Five cards and one below look unfinished.
  const int columns = wanted == most - 1 ? most - 2 : wanted;
  if (columns == columns_) return;
  columns_ = columns;
  for (std::size_t i = 0; i < cards_.size(); ++i)
    grid_->addWidget(cards_[i], static_cast<int>(i) / columns, static_cast<int>(i) % columns);
  for (int column = 0; column < most; ++column) grid_->setColumnStretch(column, column < columns);
}

}  // namespace kvatlas::viewer
