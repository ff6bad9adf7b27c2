// SPDX-License-Identifier: Apache-2.0
// Pins and notes, in a file beside the profile, which itself is never written.
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

/// "p.h5.view.json".
std::filesystem::path sidecar_path(const std::filesystem::path& profile);
/// An empty one if there is none. Error(unreadable) for what is no such file.
Sidecar read_sidecar(const std::filesystem::path& path);
/// Takes its name in one step; removes the file if there is nothing to say.
void write_sidecar(const Sidecar& sidecar, const std::filesystem::path& path);

}  // namespace kvatlas::viewer
