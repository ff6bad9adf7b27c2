// SPDX-License-Identifier: Apache-2.0
// The choices made in the window as a policy document, to be saved and exported.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/models/choices.hpp"

namespace kvatlas::viewer {

/// A document with these sections ("simlayerkv", "pod", "dynamickv", "lagkv"), as the profile's
/// samples at `positions` and the choices make them. What `documents` say of the same policy
/// (scores, curves) is taken over; LagKV's setting is one of their sweep. Error(usage) for what
/// the profile lacks, and where no section is asked for. It reads the profile.
calibrate::Document choices_document(const profile::Reader& profile,
                                     const std::vector<std::size_t>& positions,
                                     const Choices& choices,
                                     std::span<const calibrate::Document> documents,
                                     std::span<const std::string> sections);

/// The sections that a policy of these choices can be made for: what the profile and the documents
/// have.
std::vector<std::string> possible_sections(const profile::Reader& profile,
                                           std::span<const calibrate::Document> documents);

/// Section `name` of the first document that has it, or null.
const nlohmann::json& section_in(std::span<const calibrate::Document> documents,
                                 const std::string& name);
/// The same without "measured" where that is of a composition, and so of no section alone.
nlohmann::json section_alone_in(std::span<const calibrate::Document> documents,
                                const std::string& name);

}  // namespace kvatlas::viewer
