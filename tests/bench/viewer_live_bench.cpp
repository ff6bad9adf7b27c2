// SPDX-License-Identifier: Apache-2.0
// How long a move of a handle takes until the screen is painted anew: 80 layers, 64 heads, 8 KV
// heads, 64 samples; software rendering, no display. `bench_viewer_live [moves]`.
#include <QApplication>
#include <QElapsedTimer>
#include <QTemporaryDir>
#include <QTest>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "tests/bench/bench_program.hpp"
#include "tests/support/profile_header.hpp"
#include "viewer/screens/blocks_screen.hpp"
#include "viewer/screens/lazy_screen.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::viewer;

constexpr std::int64_t kLayers = 80, kHeads = 64, kKvHeads = 8, kSamples = 64, kTokens = 300;
constexpr double kGoal = 50;  // ms

double wave(std::size_t i, double period) {
  return 0.5 + 0.5 * std::sin(static_cast<double>(i) / period);
}

profile::Array filled(std::vector<std::int64_t> sizes, double period) {
  profile::Array array(profile::Type::f32, std::move(sizes));
  auto values = array.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(wave(i, period));
  return array;
}

void write_profile(const std::filesystem::path& path) {
  profile::CaptureSettings settings;
  settings.scores = settings.kept = settings.norms = settings.next = false;
  settings.columns = settings.maps = false;
  settings.proximities = {{4, 64}};
  settings.mass_rows = 1;
  settings.generated = 8;
  const auto header = testing_support::header_of(
      {.layers = kLayers, .heads = kHeads, .kv_heads = kKvHeads, .head_dim = 128, .name = "large"},
      settings, kSamples);
  profile::Writer writer(path, header, {});
  namespace name = profile::name;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    profile::Sample sample;
    sample.index = i;
    sample.id = "sample " + std::to_string(i);
    sample.task = "needle";
    sample.tokens.assign(kTokens, 1);
    const double period = 40 + static_cast<double>(i);
    sample.arrays[name::kDecodeMass] = filled({1, kLayers, kHeads}, period * 3);
    sample.arrays[name::kGeneratedMass] = filled({1, kLayers, 8}, period);
    if (i < 2) {
      auto& divergence = sample.arrays[name::kDivergence] =
          filled({kHeads, kLayers, kLayers}, period * 1000);
      auto values = divergence.values<float>();
      for (std::int64_t at = 0; at < kHeads * kLayers * kLayers; ++at)
        if (at / kLayers % kLayers == at % kLayers) values[at] = 0;
    }
    writer.add(sample);
  }
  writer.finish();
}

/// From the change of the choices until the last paint of what follows from it.
template <class Set>
double one_move(LiveScreen& screen, Session& session, Set set) {
  QElapsedTimer timer;
  timer.start();
  Choices choices = session.choices();
  set(choices);
  session.change(QStringLiteral("bench"), choices, true);
  if (!QTest::qWaitFor([&] { return screen.settled(); }, 30000))
    fail(ErrorCode::internal, "the screen does not settle");
  QPixmap painted(screen.size());
  screen.render(&painted);
  return static_cast<double>(timer.nsecsElapsed()) / 1e6;
}

template <class Set>
void measure(const char* what, LiveScreen& screen, Session& session, int moves, Set set) {
  screen.resize(1280, 720);
  screen.show();
  if (!QTest::qWaitFor([&] { return screen.settled(); }, 120000))
    fail(ErrorCode::internal, "the screen does not settle");
  if (!screen.message().isEmpty()) fail(ErrorCode::internal, screen.message().toStdString());
  std::vector<double> times;
  for (int move = 0; move < moves; ++move)
    times.push_back(one_move(screen, session, [&](Choices& choices) {
      set(choices, 0.3 + 0.4 * static_cast<double>(move) / moves);
    }));
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[std::min(times.size() - 1,
                          static_cast<std::size_t>(part * static_cast<double>(times.size())))];
  };
  std::printf("%-28s median %6.1f ms, 95 %% %6.1f ms, worst %6.1f ms (95 %% at most %.0f: %s)\n",
              what, at(0.5), at(0.95), times.back(), kGoal, at(0.95) <= kGoal ? "met" : "MISSED");
  screen.hide();
}

void run(int argc, char** argv) {
  const int moves = argc > 1 ? std::max(1, std::atoi(argv[1])) : 100;
  if (!qEnvironmentVariableIsSet("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication application(argc, argv);
  const QTemporaryDir folder;
  const std::filesystem::path path = folder.filePath(QStringLiteral("large.h5")).toStdString();
  write_profile(path);
  Session session;
  session.open({path});
  if (!QTest::qWaitFor([&] { return session.profile() != nullptr; }, 30000))
    fail(ErrorCode::internal, "the profile does not open");
  std::printf("delta to repaint at %d layers x %d heads, 1280 x 720, software rendering\n",
              static_cast<int>(kLayers), static_cast<int>(kHeads));
  LazyScreen lazy(session, nullptr);
  const auto threshold = [](Choices& choices, double at) { choices.lazy.threshold = at; };
  measure("lazy layers", lazy, session, moves, threshold);
  Choices choices = session.choices();
  choices.lazy.per_head = true;
  session.change(QStringLiteral("bench"), choices);
  measure("lazy KV heads", lazy, session, moves, threshold);
  BlocksScreen blocks(session, nullptr);
  const auto delta = [](Choices& changed, double at) { changed.blocks.delta = at; };
  measure("blocks of KV heads", blocks, session, moves, delta);
  choices = session.choices();
  choices.blocks.per_query_head = true;
  session.change(QStringLiteral("bench"), choices);
  measure("blocks of query heads", blocks, session, moves, delta);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_bench(run, argc, argv); }
