// SPDX-License-Identifier: Apache-2.0
// The pictures that `kvatlas render` makes and a report is made of. A new one is a row of
// viewer/models/picture_list.cpp and a function here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/draw/picture.hpp"
#include "viewer/maps/tile_plan.hpp"
#include "viewer/models/choices.hpp"
#include "viewer/models/picture_list.hpp"

namespace kvatlas::viewer {

/// What was opened; a picture says with Error(usage) what it misses.
struct PictureSource {
  const profile::Reader* profile = nullptr;   // may be missing: some pictures need a document alone
  const profile::Reader* baseline = nullptr;  // a second profile
  std::vector<calibrate::Document> documents;
  std::vector<std::filesystem::path> document_paths;  // a path a document

  /// Error(usage) without a profile.
  const profile::Reader& required_profile() const;
};

/// What of it is to be seen.
struct PictureRequest {
  Choices choices;
  std::vector<std::size_t> positions;  // samples, those of choices.task
  struct Place {
    std::int64_t layer = 0, head = 0;
  };
  std::optional<Place> at;               // --at L12.H3
  std::optional<std::size_t> sample;     // --sample: position in the profile
  std::optional<TokenRectangle> region;  // --region: a part of a map
};

/// Error(usage), saying what is missing, if the source has not what the picture needs.
PicturePtr make_picture(PictureKind kind, const PictureSource& source,
                        const PictureRequest& request);

/// Error(usage), listing all, for a name that is none.
ColourMap colour_map_named(const std::string& name);

/// "L12.H3", "12.3"; Error(usage) for what is no such text.
PictureRequest::Place parse_place(const std::string& text);

/// Profiles, documents and settings, as they are written into files.
Origin origin_of(const PictureSource& source, const std::filesystem::path& profile,
                 const std::filesystem::path& baseline, const std::string& settings);

}  // namespace kvatlas::viewer
