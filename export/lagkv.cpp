// SPDX-License-Identifier: Apache-2.0
// LagKV's repository takes the arguments of its cache class.
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

/// A ratio r for which int(r * lag) is `keep` in floating point. This is keep / lag, in the digits
/// of the file, if that works, and otherwise half a token more.
double kept_ratio(std::int64_t keep, std::int64_t lag) {
  const auto tokens = static_cast<double>(lag);
  const double plain = static_cast<double>(keep) / tokens;
  const double written = nlohmann::json::parse(calibrate::canonical_json(plain)).get<double>();
  const bool exact = static_cast<std::int64_t>(written * tokens) == keep;
  return exact ? written : (static_cast<double>(keep) + 0.5) / tokens;
}

}  // namespace

Exported export_lagkv(const PartRequest& request) {
  const auto& lag = std::get<calibrate::LagKv>(request.part);
  Exported exported;
  exported.files = {
      {"lagkv.json", calibrate::canonical_json({{"ratio", kept_ratio(lag.keep(), lag.lag)},
                                                {"sink_size", lag.sink},
                                                {"lag_size", lag.lag}})}};
  exported.use =
      "# with the repository's lag_kv.py on the path:\n"
      "import json\n"
      "from lag_kv import LagKV\n"
      "cache = LagKV(**json.load(open(\"lagkv.json\")))\n"
      "model.generate(**inputs, past_key_values=cache)\n";
  exported.notes = {
      str("Its ratio is the share kept: ", lag.keep(), " of the ", lag.lag,
          " tokens of a partition. kvpress calls the share removed its ratio."),
      "It needs a transformers whose DynamicCache has the lists key_cache and value_cache (4.48 to "
      "4.53), and one prompt at a time without padding."};
  return exported;
}

}  // namespace kvatlas::exporting
