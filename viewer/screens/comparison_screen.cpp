// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/comparison_screen.hpp"

#include <QListWidget>
#include <QSplitter>
#include <QStackedWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {
namespace {

constexpr double kLeastShare = 0.01;  // of the cache, at which policies are compared

}  // namespace

ComparisonScreen::ComparisonScreen(Session& session, QWidget* parent)
    : LiveScreen(session, parent) {
  const auto compares_policies = [this] { return !profiles_shown(); };
  bar().add_combo(
      {"kind", tr("Compare"),
       tr("Policies of the open documents, or the profile (A) with the baseline (B).")},
      {tr("policies"), tr("profiles, side by side"), tr("profiles, difference")},
      [this] { return static_cast<int>(show_); },
      [this](int index) { show_kind(static_cast<Show>(index)); });
  bar().add_combo(
      {"cost", tr("Against"),
       tr("What scores are held against: the share of the cache that is kept, or of its bytes "
          "that a decode step reads. Some policies keep everything and read little."),
       compares_policies},
      {tr("the cache kept"), tr("the cache read a token")},
      [this] { return static_cast<int>(cost_); },
      [this](int index) {
        cost_ = static_cast<CostAxis>(index);
        if (model_) compute();
      });
  bar().add_number(
      {"share", tr("At"),
       tr("Policies are compared at equal bytes: each with its best setting that keeps, or reads, "
          "no more than this share of the cache. Drag the line, or press [ and ]."),
       compares_policies},
      {kLeastShare, 1, 0.01, 2}, [this] { return share_; },
      [this](double value) { set_share(value); });
  bar().add_button({"search", tr("Search…"),
                    tr("Searches the best policy for a memory, a context and a runtime; its front "
                       "opens here.")},
                   [this] { emit action_wanted("file.search"); });
  bar().add_switch(
      {"by_depth", tr("Pair by depth"),
       tr("Models of other depths: compares layers of the same relative depth."),
       [this] { return profiles_shown(); }},
      [this] { return by_depth_; },
      [this](bool on) {
        by_depth_ = on;
        if (first_ && second_) compute();
      });
  make_charts();
  connect(&session, &Session::baseline_changed, this, [this] {
    if (profiles_shown()) read_again();
  });
  start();
}

void ComparisonScreen::make_charts() {
  pareto_ = add_chart(tr("Score of every policy against the cache it keeps"));
  equal_ = add_chart(tr("The best of each policy at equal bytes"));
  strips_ = add_chart(tr("What each policy keeps of each layer"));
  memory_ = add_chart(tr("What each policy holds over generated tokens"));
  turns_ = add_chart(tr("The score of each question about one context"));
  masses_ = add_chart(tr("Layer masses of both profiles"));
  budgets_ = add_chart(tr("Budgets of both profiles"));
  similarity_ = add_chart(tr("Similarity of layers in both profiles"));
  changes_ = new QListWidget(page());
  changes_->setAccessibleName(tr("Largest changes first"));
  changes_->setToolTip(tr("Largest changes first; Return goes to the layer"));
  changes_->setMinimumSize(200, 120);

  pages_ = new QStackedWidget(page());
  page_layout().addWidget(pages_);
  pages_->addWidget(
      split(Qt::Vertical, {{split(Qt::Horizontal, {{pareto_, 3}, {equal_, 2}}), 3},
                           {split(Qt::Horizontal, {{strips_, 3}, {turns_, 2}, {memory_, 2}}), 2}}));
  pages_->addWidget(
      split(Qt::Horizontal, {{split(Qt::Vertical, {{masses_, 1}, {budgets_, 1}}), 3},
                             {split(Qt::Vertical, {{similarity_, 3}, {changes_, 2}}), 2}}));
  connect(pareto_, &ChartView::point_chosen, this, &ComparisonScreen::choose);
  const auto go_to_change = [this](const QListWidgetItem* item) {
    if (!item) return;
    Selection selection = this->session().selection().current();
    selection.layer = item->data(Qt::UserRole).toLongLong();
    if (const QVariant head = item->data(Qt::UserRole + 1); head.isValid())
      selection.head = head.toLongLong();
    this->session().selection().set(selection);
  };
  connect(changes_, &QListWidget::currentItemChanged, this, go_to_change);
  connect(changes_, &QListWidget::itemActivated, this,
          [this, go_to_change](const QListWidgetItem* item) {
            go_to_change(item);
            if (item->data(Qt::UserRole + 1).isValid()) emit screen_wanted("maps");
          });
  for (ChartView* chart : {masses_, budgets_})
    connect(chart, &ChartView::column_chosen, this,
            [this](double x) { select_layer(std::llround(x)); });
}

