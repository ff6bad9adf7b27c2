// SPDX-License-Identifier: Apache-2.0
// Pins and notes. They are kept in a file beside the profile, for the profile itself is never
// changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "viewer/models/place.hpp"

namespace kvatlas::viewer {

struct Pin {
  Place place;
  std::string title;
  bool operator==(const Pin&) const = default;
};
struct Note {
  Place place;
  std::string text;
  bool operator==(const Note&) const = default;
};
struct Sidecar {
  std::vector<Pin> pins;
  std::vector<Note> notes;
  bool operator==(const Sidecar&) const = default;
};

/// The name of the file for a profile: "p.h5.view.json" for "p.h5".
std::filesystem::path sidecar_path(const std::filesystem::path& profile);
/// Empty if there is no such file. Error(unreadable) if the file is of another kind.
Sidecar read_sidecar(const std::filesystem::path& path);
/// Writes the file so that a crash leaves the old one; removes it if there is nothing to store.
void write_sidecar(const Sidecar& sidecar, const std::filesystem::path& path);

}  // namespace kvatlas::viewer
