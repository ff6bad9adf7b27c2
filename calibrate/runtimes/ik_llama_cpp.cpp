// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime ik_llama_cpp() {
  Runtime r{"ik_llama.cpp", "ik_llama.cpp", "8337e4cd, August 2026"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as types of its cache for the first layers, the last and the rest"};
  using enum KvFormat;
  r.formats_taken = {{q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl}, true, true};
  r.formats_taken.by_ends = true;
  r.formats_taken.tried = {q8_0, q5_0, q4_0};
  r.page_tokens = 256;  // as llama.cpp's
  return r;
}

}  // namespace kvatlas::calibrate
