// SPDX-License-Identifier: Apache-2.0
// What the importers share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "export/importers.hpp"

namespace kvatlas::importing {

/// [layer][head]. All rows have the same length.
using HeadNumbers = std::vector<std::vector<double>>;

/// How deep the JSON of a pattern may nest; all real ones are flatter.
inline constexpr int kDeepestPattern = 8;

/// Error(unreadable) if a document cannot hold a model of so many layers and heads.
void check_shape(std::size_t layers, std::size_t heads);

/// A whole number of tokens, at least `least`. For anything else Error(unreadable) names the place.
std::int64_t tokens_of(const nlohmann::json& value, std::int64_t least, const std::string& place);

/// The request's model, completed by the numbers of the file, which are 0 if it does not give them.
/// Error(unreadable) if they contradict the request, Error(usage) if neither of them knows a
/// number.
calibrate::ModelInfo completed_model(const ImportRequest& request, std::int64_t layers,
                                     std::int64_t heads, std::int64_t kv_heads);

/// The heads with the `count` lowest numbers are lazy. Of equal numbers, those of lower layers come
/// first, and in a layer those of lower heads.
calibrate::LazyHeads lowest(const HeadNumbers& numbers, std::size_t count);
/// The heads with a number below the threshold are lazy.
calibrate::LazyHeads below(const HeadNumbers& numbers, double threshold);

/// The document that makes these heads lazy. `file` holds the tokens that lazy heads keep according
/// to the file; those of the request come first.
calibrate::Document document_of(const ImportRequest& request, const calibrate::ModelInfo& model,
                                const calibrate::LazyHeads& lazy, calibrate::Proximity file);

}  // namespace kvatlas::importing
