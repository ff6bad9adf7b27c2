// SPDX-License-Identifier: Apache-2.0
// The front that a search leaves in its document: every point of it is a policy of its own.
#pragma once

#include <cstddef>
#include <string>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// The document with this point of its front as the policy, marked as the chosen one. Error(usage)
/// without such a point, Error(unreadable) where the point is no policy of the model.
Document with_front_point(const Document& document, std::size_t point);

/// Writes what was measured of the document's policy into each section that it is made of; under
/// the runtime's name if the policy was tried as one carries it out.
void add_measured(Document& document, const nlohmann::json& measured, const std::string& runtime);

}  // namespace kvatlas::calibrate
