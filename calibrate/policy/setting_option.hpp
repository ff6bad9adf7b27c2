// SPDX-License-Identifier: Apache-2.0
// Options of the command line that give a setting of a policy: what they may be, what they are
// where they are not given, and what is said of them comes from the table of settings.
#pragma once

namespace CLI {
class Option;
}

namespace kvatlas::calibrate {

/// Lets the option take only what the setting of the part may be. An option that has no sentence of
/// its own gets the setting's.
CLI::Option* limit_to_setting(CLI::Option* option, const char* part, const char* key);
/// The same, and the help shows the setting's default.
CLI::Option* as_setting(CLI::Option* option, const char* part, const char* key);

}  // namespace kvatlas::calibrate