void ComparisonScreen::show_kind(Show show) {
  if (show == show_) return;
  const bool other_model = profiles_shown() != (show != Show::policies);
  show_ = show;
  show_controls();
  if (other_model || !first_ || !second_)
    read_again();
  else
    compute();
}

std::string ComparisonScreen::arrays() const {
  if (!profiles_shown()) return "policies";
  return str("profiles ", session().evidence().versions(), ' ', session().choices().budgets.budget);
}

void ComparisonScreen::read() {
  model_.reset();
  first_.reset();
  second_.reset();
  if (!profiles_shown()) {
    take_model(try_read([this] { return comparison_model(session().contents()); }), model_);
    return;
  }
  OpenedProfile *profile = session().profile(), *baseline = session().baseline();
  if (!profile || !baseline) {
    show_message(
        tr("Open a second profile as baseline (Ctrl+Shift+O) to compare it with the first."));
    return;
  }
  if (!session().evidence().is_read()) return wait_for_model();
  const Choices choices = session().choices();
  const auto name = [](const OpenedProfile& of) { return of.path().filename().string(); };
  std::string first_name = name(*profile), second_name = name(*baseline);
  if (first_name == second_name) {
    first_name = "A, " + first_name;
    second_name = "B, " + second_name;
  }
  // The second one is read when the first has arrived, each in its own thread.
  read_model(
      [models = session().evidence().models(), budgets = choices.budgets, first_name,
       positions = profile->positions(choices.task)](const profile::Reader& reader) {
        return read_profile_numbers(reader, first_name, positions, models, budgets);
      },
      [this](ProfileNumbers numbers) {
        first_ = std::make_shared<const ProfileNumbers>(std::move(numbers));
      });
  baseline->read(
      this,
      [choices, second_name,
       positions = baseline->positions(choices.task)](const profile::Reader& reader) {
        return read_profile_numbers(reader, second_name, positions,
                                    MethodReader(reader, positions, choices, {}).all(),
                                    choices.budgets);
      },
      [this, baseline](ProfileNumbers numbers) {
        if (baseline != session().baseline() || !profiles_shown()) return;
        second_ = std::make_shared<const ProfileNumbers>(std::move(numbers));
        if (first_) compute();
      },
      [this](const std::string& text) { show_message(QString::fromStdString(text)); });
}

void ComparisonScreen::compute() {
  if (!profiles_shown()) {
    compute_view(
        [model = model_, settings = ComparisonSettings{session().choices().length, share_,
                                                       session().choices().front, cost_}] {
          return comparison_view(*model, settings);
        },
        [this, model = model_](ComparisonView view) {
          of_view_ = model;
          view_ = std::move(view);
          show_page(
              0, {view_.pareto, view_.equal, view_.strips, view_.memory, view_.turns, {}, {}, {}});
        });
    return;
  }
  if (!first_ || !second_) return;
  const DiffSettings settings{
      show_ == Show::difference ? DiffForm::difference : DiffForm::side_by_side, by_depth_};
  compute_view(
      [first = first_, second = second_, settings] { return diff_view(*first, *second, settings); },
      [this](DiffView view) {
        diff_ = std::move(view);
        show_page(1, {{}, {}, {}, {}, {}, diff_.masses, diff_.budgets, diff_.similarity});
        show_changes();
      });
}

/// Charts in the order of their views; those of the other page are empty.
void ComparisonScreen::show_page(int page, const std::vector<Chart>& charts) {
  pages_->setCurrentIndex(page);
  const std::array views = {pareto_, equal_,  strips_,  memory_,
                            turns_,  masses_, budgets_, similarity_};
  for (std::size_t i = 0; i < views.size(); ++i) set_chart(*views[i], charts[i]);
}

