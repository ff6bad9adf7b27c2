// SPDX-License-Identifier: Apache-2.0
// What the importers share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "export/importers.hpp"

namespace kvatlas::importing {

/// [layer][head] a number each; every row has as many.
using HeadNumbers = std::vector<std::vector<double>>;

/// Depth that no pattern reaches.
inline constexpr int kDeepestPattern = 8;

/// Fails unless a model of so many layers and heads is one that a document can hold.
void check_shape(std::size_t layers, std::size_t heads);

/// A whole number of tokens, `least` or more. Error(unreadable) for anything else names the place.
std::int64_t tokens_of(const nlohmann::json& value, std::int64_t least, const std::string& place);

/// The request's model with the numbers that the file gave (0: it does not say). Error(unreadable)
/// where they contradict each other, Error(usage) where one is known to neither.
calibrate::ModelInfo completed_model(const ImportRequest& request, std::int64_t layers,
                                     std::int64_t heads, std::int64_t kv_heads);

/// The `count` lowest are lazy; of equal ones those of lower layers, then heads, come first.
calibrate::LazyHeads lowest(const HeadNumbers& numbers, std::size_t count);
/// Those below the threshold are lazy.
calibrate::LazyHeads below(const HeadNumbers& numbers, double threshold);

/// The document of these heads; the sizes are `file`'s unless the request has others.
calibrate::Document document_of(const ImportRequest& request, const calibrate::ModelInfo& model,
                                const calibrate::LazyHeads& lazy, calibrate::Proximity file);

}  // namespace kvatlas::importing
