// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/prometheus.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr std::size_t kMostLines = 1'000'000, kMostLabels = 256;

bool is_blank_of_line(char c) { return c == ' ' || c == '\t'; }

/// Reads a line of samples from its front.
class SampleLine {
 public:
  explicit SampleLine(std::string_view line) : rest_(line) {}

  std::optional<MetricSample> read() {
    MetricSample sample;
    blanks();
    sample.name = name();
    if (sample.name.empty()) return std::nullopt;
    blanks();
    if (take('{') && !labels(sample)) return std::nullopt;
    blanks();
    const std::size_t end = std::min(rest_.find_first_of(" \t"), rest_.size());
    std::string_view number = rest_.substr(0, end);
    if (number.starts_with('+')) number.remove_prefix(1);
    const auto [stop, error] =
        std::from_chars(number.data(), number.data() + number.size(), sample.value);
    if (number == "Inf" || number == "-Inf")
      sample.value = (number[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
    else if (number == "NaN")
      sample.value = std::numeric_limits<double>::quiet_NaN();
    else if (number.empty() || error != std::errc() || stop != number.data() + number.size())
      return std::nullopt;
    return sample;  // a time may follow
  }

 private:
  void blanks() {
    while (!rest_.empty() && is_blank_of_line(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string name() {
    const auto is_part = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == ':';
    };
    const auto* const end = std::find_if_not(rest_.begin(), rest_.end(), is_part);
    std::string found(rest_.begin(), end);
    rest_.remove_prefix(found.size());
    if (!found.empty() && found[0] >= '0' && found[0] <= '9') found.clear();
    return found;
  }
  bool labels(MetricSample& sample) {
    for (std::size_t count = 0; count <= kMostLabels; ++count) {
      blanks();
      if (take('}')) return true;
      const std::string label = name();
      blanks();
      if (label.empty() || !take('=')) return false;
      blanks();
      if (!take('"')) return false;
      std::string value;
      while (!rest_.empty() && rest_.front() != '"') {
        char c = rest_.front();
        rest_.remove_prefix(1);
        if (c == '\\') {
          if (rest_.empty()) return false;
          c = rest_.front() == 'n' ? '\n' : rest_.front();
          rest_.remove_prefix(1);
        }
        value += c;
      }
      if (!take('"')) return false;
      sample.labels[label] = std::move(value);
      blanks();
      take(',');
    }
    return false;
  }

  std::string_view rest_;
};

}  // namespace

std::vector<MetricSample> parse_metrics(std::string_view text) {
  std::vector<MetricSample> samples;
  for (std::size_t lines = 0; !text.empty(); ++lines) {
    if (lines == kMostLines)
      fail(ErrorCode::unreadable, "the metrics have more than ", kMostLines, " lines");
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (auto sample = SampleLine(line).read()) samples.push_back(std::move(*sample));
  }
  return samples;
}

std::optional<double> metric_sum(const std::vector<MetricSample>& samples, std::string_view name) {
  std::optional<double> sum;
  for (const auto& sample : samples)
    if (sample.name == name && std::isfinite(sample.value)) sum = sum.value_or(0) + sample.value;
  return sum;
}

std::string metric_label(const std::vector<MetricSample>& samples, std::string_view name,
                         const std::string& label) {
  for (const auto& sample : samples)
    if (sample.name == name)
      if (const auto found = sample.labels.find(label); found != sample.labels.end())
        return found->second;
  return {};
}

}  // namespace kvatlas::calibrate
