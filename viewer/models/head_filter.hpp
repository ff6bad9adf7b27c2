// SPDX-License-Identifier: Apache-2.0
// Which heads of a grid are shown: "not lazy L10-L20 sink>0.5".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvatlas::viewer {

/// What is known of a head and its layer.
struct HeadFacts {
  std::int64_t layer = 0, head = 0;
  std::optional<bool> lazy;
  std::optional<double> budget;  // tokens that DynamicKV gives the layer
  std::optional<double> sink, recency, entropy;
};

class HeadFilter {
 public:
  /// Words between spaces or commas, all of which must hold: lazy, L10, L10-L20, H0-H3, and sink,
  /// recency, entropy or budget with >, <, >= or <= and a number; "not" before one turns it round.
  /// An empty text lets all through. Error(usage) for a word that is none of these.
  explicit HeadFilter(const std::string& text = {});

  bool empty() const { return terms_.empty(); }
  /// Whether the filter asks for sink, recency or entropy, which have to be read first.
  bool needs_measures() const { return needs_measures_; }
  /// A word about something that is not known does not hold, and neither does its opposite.
  bool matches(const HeadFacts& facts) const;

 private:
  using Holds = std::function<std::optional<bool>(const HeadFacts&)>;
  struct Term {
    bool negated = false;
    Holds holds;
  };
  Holds parse(const std::string& word);
  Holds parse_range(const std::string& word) const;
  Holds parse_comparison(const std::string& word);

  std::vector<Term> terms_;
  bool needs_measures_ = false;
};

}  // namespace kvatlas::viewer
