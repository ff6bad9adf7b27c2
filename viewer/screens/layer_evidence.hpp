// SPDX-License-Identifier: Apache-2.0
// What the present choices make of each layer, from what the profile has.
#pragma once

#include <QObject>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/screens/session.hpp"
#include "viewer/threads/latest.hpp"

namespace kvatlas::viewer {

/// The strip at the left of the grid shows it.
struct LayerNote {
  std::optional<bool> lazy;
  std::int64_t budget = -1;  // tokens; -1: not known
  std::string blocks;        // "4/9": so many of its heads begin a block of PoD
};

/// Follows the session: its profile, documents and choices.
class LayerEvidence : public QObject {
  Q_OBJECT

 public:
  LayerEvidence(Session& session, QObject* parent);

  /// A note a layer; empty while nothing is known.
  const std::vector<LayerNote>& notes() const { return notes_; }
  /// Of a layer; nothing known of one that there is not.
  LayerNote note(std::int64_t layer) const;

 signals:
  void changed();

 private:
  /// Arrays of the profile; what it lacks is missing.
  struct Arrays {
    std::optional<LazyModel> lazy;
    std::optional<BudgetsModel> budgets;
    std::optional<BlocksModel> blocks;
  };
  void read();
  void choices_changed();
  void make_notes();

  Session& session_;
  std::shared_ptr<const Arrays> arrays_;
  Choices read_for_;
  std::vector<LayerNote> notes_;
  Latest latest_;
};

}  // namespace kvatlas::viewer
