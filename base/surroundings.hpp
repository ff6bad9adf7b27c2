// SPDX-License-Identifier: Apache-2.0
// What lies around the running program.
#pragma once

#include <filesystem>
#include <string>

namespace kvatlas {

/// The program with the window, which lies beside this one.
inline constexpr const char* kViewerProgram = "kvatlas-viewer";

/// The folder of the running program.
std::filesystem::path program_folder();

/// LibTorch's threads wait for each other by spinning, which on a machine that does something else
/// besides is several times slower than sleeping. This asks for threads that spin for some
/// microseconds, in which the next work mostly comes while tokens are generated, and then sleep,
/// unless the environment has a wish already. OpenMP reads that as it is loaded, so the wish is for
/// the program that this one becomes. Whether something was asked for.
bool let_threads_sleep();

/// The display that windows open on, Wayland's or else X11's; "" if the environment names none.
std::string display_name();

}  // namespace kvatlas
