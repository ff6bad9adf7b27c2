// SPDX-License-Identifier: Apache-2.0
// Which texts a document may be judged by: those that did not calibrate it (docs/certainty.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/search/evaluate.hpp"

namespace kvatlas::calibrate {

/// The texts that calibrated the documents that are judged.
class CalibrationTexts {
 public:
  void add(const std::string& document, const Provenance& provenance);

  /// The seed behind all those that calibrated; 0 if none is known.
  std::int64_t first_fresh_seed() const;
  /// Error(usage) for a question whose seed calibrated a document, and, unless `may_repeat`, for
  /// one of the user's own.
  void require_fresh(std::span<const Question> questions, bool may_repeat) const;
  /// How many of the texts calibrated none of the documents. None if a document does not say what
  /// calibrated it, or if there is no calibrated one.
  std::optional<std::size_t> count_fresh(std::span<const Question> questions) const;
  /// The same in words, without a full stop; empty if there is no calibrated document.
  std::string fresh_text(std::span<const Question> questions) const;

 private:
  struct Origin {
    std::string document;
    Provenance from;
  };
  /// The document that the question calibrated.
  const Origin* calibrated_by(const Question& question) const;

  std::vector<Origin> origins_;
};

}  // namespace kvatlas::calibrate
