// SPDX-License-Identifier: Apache-2.0
// The pictures that `kvatlas render` makes and that a report is made of. To add a picture, write
// its row in viewer/models/picture_list.cpp and its function here.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/draw/picture.hpp"
#include "viewer/maps/tile_plan.hpp"
#include "viewer/methods/comparison_model.hpp"
#include "viewer/methods/overview_model.hpp"
#include "viewer/models/kept_tokens.hpp"
#include "viewer/models/picture_list.hpp"

namespace kvatlas::viewer {

/// What pictures are made from. A picture throws Error(usage) for what it needs and does not find.
struct PictureSource {
  const profile::Reader* profile = nullptr;   // may be null: some pictures need documents alone
  const profile::Reader* baseline = nullptr;  // the profile to compare with; may be null
  const KeptTokens* kept = nullptr;           // what policies keep of prompts; may be null
  std::vector<calibrate::Document> documents;
  std::vector<std::filesystem::path> document_paths;  // one for each document

  /// The profile; throws Error(usage) if there is none.
  const profile::Reader& required_profile() const;
};

/// What a picture shall show.
struct PictureRequest {
  Choices choices;
  std::vector<std::size_t> positions;  // of the samples of choices.task
  struct Place {
    std::int64_t layer = 0, head = 0;
  };
  std::optional<Place> at;                // --at L12.H3
  std::optional<std::size_t> sample;      // --sample: its position in the profile
  std::vector<std::string> policies;      // --policy: of kept tokens, at most two
  std::optional<std::int64_t> generated;  // --generated: of kept tokens; none: all
  std::optional<TokenRectangle> region;   // --region: a part of a map
};

/// The numbers of a table's first column.
std::vector<double> first_column(const Table& table);

/// Makes pictures of one source for one request. What is read for one of them serves the others.
class Pictures {
 public:
  /// Both must outlive it.
  Pictures(const PictureSource& of, const PictureRequest& wanted) : source(of), request(wanted) {}

  /// Throws Error(usage), saying what is missing, if the source does not have what the picture
  /// needs.
  PicturePtr make(PictureKind kind);

  /// A picture at the values of the setting that it depends on, one of which is chosen.
  struct Steps {
    Handle handle = Handle::none;
    double chosen = 0;
    std::vector<double> values;
    std::function<PicturePtr(double)> at;
  };
  /// None of a picture that does not depend on a setting. Call it for pictures that make() has
  /// made.
  std::optional<Steps> steps(PictureKind kind);
  /// The other setting that such a picture depends on, whose steps it does not have.
  static Handle fixed_by(PictureKind kind);

  MethodReader& methods();
  const OverviewModel& overview();
  const ComparisonModel& comparison(const std::string& task = {});

  const PictureSource& source;
  const PictureRequest& request;

 private:
  std::optional<MethodReader> methods_;
  std::optional<OverviewModel> overview_;
  std::map<std::string, ComparisonModel> comparisons_;  // by the task
};

/// The colour map of a name. Throws Error(usage), which lists all names, for another name.
ColourMap colour_map_named(const std::string& name);

/// The layer and head that "L12.H3" or "12.3" names. Throws Error(usage) for any other text.
PictureRequest::Place parse_place(const std::string& text);

/// The profiles, documents and settings that a picture was made from, for its file.
Origin origin_of(const PictureSource& source, const std::filesystem::path& profile,
                 const std::filesystem::path& baseline, const std::string& settings);

}  // namespace kvatlas::viewer
