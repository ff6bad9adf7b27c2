// SPDX-License-Identifier: Apache-2.0
// The metrics of a server, and its address.
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "calibrate/endpoint/did_it_run.hpp"

using namespace kvatlas;
using namespace kvatlas::calibrate;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto samples = parse_metrics(text);
  for (const ServerTable* server : servers()) (void)metric_facts(*server, samples);
  try {
    const ServerUrl url = parse_server_url(text);
    if (url.host.empty() || url.text.find('@') != url.text.npos) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
