// SPDX-License-Identifier: Apache-2.0
#include "base/embedded_file.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

KVATLAS_EMBEDDED_FILE(document_schema, "policy/policy_schema.json")

}  // namespace kvatlas::calibrate
