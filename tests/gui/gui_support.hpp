// SPDX-License-Identifier: Apache-2.0
// What tests of the window share: an opened small profile, waiting, grabs.
#pragma once

#include <QString>
#include <filesystem>
#include <functional>

#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"
#include "viewer/screens/session.hpp"

class QWidget;

namespace kvatlas::viewer::testing_gui {

/// Runs the event loop until `reached`; false if that takes longer than ten seconds.
bool wait_until(const std::function<bool()>& reached);

/// Opens files in a session and waits for the end of it.
void open_and_wait(Session& session, const std::vector<std::filesystem::path>& paths,
                   bool as_baseline = false);

/// A session with the small profile of the calibration tests.
class SmallSession {
 public:
  explicit SmallSession(const calibrate::testing_profile::Shape& shape = {});
  Session& session() { return session_; }
  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path profile_path() const { return folder_.path() / "p.h5"; }

 private:
  testing_support::TemporaryFolder folder_;
  Session session_;
};

/// Saves what a widget shows as screenshots/NAME-{light,dark}-{1x,2x}.png beside the build, in both
/// themes; the session's own one is in force again afterwards.
void grab_screenshots(QWidget& widget, Session& session, const QString& name);

}  // namespace kvatlas::viewer::testing_gui
