// SPDX-License-Identifier: Apache-2.0
// `kvatlas inspect policy.json --context N --batch B`: the memory that each policy takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/plain_text.hpp"
#include "base/table.hpp"
#include "calibrate/rules/cache_bytes.hpp"

namespace kvatlas::calibrate {

struct BytesQuestion {
  std::int64_t context = 0;  // prompt tokens; 0 if memory is not asked for
  std::int64_t new_tokens = 0, batch = 1;
  double weights = 0;   // bytes; 0 if they are not known
  double memory = 0;    // bytes of the machine; 0 if they are not given
  std::string runtime;  // may be empty
};

/// A row of the table, whose first row is the full cache.
struct PolicyBytes {
  std::string name;
  CacheBytes cache;                       // of one sequence
  std::optional<double> read_bytes = {};  // while its prompt is read, where all of it is held then
  Room room = {};                         // only if the memory is given
};
struct BytesAnswer {
  BytesQuestion question;
  std::vector<PolicyBytes> policies;
  std::vector<std::string> notes;
};
/// Policies that the runtime cannot run are left out with a note. Error(usage) if none is left.
BytesAnswer policy_bytes(const Document& document, const BytesQuestion& question);

std::vector<Table> bytes_tables(const BytesAnswer& answer);
nlohmann::json bytes_json(const BytesAnswer& answer);

}  // namespace kvatlas::calibrate
