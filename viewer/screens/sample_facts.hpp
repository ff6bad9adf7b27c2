// SPDX-License-Identifier: Apache-2.0
// The tokens of the chosen sample, which the frame shows. They are read outside the UI thread.
#pragma once

#include <QObject>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

class SampleFacts : public QObject {
  Q_OBJECT

 public:
  SampleFacts(Session& session, QObject* parent);

  /// Empty if they are not read yet.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Empty also if they were not stored.
  const std::vector<std::string>& token_texts() const { return texts_; }

 signals:
  void tokens_changed();

 private:
  void read_tokens();

  Session& session_;
  std::optional<std::size_t> sample_;  // the sample that the tokens belong to
  std::vector<std::int32_t> tokens_;
  std::vector<std::string> texts_;
};

}  // namespace kvatlas::viewer
