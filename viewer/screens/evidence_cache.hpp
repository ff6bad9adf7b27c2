// SPDX-License-Identifier: Apache-2.0
// What the session's profile says about the methods at the present choices. It is read once for all
// screens and the frame, and this class alone decides when it must be read again.
#pragma once

#include <QObject>
#include <cstdint>
#include <string>
#include <vector>

#include "base/str.hpp"
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
    int version = 0;  // grows whenever a reading begins or ends
    /// Names the opened files and the choices that it is read for; a change makes it stale.
    std::string of;
    const OrReason<Model>& known() const { return *this; }
    bool is_read() const { return this->model || !this->reason.empty(); }
  };
  const Kept<LazyModel>& lazy() const { return lazy_; }
  const Kept<BlocksModel>& blocks() const { return blocks_; }
  const Kept<BudgetsModel>& budgets() const { return budgets_; }
  bool is_read() const { return lazy_.is_read() && blocks_.is_read() && budgets_.is_read(); }
  /// Changes whenever the reading of a model begins or ends.
  std::string versions() const {
    return str(lazy_.version, ' ', blocks_.version, ' ', budgets_.version);
  }
  MethodModels models() const { return {lazy_.known(), blocks_.known(), budgets_.known()}; }

  /// What the methods decide about the layers; empty until that is known for the first time.
  const std::vector<LayerDecision>& layers() const { return layers_; }
  /// The decision about one layer; one with nothing known if there is no such layer.
  LayerDecision layer(std::int64_t layer) const;
  LayerWords words() const;

 signals:
  void changed();  // a model has arrived, or is being read again
  void layers_changed();

 private:
  void open();
  void refresh_stale();
  /// Reads a model if it is stale, and says whether it was.
  template <class Model, class Read>
  bool refresh(Kept<Model>& kept, const std::string& choices, Read read);
  void decide();

  Session& session_;
  int opened_ = 0;  // counts how often the profile or the documents have changed
  Kept<LazyModel> lazy_;
  Kept<BlocksModel> blocks_;
  Kept<BudgetsModel> budgets_;
  std::vector<LayerDecision> layers_;
  Latest latest_;  // declared last, so that its thread ends first
};

}  // namespace kvatlas::viewer
