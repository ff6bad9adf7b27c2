// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

/// The content of README.txt: what the files are, how they are used, what the runtime does
/// otherwise and what that costs. `section` is where the document holds the part. `is_static` says
/// that the policy decides for each input, and that the runtime is given its static view.
std::string readme_text(const PartRequest& request, const std::string& section, bool is_static,
                        const Exported& exported);

/// Sentences on how often inputs decide otherwise than the static view in the section.
std::string static_text(const PartRequest& request, const nlohmann::json& section);

/// The share of the cache that the runtime keeps of a prompt of the request's length. NaN if it
/// depends on the input, or is not known.
double kept_share(const PartRequest& request);

}  // namespace kvatlas::exporting
