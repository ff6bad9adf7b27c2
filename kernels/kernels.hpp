// SPDX-License-Identifier: Apache-2.0
// The numeric kernels, on plain arrays (base/view.hpp). Each family is one header with a
// struct of inputs and outputs and a function `name(io, exec)`; the same call runs the float64
// reference, the CPU body (the best instruction set of the machine, all threads) or the CUDA body
// (asynchronously on exec.stream). All check their arguments and throw Error. Results never depend
// on the number of threads.
#pragma once

#include "kernels/attention_maps.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/js_divergence.hpp"
#include "kernels/kv_quant.hpp"
#include "kernels/kv_round.hpp"
#include "kernels/lag_scores.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/layer_budgets.hpp"
#include "kernels/ragged_decode.hpp"
#include "kernels/top_counts.hpp"
#include "kernels/transformer_ops.hpp"
