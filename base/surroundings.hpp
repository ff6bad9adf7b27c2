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

/// The display that windows open on, Wayland's or else X11's; "" if the environment names none.
std::string display_name();

}  // namespace kvatlas
