// SPDX-License-Identifier: Apache-2.0
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_transformers(const Order&) { return {}; }

}  // namespace kvatlas::exporting
