// SPDX-License-Identifier: Apache-2.0
// What is marked on a map at the present choices: windows, partitions, and keys that a policy
// keeps.
#pragma once

#include <QObject>
#include <string>
#include <vector>

#include "viewer/screens/map_view.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

class MapOverlays : public QObject {
  Q_OBJECT

 public:
  MapOverlays(Session& session, QObject* parent);

  void set_window(bool shown);
  void set_partitions(bool shown);
  void set_token_texts(bool shown);
  /// The row of the profile's axis of selections whose kept keys are marked; -1 for none.
  void set_kept_by(int selection);
  int kept_by() const { return kept_by_; }
  /// Reads the kept keys again; to be called when another layer or head is chosen.
  void read_kept();

  /// What is marked on the map of the chosen head.
  MapView::Overlays overlays() const;

 signals:
  void changed();

 private:
  KeptLane window_lane(const Selection& selection, std::int64_t n_tokens) const;
  std::string lag_label() const;

  Session& session_;
  bool window_ = false, partitions_ = false, token_texts_ = true;
  int kept_by_ = -1;
  std::vector<KeptLane> kept_;  // read from the profile
};

/// The labels of a profile's axis of selections; none if it has no such axis.
std::vector<std::string> selection_labels(const profile::Header& header);

}  // namespace kvatlas::viewer
