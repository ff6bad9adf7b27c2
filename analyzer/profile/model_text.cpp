// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/model_text.hpp"

#include <algorithm>

#include "base/str.hpp"

namespace kvatlas::profile {

std::string layers_text(std::int64_t layers, const std::vector<std::int64_t>& numbers) {
  return numbers.empty() ? str(layers)
                         : str(layers, " with attention, which are ", list_str(numbers));
}

std::string cache_text(const std::vector<std::int64_t>& values, std::int64_t latent_rank) {
  if (values.empty()) return "";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (latent_rank > 0)
    return str("one latent of ", latent_rank, " numbers for all heads of a layer, ", *most,
               " numbers a token");
  const auto shared = std::count(values.begin(), values.end(), 0);
  return str(*most == *least ? str(*most) : str(*least, " to ", *most),
             " numbers a token and layer",
             shared > 0 ? str("; ", shared, " layers read the keys of others") : "");
}

}  // namespace kvatlas::profile
