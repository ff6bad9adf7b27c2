// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime llama_cpp() {
  Runtime r{"llama.cpp", "llama.cpp", "0c1e57098, autumn 2026"};
  r.forms[Form::lazy_layers] = {
      Fit::approximate, kWindowLosses,
      "as metadata of the GGUF file: a window and the layers that have it"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as the types of its cache, for all layers alike"};
  using enum KvFormat;
  r.formats_taken = {{q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl}, false, true};
  r.architectures = {"cohere2", "exaone4", "gemma2", "gemma3", "gpt_oss", "olmo2", "olmo3"};
  r.notes = {{"exaone4", "its code reads windows of the model with 64 layers alone"}};
  r.page_tokens = 256;          // its caches are padded to that
  r.window_spare_tokens = 512;  // the default of --ubatch-size
  r.refuses = {{"phi3", "its Phi 3 code reads the window and switches it off"},
               {"gemma3n", "its last layers read the keys of others"},
               {"llama4", "its windows are chunks"}};
  r.refuses_others = "its code for this architecture reads no window";
  return r;
}

}  // namespace kvatlas::calibrate