void ComparisonScreen::show_changes() {
  const QSignalBlocker quiet(changes_);
  changes_->clear();
  for (const auto& change : diff_.changes) {
    auto* item = new QListWidgetItem(tr("layer %1: %2 %3 → %4")
                                         .arg(change.layer)
                                         .arg(QString::fromStdString(change.what),
                                              QString::fromStdString(fixed_text(change.first, 3)),
                                              QString::fromStdString(fixed_text(change.second, 3))),
                                     changes_);
    item->setData(Qt::UserRole, static_cast<qlonglong>(change.layer));
  }
  for (const auto& change : diff_.heads) {
    auto* item = new QListWidgetItem(tr("head L%1.H%2: map differs by %3, sink %4 → %5")
                                         .arg(change.layer)
                                         .arg(change.head)
                                         .arg(change.difference, 0, 'f', 3)
                                         .arg(change.first_sink, 0, 'f', 3)
                                         .arg(change.second_sink, 0, 'f', 3),
                                     changes_);
    item->setData(Qt::UserRole, static_cast<qlonglong>(change.layer));
    item->setData(Qt::UserRole + 1, static_cast<qlonglong>(change.head));
  }
}

void ComparisonScreen::set_share(double share) {
  share_ = std::clamp(share, kLeastShare, 1.0);
  show_controls();
  if (model_) compute();
}

bool ComparisonScreen::move_threshold(double by) {
  if (profiles_shown() || !model_) return false;
  set_share(share_ + by);
  return true;
}

void ComparisonScreen::choose(int series, int point) {
  const auto s = static_cast<std::size_t>(series), p = static_cast<std::size_t>(point);
  if (series < 0 || point < 0 || s >= view_.series.size() || p >= view_.series[s].size()) return;
  const ComparedPolicy& policy = *view_.series[s][p];
  const QString name = QString::fromStdString(policy.name + ", " + policy.setting);
  if (policy.front_point) return choose_front(policy);
  if (policy.section.empty()) {
    emit session().message(tr("%1 is a control: there is nothing to set").arg(name));
    return;
  }
  session().change(tr("Settings of %1").arg(name), with_policy(session().choices(), policy));
  emit session().message(tr("%1 is chosen").arg(name));
}

void ComparisonScreen::choose_front(const ComparedPolicy& policy) {
  const auto* profile = session().profile();
  try {
    session().change(tr("Point of the front"),
                     with_front(session().choices(), policy, session().contents(),
                                profile ? &profile->header() : nullptr));
    emit session().message(tr("%1 is the policy now: Ctrl+S saves it, Ctrl+Shift+E exports it")
                               .arg(QString::fromStdString(policy.setting)));
  } catch (const Error& error) {
    emit session().failed(QString::fromUtf8(error.what()));
  }
}

bool ComparisonScreen::act(Act act) {
  if (act == Act::difference || act == Act::beside) {
    show_kind(act == Act::beside || show_ == Show::difference ? Show::profiles : Show::difference);
    return true;
  }
  return LiveScreen::act(act);
}

Table ComparisonScreen::table() const {
  if (!message().isEmpty()) return {};
  return profiles_shown() ? diff_.table : view_.pareto.table;
}

QString ComparisonScreen::focus_text() const {
  if (!message().isEmpty()) return {};
  if (profiles_shown()) {
    const auto* item = changes_->item(0);
    return item ? tr("largest change: %1").arg(item->text()) : QString();
  }
  if (const auto& front = session().choices().front; front.document)
    return tr("chosen from the front: %1").arg(QString::fromStdString(front.policy));
  if (view_.at_equal_bytes.empty()) return {};
  const auto& best = *view_.at_equal_bytes.front().policy;
  return tr("best at %1 of the cache: %2, %3, score %4")
      .arg(QString::fromStdString(percent_text(share_)), QString::fromStdString(best.name),
           QString::fromStdString(best.setting),
           QString::fromStdString(fixed_text(best.score.mean, 3)));
}

}  // namespace kvatlas::viewer
