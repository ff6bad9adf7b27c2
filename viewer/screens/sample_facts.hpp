// SPDX-License-Identifier: Apache-2.0
// What the frame knows beside the screens: tokens of the chosen sample, and what layers are called
// for. Read and computed off the UI thread.
#pragma once

#include <QObject>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/screens/session.hpp"
#include "viewer/threads/latest.hpp"

namespace kvatlas::viewer {

class SampleFacts : public QObject {
  Q_OBJECT

 public:
  SampleFacts(Session& session, QObject* parent);

  const std::vector<std::int32_t>& tokens() const { return tokens_; }     // empty: not read yet
  const std::vector<std::string>& token_texts() const { return texts_; }  // or not stored
  using Predicates = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
  /// "lazy", "near half" at the present settings; "windowed" and "full" by the model.
  const Predicates& predicates() const { return predicates_; }

 signals:
  void tokens_changed();
  void predicates_changed();

 private:
  void read_tokens();
  void read_lazy();
  void compute_lazy();

  Session& session_;
  std::optional<std::size_t> sample_;  // that `tokens_` are of
  std::vector<std::int32_t> tokens_;
  std::vector<std::string> texts_;
  Predicates predicates_, of_model_;
  std::shared_ptr<const LazyModel> lazy_;
  std::uint64_t reading_ = 0;  // the newest of the readings of `lazy_`
  std::string read_for_;
  Latest latest_;
};

}  // namespace kvatlas::viewer
