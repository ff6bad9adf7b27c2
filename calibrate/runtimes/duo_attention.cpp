// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

Runtime duo_attention() {
  Runtime r{"duo-attention", "DuoAttention", "2025-02"};
  r.forms[Form::lazy_layers] = {
      Fit::exact, {Loss::window_rolls}, "as rows of zeros of a head pattern"};
  r.forms[Form::lazy_heads] = {Fit::exact, {Loss::window_rolls}, "as a head pattern"};
  r.architectures = {"llama", "mistral"};
  r.refuses_others = "it knows Llama and Mistral alone";
  return r;
}

}  // namespace kvatlas::calibrate
