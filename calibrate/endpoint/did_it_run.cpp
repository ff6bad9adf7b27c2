// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/did_it_run.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/rules/certainty.hpp"

namespace kvatlas::calibrate {
namespace {

// A cache that holds a tenth less is more than the rounding to blocks.
constexpr double kLeastSaved = 0.1;
constexpr auto kBetweenLooks = std::chrono::milliseconds(250);

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

const char* seen_text(Seen seen) {
  return seen == Seen::seen ? "seen" : seen == Seen::not_seen ? "not seen" : "cannot be known";
}

MetricFacts metric_facts(const ServerTable& server, const std::vector<MetricSample>& samples) {
  const ServerMetrics& names = server.metrics;
  MetricFacts facts;
  if (names.capacity_label.empty()) {
    facts.capacity = metric_sum(samples, names.capacity);
    facts.unit = names.capacity;
  }
  for (const std::string& label :
       {std::string(names.capacity_label), std::string(names.capacity_label_else)}) {
    if (label.empty() || facts.capacity) continue;
    const double capacity =
        std::strtod(metric_label(samples, names.capacity, label).c_str(), nullptr);
    if (!(capacity > 0) || !std::isfinite(capacity)) continue;
    facts.capacity = capacity;
    facts.unit = label;
  }
  facts.format =
      printable(metric_label(samples, names.format, std::string(names.format_label)), 60);
  facts.held = metric_sum(samples, names.held);
  if (const auto share = metric_sum(samples, names.held_share); share && facts.capacity)
    facts.held = *share * *facts.capacity;
  facts.running = metric_sum(samples, names.running);
  facts.waiting = metric_sum(samples, names.waiting);
  facts.preempted = metric_sum(samples, names.preempted);
  return facts;
}

Sign format_sign(const MetricFacts& full, const MetricFacts& compressed) {
  if (full.format.empty() || compressed.format.empty())
    return {"format", Seen::unknown, "what values are stored as is not said"};
  if (full.format == compressed.format)
    return {"format", Seen::unknown,
            str("both store values as ", quoted(full.format), ", as policies that cut do too")};
  return {"format", Seen::seen,
          str("values are stored as ", quoted(compressed.format), ", on the full server as ",
              quoted(full.format))};
}

Sign use_sign(std::optional<double> full, std::optional<double> compressed,
              std::optional<double> expected) {
  if (!full || !compressed || !(*full > 0))
    return {"use", Seen::unknown, "how much of its cache is in use is not said by both"};
  std::string words = str("at the end of the same request it holds ",
                          percent_text(*compressed / *full), " of what the full server holds");
  if (expected) words += str(", by the policy's own count ", percent_text(*expected));
  if (*compressed <= (1 - kLeastSaved) * *full) return {"use", Seen::seen, words};
  return {"use", Seen::not_seen, words};
}

Sign answer_sign(std::size_t pairs, std::size_t differ, std::size_t controls,
                 std::size_t controls_differ) {
  if (pairs == 0) return {"answers", Seen::unknown, "there are no answers"};
  const std::string words = str(differ, " of ", pairs, " answers differ from the full server's",
                                controls > 0 ? str(", as do ", controls_differ, " of ", controls,
                                                   " that the full server gave twice")
                                             : "");
  // One-sided ends that hold together with 95 %.
  const auto share = [](std::size_t hits, std::size_t count) {
    return binomial_mean(static_cast<std::int64_t>(hits), static_cast<std::int64_t>(count));
  };
  if (differ == 0)
    return {"answers", Seen::not_seen,
            str(words, ": with 95 % certainty fewer than ",
                percent_text(1 - std::pow(0.05, 1 / static_cast<double>(pairs))), " of all do")};
  if (controls == 0)
    return {"answers", Seen::unknown, words + "; without --control batching alone may do that"};
  if (share(differ, pairs).low > share(controls_differ, controls).high)
    return {"answers", Seen::seen, words};
  return {"answers", Seen::unknown, words + ", which batching alone may do"};
}

Seen seen_of(std::span<const Sign> signs) {
  const auto any = [&](Seen seen) {
    return std::any_of(signs.begin(), signs.end(),
                       [&](const Sign& sign) { return sign.seen == seen; });
  };
  return any(Seen::seen) ? Seen::seen : any(Seen::not_seen) ? Seen::not_seen : Seen::unknown;
}

ServerWatch::ServerWatch(const ServedSide& side, const std::string& metrics)
    : side_(side), metrics_(side.place) {
  metrics_.seconds = 10;
  if (metrics.empty()) return;
  metrics_.url = in_context("--metrics-url", [&] { return parse_server_url(metrics); });
  metrics_.key = {};  // another server, maybe another owner
  const std::string_view path = side.server.metrics.path;
  if (!path.empty() && metrics_.url.text.ends_with(path))
    metrics_.url.text.resize(metrics_.url.text.size() - path.size());
}

std::optional<MetricFacts> ServerWatch::now() {
  if (side_.server.metrics.path.empty()) return std::nullopt;
  HttpConnection connection(metrics_);
  HttpConnection::Request request;
  request.path = side_.server.metrics.path;
  request.retries = 0;
  const HttpAnswer got = connection.send(request);
  if (!got.trouble.empty() || got.status != 200) return std::nullopt;
  return metric_facts(side_.server, parse_metrics(got.body));
}

LoadLevel ServerWatch::load(std::span<const ServedPrompt> prompts, std::optional<double>& held) {
  LoadLevel level;
  level.at_a_time = std::ssize(prompts);
  const auto before = now();
  std::mutex mutex;
  std::exception_ptr first;
  std::atomic<std::size_t> running{prompts.size()};
  std::vector<std::thread> threads;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        HttpConnection connection(side_.place);
        AskOptions options;
        options.model = side_.facts.model;
        options.ignore_end = !side_.server.ignore_end.empty();
        options.salt = str("kvatlas-load-", start.time_since_epoch().count(), '-', i);
        const ServedAnswer answer =
            calibrate::ask(connection, side_.server, prompts[i], options, side_.place.key);
        const std::lock_guard lock(mutex);
        level.refused |= answer.status == 429 || answer.status == 503;
        level.tokens += answer.new_tokens.value_or(static_cast<std::int64_t>(answer.ids.size()));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      --running;
    });
  try {
    while (running > 0) {
      std::this_thread::sleep_for(kBetweenLooks);
      const auto facts = now();
      if (!facts) continue;
      if (facts->held > 0) held = facts->held;
      level.most_running = std::max(level.most_running, facts->running.value_or(0));
      level.most_waiting = std::max(level.most_waiting, facts->waiting.value_or(0));
      if (before && facts->preempted && before->preempted)
        level.preempted = std::max(level.preempted, *facts->preempted - *before->preempted);
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
  }
  for (auto& thread : threads) thread.join();
  level.seconds = seconds_since(start);
  if (first) std::rethrow_exception(first);
  return level;
}

}  // namespace kvatlas::calibrate
