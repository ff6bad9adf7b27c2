// SPDX-License-Identifier: Apache-2.0
// Orders the heads of the chosen sample by a measure of their maps.
#pragma once

#include <QObject>
#include <memory>
#include <optional>
#include <vector>

#include "viewer/maps/head_measures.hpp"
#include "viewer/screens/grid_layout.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

class HeadOrder : public QObject {
  Q_OBJECT

 public:
  enum class By : std::uint8_t { index, sink, recency, entropy, likeness };

  HeadOrder(Session& session, QObject* parent);

  void set_by(By by);
  By by() const { return by_; }
  /// The heads with the greatest first; empty if they are ordered by index or while the measures
  /// are read.
  std::vector<GridLayout::Place> places() const;
  /// The measures of the chosen sample by layer * heads + head; nullptr if they are not read.
  const std::vector<HeadMeasures>* measures() const { return measures_.get(); }
  /// Has the measures read if they are not; changed() follows.
  void need_measures();

 signals:
  void changed();

 private:
  void forget();

  Session& session_;
  By by_ = By::index;
  std::shared_ptr<const std::vector<HeadMeasures>> measures_;
  /// The sample whose measures are read or being read.
  std::optional<std::size_t> measured_sample_;
};

}  // namespace kvatlas::viewer
