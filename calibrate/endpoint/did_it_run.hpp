// SPDX-License-Identifier: Apache-2.0
// Whether a compression that is configured runs at all: what a server's metrics and answers show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/endpoint/pairs.hpp"
#include "calibrate/endpoint/prometheus.hpp"

namespace kvatlas::calibrate {

enum class Seen { seen, not_seen, unknown };
const char* seen_text(Seen seen);  // "seen", "not seen", "cannot be known"

/// One sign, and what it rests on.
struct Sign {
  std::string name;  // "format", "use", "answers"
  Seen seen = Seen::unknown;
  std::string words;
};

/// What a server's metrics say at one time.
struct MetricFacts {
  std::optional<double> capacity = {}, held = {}, running = {}, waiting = {}, preempted = {};
  std::string unit = {};  // what `capacity` and `held` count
  std::string format = {};
};
MetricFacts metric_facts(const ServerTable& server, const std::vector<MetricSample>& samples);

/// What values are stored as, where both say it.
Sign format_sign(const MetricFacts& full, const MetricFacts& compressed);
/// What each held at the end of the same request, in one unit; none: it does not say. `expected` is
/// the share of the full cache that the policy keeps of it by its own count, if it is known.
Sign use_sign(std::optional<double> full, std::optional<double> compressed,
              std::optional<double> expected = std::nullopt);
/// How many answers differ, and how many of the full server's own second answers do.
Sign answer_sign(std::size_t pairs, std::size_t differ, std::size_t controls,
                 std::size_t controls_differ);
/// Seen if one of them is, else not seen if one is that.
Seen seen_of(std::span<const Sign> signs);

/// What one level of load shows of a server.
struct LoadLevel {
  std::int64_t at_a_time = 0;
  std::int64_t tokens = 0;  // generated
  double seconds = 0;
  double most_running = 0, most_waiting = 0, preempted = 0;
  bool refused = false;  // with 429 or 503
};

/// Watches one of two servers from outside. `metrics` may name another address for its metrics.
class ServerWatch {
 public:
  ServerWatch(const ServedSide& side, const std::string& metrics);
  /// None if it publishes none, or does not answer.
  std::optional<MetricFacts> now();
  /// Asks these prompts, all at a time, and looks at the metrics four times a second meanwhile.
  /// `held` becomes what was held last, if it is known: a prompt is held whole before it is cut.
  LoadLevel load(std::span<const ServedPrompt> prompts, std::optional<double>& held);

 private:
  const ServedSide& side_;
  HttpPlace metrics_;
};

}  // namespace kvatlas::calibrate
