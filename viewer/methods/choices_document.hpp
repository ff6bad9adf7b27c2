// SPDX-License-Identifier: Apache-2.0
// The choices made in the window as a policy document, to be saved and exported, and the way back.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/models/method_models.hpp"

namespace kvatlas::viewer {

/// Makes a document with these sections ("simlayerkv", "pod", "dynamickv", "lagkv") from the
/// choices and from `models`, which are those of the profile's samples at `positions`. If one of
/// `documents` has the very same policy, its section with scores and curves is taken over. LagKV's
/// setting comes from the sweep, and number formats come from the curve, in `documents`.
/// Error(usage) if the profile lacks what a section needs, or if no section is asked for.
calibrate::Document choices_document(const profile::Reader& profile,
                                     const std::vector<std::size_t>& positions,
                                     const Choices& choices, const MethodModels& models,
                                     std::span<const calibrate::Document> documents,
                                     std::span<const std::string> sections);

/// The sections that choices_document() can make from this profile and these documents.
std::vector<std::string> possible_sections(const profile::Reader& profile,
                                           std::span<const calibrate::Document> documents);

/// The settings of the documents, moved to the nearest that the profile has statistics for.
Choices initial_choices(const profile::Header& header, const std::vector<profile::Sample>& samples,
                        std::span<const calibrate::Document> documents);
/// Takes each method's settings from the first document that has the method; methods in no document
/// keep theirs.
void take_settings(Choices& choices, const profile::Header& header,
                   std::span<const calibrate::Document> documents);

}  // namespace kvatlas::viewer
