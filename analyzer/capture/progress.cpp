// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/progress.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <unistd.h>

#include "base/str.hpp"

namespace kvatlas::capture {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNoTime = 1e-3;  // seconds

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string duration_str(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return str(whole, " s");
  if (whole < 3600) return str(whole / 60, " min ", whole % 60, " s");
  return str(whole / 3600, " h ", whole % 3600 / 60, " min");
}

Progress::Progress(std::int64_t samples, std::int64_t tokens, std::int64_t layers)
    : terminal_(isatty(STDERR_FILENO) == 1),
      samples_(samples),
      tokens_(tokens),
      layers_(layers),
      start_(Clock::now()),
      shown_(start_) {}

Progress::~Progress() {
  if (line_open_) std::cerr << '\n';
}

double Progress::seconds() const { return since(start_); }

void Progress::layer(std::int64_t layers_done, std::int64_t batch_tokens) {
  const std::lock_guard lock(mutex_);
  layers_done_ = layers_done;
  batch_tokens_ = batch_tokens;
  if (terminal_ && since(shown_) >= 0.1) show(false);
}

void Progress::sample(std::int64_t tokens, std::int64_t samples) {
  const std::lock_guard lock(mutex_);
  samples_done_ += samples;
  tokens_done_ += tokens;
  batch_tokens_ = std::max<std::int64_t>(0, batch_tokens_ - tokens);
  // All that ends in no time was known before, and nothing was run.
  const bool ended = samples_done_ == samples_ && since(start_) >= kNoTime;
  if (ended || since(shown_) >= (terminal_ ? 0.1 : 10)) show(true);
}

void Progress::show(bool at_sample) {
  shown_ = Clock::now();
  const double seconds = since(start_);
  const double part = static_cast<double>(batch_tokens_) * static_cast<double>(layers_done_) /
                      static_cast<double>(layers_);
  const double done =
      std::min(static_cast<double>(tokens_done_) + part, static_cast<double>(tokens_));
  const double share = tokens_ > 0 ? done / static_cast<double>(tokens_) : 1;
  const double rate = done / std::max(seconds, kNoTime);
  std::string text = str(samples_done_, "/", samples_, " samples");
  if (!at_sample && samples_done_ < samples_) text += str(", layer ", layers_done_, "/", layers_);
  text += str(", ", static_cast<std::int64_t>(rate), " tokens/s");
  text += samples_done_ < samples_ && share > 0
              ? ", " + duration_str(seconds * (1 - share) / share) + " left"
              : ", " + duration_str(seconds);
  if (!terminal_) {
    std::cerr << "kvatlas: " << text << '\n';
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(share * kWidth);
  std::cerr << "\r[" << std::string(static_cast<std::size_t>(filled), '#')
            << std::string(static_cast<std::size_t>(kWidth - filled), '.') << "] " << text
            << "\033[K" << std::flush;
  line_open_ = true;
}

}  // namespace kvatlas::capture
