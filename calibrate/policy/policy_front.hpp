// SPDX-License-Identifier: Apache-2.0
// The front that a search leaves in its document: the policies that no other beats in both memory
// and score. Every point of it is a policy that can be chosen.
#pragma once

#include <cstddef>
#include <string>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// The document with this point of its front as its policy, and the point marked as chosen.
/// Error(usage) if there is no such point, Error(unreadable) if the point is no policy of the
/// model.
Document with_front_point(const Document& document, std::size_t point);

/// Writes what was measured of the document's policy into each of its sections. If the policy was
/// tried as a runtime carries it out, the figures stand under the name of that runtime.
void add_measured(Document& document, const nlohmann::json& measured, const std::string& runtime);

}  // namespace kvatlas::calibrate
