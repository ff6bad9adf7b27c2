// SPDX-License-Identifier: Apache-2.0
// A policy document, or an inline policy: what is read must be written, and read again as the same.
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"
#include "calibrate/policy/policy.hpp"

using namespace kvatlas;
using namespace kvatlas::calibrate;

namespace {

template <class Read, class Write>
void check(std::string_view text, Read&& read, Write&& write) {
  std::string first;
  try {
    const auto value = read(text);
    try {
      first = write(value);
    } catch (const Error& error) {
      std::cerr << "what was read cannot be written: " << error.what() << '\n';
      std::abort();
    }
  } catch (const Error&) {
    return;
  }
  if (write(read(first)) == first) return;
  std::cerr << "not read as it was written:\n" << first << '\n';
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(
      text, [](auto given) { return parse_document(given); }, document_text);
  check(
      text, [](auto given) { return parse_policy(given); }, policy_text);
  return 0;
}
