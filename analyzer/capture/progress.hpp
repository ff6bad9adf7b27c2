// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace kvatlas::capture {

/// A duration for people: "3 h 20 min", "4 min 5 s", "12 s".
std::string duration_str(double seconds);

/// Shows the progress of a profile on stderr. On a terminal this is one line that is written over;
/// elsewhere it is a line for each finished sample, but at most one in ten seconds.
class Progress {
 public:
  /// `tokens` is the number of tokens of all samples that are to be run.
  Progress(std::int64_t samples, std::int64_t tokens, std::int64_t layers);
  ~Progress();

  void layer(std::int64_t layers_done, std::int64_t batch_tokens);
  void sample(std::int64_t tokens, std::int64_t samples = 1);
  double seconds() const;

 private:
  void show(bool at_sample);

  std::mutex mutex_;  // samples of other ranks are reported from another thread
  bool terminal_;
  std::int64_t samples_, tokens_, layers_;
  std::int64_t samples_done_ = 0, tokens_done_ = 0;
  std::int64_t layers_done_ = 0, batch_tokens_ = 0;
  std::chrono::steady_clock::time_point start_, shown_;
  bool line_open_ = false;
};

}  // namespace kvatlas::capture
