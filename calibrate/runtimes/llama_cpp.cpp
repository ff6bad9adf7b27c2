// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime llama_cpp() {
  Runtime r{"llama.cpp", "llama.cpp", "2026-10-01"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses,
                                "as metadata of the GGUF file: a window and a period of layers"};
  r.architectures = {"gemma2", "gemma3"};
  r.refuses = {{"phi3", "its Phi 3 code reads the window and switches it off"}};
  r.refuses_others = "its code for this architecture reads no window";
  return r;
}

}  // namespace kvatlas::calibrate
