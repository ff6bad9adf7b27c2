// SPDX-License-Identifier: Apache-2.0
// From a move of a threshold to what is seen, on a model of 80 layers and 64 heads, drawn by the
// processor: the rules, the chart, its drawing. Prints a line a screen, with the goal.
//
//   QT_QPA_PLATFORM=offscreen bench_viewer [MOVES]
#include <QApplication>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/base/str.hpp"
#include "tests/bench/bench_program.hpp"
#include "viewer/draw/chart_view.hpp"
#include "viewer/models/blocks_model.hpp"
#include "viewer/models/lazy_model.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::viewer;

constexpr std::int64_t kLayers = 80, kHeads = 64, kKvHeads = 8, kSamples = 100;
constexpr double kGoal = 50;  // milliseconds

/// Numbers from 0 to 1 without a pattern, the same in every run.
double noise(std::int64_t i) {
  const double x = std::sin(static_cast<double>(i) * 12.9898) * 43758.5453;
  return x - std::floor(x);
}

LazyModel lazy_model() {
  LazyModel model;
  model.shape = {kLayers, kKvHeads, 128};
  for (std::int64_t s = 0; s < kSamples; ++s) {
    std::vector<std::vector<double>> heads(kLayers, std::vector<double>(kKvHeads));
    std::vector<double> layers(kLayers);
    for (std::int64_t l = 0; l < kLayers; ++l)
      for (std::int64_t h = 0; h < kKvHeads; ++h) {
        const double mass = 0.5 + 0.5 * noise(l) * noise(s * 7919 + l * 31 + h);
        heads[static_cast<std::size_t>(l)][static_cast<std::size_t>(h)] = mass;
        layers[static_cast<std::size_t>(l)] += mass / kKvHeads;
      }
    model.masses.heads.push_back(std::move(heads));
    model.masses.layers.push_back(std::move(layers));
    model.positions.push_back(static_cast<std::size_t>(s));
    model.names.push_back(str("sample ", s));
  }
  return model;
}

BlocksModel blocks_model() {
  BlocksModel model;
  model.shape = {kLayers, kKvHeads, 128};
  model.similarity = {kHeads, kLayers, {}};
  for (std::int64_t h = 0; h < kHeads; ++h)
    for (std::int64_t a = 0; a < kLayers; ++a)
      for (std::int64_t b = 0; b < kLayers; ++b)
        model.similarity.values.push_back(
            a == b ? 1
                   : std::exp(-0.1 * static_cast<double>(std::abs(a - b))) *
                         (0.6 + 0.4 * noise(h * 6400 + std::min(a, b) * 80 + std::max(a, b))));
  model.of_kv_heads = calibrate::of_kv_heads(model.similarity, kKvHeads);
  model.by_kv_head = calibrate::pod_hundredths(model.similarity, kKvHeads, false);
  model.by_query_head = calibrate::pod_hundredths(model.similarity, kKvHeads, true);
  return model;
}

/// Moves a threshold up and down; `chart_at` makes the charts at a setting.
template <class Show>
void measure(const char* name, int moves, Show show) {
  std::vector<double> times;
  for (int i = 0; i < moves + 3; ++i) {
    const double setting = 0.5 + 0.45 * std::sin(0.37 * i);
    const auto start = std::chrono::steady_clock::now();
    show(setting);
    QCoreApplication::processEvents();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i >= 3) times.push_back(took.count());  // the first build series and images
  }
  std::sort(times.begin(), times.end());
  std::printf("%-34s median %6.1f ms, worst %6.1f ms, goal %.0f ms\n", name,
              times[times.size() / 2], times.back(), kGoal);
}

void prepare(ChartView& view, const Theme& theme, const QSize& size) {
  view.set_theme(theme);
  view.resize(size);
  view.show();
}

void run(int argc, char** argv) {
  const int moves = argc > 1 ? std::stoi(argv[1]) : 100;
  const QApplication application(argc, argv);
  const Theme theme = make_theme(false, QFont("DejaVu Sans", 10));
  std::printf("%lld layers, %lld heads, %lld samples; widgets of 1000 x 700, scale 1\n",
              static_cast<long long>(kLayers), static_cast<long long>(kHeads),
              static_cast<long long>(kSamples));
  {
    ChartView layers, scores;
    prepare(layers, theme, {1000, 350});
    prepare(scores, theme, {1000, 350});
    const LazyModel model = lazy_model();
    LazySettings settings;
    settings.length = 32768;
    measure("threshold: layers and scores", moves, [&](double at) {
      settings.threshold = at;
      const LazyView view = lazy_view(model, settings);
      layers.set_chart(view.layers);
      scores.set_chart(view.scores);
      layers.repaint();
      scores.repaint();
    });
  }
  const BlocksModel model = blocks_model();
  BlocksSettings settings;
  settings.length = 32768;
  settings.per_query_head = true;
  ChartView matrices, sweep;
  prepare(matrices, theme, {1000, 700});
  prepare(sweep, theme, {1000, 350});
  measure("delta: all 64 matrices", moves, [&](double at) {
    settings.delta = at;
    matrices.set_chart(blocks_view(model, settings).matrices);
    matrices.repaint();
  });
  measure("delta: matrices and sweep", moves, [&](double at) {
    settings.delta = at;
    const BlocksView view = blocks_view(model, settings);
    matrices.set_chart(view.matrices);
    sweep.set_chart(view.sweep);
    matrices.repaint();
    sweep.repaint();
  });
  const BlocksView view = blocks_view(model, settings);
  measure("delta: drawing alone, matrices", moves, [&](double at) {
    Chart chart = view.matrices;
    chart.marks[0].at = at;
    matrices.set_chart(chart);
    matrices.repaint();
  });
}

}  // namespace

int main(int argc, char** argv) { return kvatlas::bench::run_bench(run, argc, argv); }
