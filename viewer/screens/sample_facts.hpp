// SPDX-License-Identifier: Apache-2.0
// The tokens of the chosen sample, for the frame; read off the UI thread.
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

  const std::vector<std::int32_t>& tokens() const { return tokens_; }     // empty: not read yet
  const std::vector<std::string>& token_texts() const { return texts_; }  // or not stored

 signals:
  void tokens_changed();

 private:
  void read_tokens();

  Session& session_;
  std::optional<std::size_t> sample_;  // that `tokens_` are of
  std::vector<std::int32_t> tokens_;
  std::vector<std::string> texts_;
};

}  // namespace kvatlas::viewer
