// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/blocks_screen.hpp"

#include <QSplitter>
#include <QTabWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/pair_rows_model.hpp"

namespace kvatlas::viewer {

BlocksScreen::BlocksScreen(Session& session, QWidget* parent) : LiveScreen(session, parent) {
  make_controls();
  make_charts();
  connect(&gate_latest_, &Latest::failed, this,
          [this](const QString& text) { show_note(*gate_, text); });
  start();
}

void BlocksScreen::make_controls() {
  const QString hint =
      tr("Layers join a block if each two of them are at least so alike. Drag the "
         "line in a chart, or press [ and ].");
  bar().add_slider(
      {"delta_slider", tr("\u03b4"), hint}, [] { return 100; },
      [this] {
        return static_cast<int>(std::lround(this->session().choices().blocks.delta * 100));
      },
      [this](int value, bool done) {
        drag(tr("Similarity"), done,
             [&](Choices& choices) { choices.blocks.delta = value / 100.0; });
      });
  add_number({"delta", tr("Similarity at least"), hint},
             ControlBar::range_of(calibrate::method::kPod.name, "delta", 0.01, 3), tr("Similarity"),
             at([](auto& choices) -> auto& { return choices.blocks.delta; }), Handle::similarity);
  add_combo(
      {"heads", tr("Group"),
       tr("KV heads: one grouping for all query heads that read a KV head, by the least alike of "
          "them. Query heads: each by itself; a key is dropped only if none of them reads it.")},
      {tr("KV heads"), tr("query heads")}, tr("KV heads or query heads"),
      at([](auto& choices) -> auto& { return choices.blocks.per_query_head; }));
  add_combo({"shown", tr("Show"), tr("Similarity is 1 minus the mean Jensen-Shannon divergence.")},
            {tr("similarity"), tr("divergence")}, tr("Similarity or divergence"),
            at([](auto& choices) -> auto& { return choices.blocks.show_divergence; }));
  add_proximity(
      tr("Tokens that every layer keeps by itself; only the distant ones are shared in a block."),
      [](Choices & choices) -> auto& { return choices.blocks.proximal; });
  const auto has_wanted = [this] {
    return this->session().choices().blocks.wanted_saving.has_value();
  };
  bar().add_switch(
      {"has_wanted", tr("Wanted saving"),
       tr("Reads off the similarity that saves this share of the cache: a second line in the "
          "curves, which can be dragged.")},
      has_wanted, [this](bool on) {
        change(tr("Wanted saving"), [&](Choices& choices) {
          choices.blocks.wanted_saving = on ? std::optional(wanted_->value() / 100) : std::nullopt;
        });
      });
  wanted_ =
      add_number({"wanted", tr("of the cache"),
                  tr("35 % in the paper; at the prompt length chosen."), has_wanted},
                 {0, 50, 1, 1, QStringLiteral(" %"), 100}, tr("Wanted saving"),
                 {[this](const Choices& choices) {
                    return choices.blocks.wanted_saving.value_or(wanted_->value() / 100);
                  },
                  [](Choices& choices, double value) { choices.blocks.wanted_saving = value; }},
                 Handle::wanted_saving);
  ControlBar::set(*wanted_, 35);
  add_number(
      {"new_tokens", tr("New tokens"), tr("Generated after the prompt; for the greatest batch.")},
      {0, 1 << 20, 128, 0}, tr("New tokens"),
      at([](auto& choices) -> auto& { return choices.blocks.new_tokens; }));
  add_number(
      {"memory", tr("Memory"), tr("For the caches of all sequences; for the greatest batch.")},
      {0.1, 100000, 8, 1, tr(" GiB"), 1.0 / (1LL << 30)}, tr("Memory"),
      at([](auto& choices) -> auto& { return choices.blocks.memory_bytes; }));
  tau_ = bar().add_number(
      {"tau", tr("PoD's gate \u03c4"),
       tr("A layer skips a block's distant part if its own proximal tokens have at least this "
          "share of the attention; 1 never skips.")},
      ControlBar::range_of(calibrate::method::kPod.name, "tau", 0.01, 3), {},
      [this](double) { compute_gate(); });
  ControlBar::set(*tau_, 0.95);
  bar().add_button({"read_gate", tr("Read PoD's gate"),
                    tr("Reads the log-sum-exps of the last rows, which are large, and shows the "
                       "share of distant attention skipped over \u03c4.")},
                   [this] { read_gate(); });
}

void BlocksScreen::make_charts() {
  matrices_ = add_chart(tr("Similarity of all layers, a matrix a head"));
  enlarged_ = add_chart(tr("Similarity of all layers in the chosen head"));
  sweep_ = add_chart(tr("What every similarity saves"));
  counts_ = add_chart(tr("Blocks of each head"));
  gate_ = add_chart(tr("Distant attention skipped by PoD's gate"));
  rows_ = add_chart(tr("Attention of two layers, laid over each other"));
  tabs_ = new QTabWidget(page());
  tabs_->setDocumentMode(true);
  tabs_->setAccessibleName(tr("Curves"));
  const auto add = [this](ChartView* chart, const QString& name, const QString& hint) {
    auto* page = new QWidget(tabs_);
    auto* layout = new QVBoxLayout(page);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->addWidget(chart);
    tabs_->setTabToolTip(tabs_->addTab(page, name), hint);
  };
  add(sweep_, tr("Savings over \u03b4"), tr("Keys dropped, cache saved, greatest batch and score"));
  add(counts_, tr("Blocks a head"), tr("How many blocks each head has at this similarity"));
  add(rows_, tr("Two layers' rows"), tr("Choose a cell of the enlarged matrix"));
  add(gate_, tr("PoD's gate"), tr("Press \"Read PoD's gate\" first"));
  page_layout().addWidget(split(
      Qt::Vertical, {{split(Qt::Horizontal, {{matrices_, 3}, {enlarged_, 2}}), 3}, {tabs_, 2}}));
  connect(matrices_, &ChartView::cell_chosen, this,
          [this](int matrix, int row, int) { select_group(matrix, row); });
  // A pointer that rests on a cell shows its rows until it leaves; a click lets them stay.
  hover_.setSingleShot(true);
  hover_.setInterval(200);
  connect(&hover_, &QTimer::timeout, this, [this] {
    if (tab_before_ < 0) tab_before_ = tabs_->currentIndex();
    read_pair(hovered_.first, hovered_.second);
  });
  connect(enlarged_, &ChartView::cell_hovered, this, [this](int matrix, int row, int column) {
    hover_.stop();
    if (matrix >= 0) {
      hovered_ = {row, column};
      if (row != column) hover_.start();
    } else if (tab_before_ >= 0) {
      tabs_->setCurrentIndex(std::exchange(tab_before_, -1));
    }
  });
  connect(enlarged_, &ChartView::cell_chosen, this, [this](int, int row, int column) {
    hover_.stop();
    tab_before_ = -1;
    read_pair(row, column);
    select_group(group_of(session().selection().current().head), row);
  });
  connect(counts_, &ChartView::column_chosen, this, [this](double x) {
    select_group(std::lround(x), session().selection().current().layer);
  });
}

/// What is grouped: a query head, or its KV head.
std::int64_t BlocksScreen::group_of(std::int64_t query_head) const {
  const auto& header = session().profile()->header();
  return session().choices().blocks.per_query_head ? query_head
                                                   : query_head / heads_per_kv_head(header);
}

void BlocksScreen::select_group(std::int64_t group, std::int64_t layer) {
  if (!session().profile()) return;
  const auto& header = session().profile()->header();
  Selection selection = session().selection().current();
  selection.layer = layer;
  if (group_of(selection.head) != group)
    selection.head =
        session().choices().blocks.per_query_head ? group : group * heads_per_kv_head(header);
  if (selection.head >= 0 && selection.head < header.n_heads) session().selection().set(selection);
}

void BlocksScreen::handle_moved(Handle handle, double value, bool done) {
  if (handle == Handle::gate_threshold) {
    ControlBar::set(*tau_, std::clamp(value, 0.0, 1.0));
    compute_gate();
  } else if (handle == Handle::divergence) {
    LiveScreen::handle_moved(Handle::similarity, 1 - value, done);
  } else {
    LiveScreen::handle_moved(handle, value, done);
  }
}

bool BlocksScreen::act(Act act) {
  if (!session().profile()) return false;
  const auto& selection = session().selection().current();
  const auto group = group_of(selection.head);
  switch (act) {
    case Act::left:
    case Act::right:
      select_group(group + (act == Act::right ? 1 : -1), selection.layer);
      return true;
    case Act::up:
    case Act::down:
      select_group(group, selection.layer + (act == Act::down ? 1 : -1));
      return true;
    default:
      return LiveScreen::act(act);
  }
}

std::string BlocksScreen::arrays() const { return str(session().evidence().blocks().version); }

void BlocksScreen::read() {
  show_note(*gate_, tr("Press \"Read PoD's gate\": its numbers are large."));
  show_note(*rows_, tr("Choose a cell of the enlarged matrix: click it, or move with the arrow "
                       "keys."));
  gate_model_.reset();
  gate_read_.clear();
  take_model(session().evidence().blocks(), model_);
}

void BlocksScreen::compute() {
  BlocksSettings settings = session().choices().blocks;
  settings.length = session().choices().length;
  struct Both {
    BlocksView view;
    Chart enlarged;
  };
  const std::int64_t group = group_of(session().selection().current().head);
  compute_view(
      [model = model_, settings, group] {
        return Both{blocks_view(*model, settings), matrix_chart(*model, settings, group)};
      },
      [this](Both both) {
        view_ = std::move(both.view);
        set_chart(*matrices_, view_.matrices);
        set_chart(*enlarged_, both.enlarged);
        set_chart(*sweep_, view_.sweep);
        set_chart(*counts_, view_.counts);
        compute_gate();
      });
}

void BlocksScreen::show_selection() { compute(); }

void BlocksScreen::show_note(ChartView& view, const QString& text) {
  Chart chart;
  chart.notes.push_back(text.toStdString());
  view.set_chart(chart);
}

void BlocksScreen::read_gate() {
  if (!session().profile() || !model_) return;
  const auto proximal = session().choices().blocks.proximal;
  tabs_->setCurrentIndex(3);
  gate_read_ = str(arrays(), '\n', proximal.initial, ' ', proximal.recent);
  show_note(*gate_, tr("Reading …"));
  session().profile()->read(
      this,
      [positions = model_->positions, proximal](const profile::Reader& profile) {
        return read_gate_model(profile, positions, proximal);
      },
      [this, of = gate_read_](GateModel model) {
        if (of != gate_read_) return;
        gate_model_ = std::make_shared<const GateModel>(std::move(model));
        compute_gate();
      },
      [this, of = gate_read_](const std::string& text) {
        if (of == gate_read_) show_note(*gate_, QString::fromStdString(text));
      });
}

void BlocksScreen::compute_gate() {
  if (!gate_model_ || view_.blocks.empty()) return;
  gate_latest_.request([this, model = gate_model_, blocks = view_.blocks, tau = tau_->value()] {
    auto view = std::make_shared<GateView>(gate_view(*model, blocks, tau));
    return [this, view, model] {
      if (model != gate_model_) return;
      set_chart(*gate_, view->chart);
      emit content_changed();
    };
  });
}

void BlocksScreen::read_pair(std::int64_t layer_a, std::int64_t layer_b) {
  if (!session().profile() || !model_) return;
  pair_ = {layer_a, layer_b};
  tabs_->setCurrentIndex(2);
  const bool per_query_head = session().choices().blocks.per_query_head;
  const auto& selection = session().selection().current();
  const auto head =
      deciding_head(*model_, per_query_head, group_of(selection.head), layer_a, layer_b);
  const int generation = ++pair_generation_;
  session().profile()->read(
      this,
      [positions = model_->positions, wanted = selection.sample, head, layer_a,
       layer_b](const profile::Reader& profile) {
        return pair_rows_chart(profile, sample_with_rows(profile, wanted, positions), head, layer_a,
                               layer_b);
      },
      [this, generation](const Chart& chart) {
        if (generation == pair_generation_) set_chart(*rows_, chart);
      },
      [this, generation](const std::string& text) {
        if (generation == pair_generation_) show_note(*rows_, QString::fromStdString(text));
      });
}

void BlocksScreen::show_choices() {
  const BlocksSettings& blocks = session().choices().blocks;
  const auto gate_of = str(arrays(), '\n', blocks.proximal.initial, ' ', blocks.proximal.recent);
  if (gate_model_ && gate_read_ != gate_of) {
    gate_model_.reset();
    show_note(*gate_, tr("Press \"Read PoD's gate\": its numbers are large."));
  }
}

QString BlocksScreen::focus_text() const {
  if (!message().isEmpty() || !model_ || !session().profile()) return {};
  const auto& selection = session().selection().current();
  const bool by_query_head = session().choices().blocks.per_query_head;
  QString text =
      by_query_head ? tr("head %1, layer %2").arg(selection.head).arg(selection.layer)
                    : tr("KV head %1, layer %2").arg(group_of(selection.head)).arg(selection.layer);
  const auto& shown = by_query_head ? model_->similarity : model_->of_kv_heads;
  const auto [a, b] = pair_;
  if (a < shown.layers && b < shown.layers)
    text += tr("; similarity of layers %1 and %2: %3")
                .arg(a)
                .arg(b)
                .arg(shown.at(group_of(selection.head), a, b), 0, 'f', 3);
  return text;
}

}  // namespace kvatlas::viewer
