// SPDX-License-Identifier: Apache-2.0
// What the session's profile says of the methods at the present choices, read once for every screen
// and for the frame. It is the only one to judge whether a reading is stale.
#pragma once

#include <QObject>
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/models/layer_decisions.hpp"
#include "viewer/threads/latest.hpp"

namespace kvatlas::viewer {

class Session;

class EvidenceCache : public QObject {
  Q_OBJECT

 public:
  explicit EvidenceCache(Session& session);

  template <class Model>
  struct Kept : OrReason<Model> {
    int version = 0;  // another one with each model, each reason and each beginning of a reading
    std::string of;   // the opened files and the choices that it was, or is being, read for
    bool is_read() const { return this->model || !this->reason.empty(); }
  };
  const Kept<LazyModel>& lazy() const { return lazy_; }
  const Kept<BlocksModel>& blocks() const { return blocks_; }
  const Kept<BudgetsModel>& budgets() const { return budgets_; }
  bool is_read() const { return lazy_.is_read() && blocks_.is_read() && budgets_.is_read(); }
  MethodModels models() const { return {lazy_, blocks_, budgets_}; }

  /// What the choices make of the layers; empty until that is known for the first time.
  const std::vector<LayerDecision>& layers() const { return layers_; }
  /// That of one layer; nothing is known of a layer that there is not.
  LayerDecision layer(std::int64_t layer) const;
  LayerWords words() const;

 signals:
  void changed();  // a model has come, or is being read anew
  void layers_changed();

 private:
  void open();
  void refresh_stale();
  /// Whether it was stale.
  template <class Model, class Read>
  bool refresh(Kept<Model>& kept, const std::string& choices, Read read);
  void decide();

  Session& session_;
  int opened_ = 0;  // how often the profile or the documents have changed
  Kept<LazyModel> lazy_;
  Kept<BlocksModel> blocks_;
  Kept<BudgetsModel> budgets_;
  std::vector<LayerDecision> layers_;
  Latest latest_;  // last: its thread ends first
};

}  // namespace kvatlas::viewer
