// SPDX-License-Identifier: Apache-2.0
// What the command `kvatlas calibrate` needs of a method. Each method's file makes one row of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/evidence.hpp"

namespace CLI {
class App;
}

namespace kvatlas::calibrate {

struct Runtime;

/// What one command line asks of a method.
class MethodCommand {
 public:
  virtual ~MethodCommand() = default;

  /// Adds the method's own options.
  virtual void add_options(CLI::App& command) = 0;

  /// Members of the request that options set which several methods share: --initial and --recent,
  /// and --tolerance. Null for a method that has no use for them.
  struct Shared {
    Proximity* keep = nullptr;
    double* tolerance = nullptr;
  };
  virtual Shared shared() { return {}; }

  /// Whether the method goes by trials alone. Without a model it is left out of several.
  virtual bool needs_model() const { return false; }

  /// Called once the command line has been read: turns its words into the request.
  virtual void settle() {}
  /// Fits the settings of its own that were not given to the profile. Returns what was taken in
  /// place of the published ones, and why.
  virtual std::vector<std::string> suit(const Evidence&) { return {}; }
  /// Fits the request to what the runtime can do. False if the runtime cannot carry out the method.
  virtual bool fit(const Runtime& runtime) = 0;
  /// Runs the calibration. `run` is null where no model was given. All that is needed of the
  /// profile is read before the first trial.
  virtual Calibrated calibrate(const Evidence& evidence, const RunTrials& run) = 0;
};

/// A row of the command's list of methods.
struct CalibratedMethod {
  Method method;
  const char *summary, *examples;  // for the help
  std::unique_ptr<MethodCommand> (*make)();
};

CalibratedMethod simlayerkv_command();
CalibratedMethod pod_command();
CalibratedMethod dynamickv_command();
CalibratedMethod headkv_command();
CalibratedMethod lagkv_command();
CalibratedMethod precision_command();

}  // namespace kvatlas::calibrate
