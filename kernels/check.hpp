// SPDX-License-Identifier: Apache-2.0
// What the entries of the kernels check before they trust their arguments.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/error.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// Throws `usage` unless `sizes` is `expected`.
template <std::size_t N>
void require_shape(const char* name, const std::array<std::int64_t, N>& sizes,
                   const std::array<std::int64_t, N>& expected) {
  if (sizes != expected)
    fail(ErrorCode::usage, name, " has shape ", list_str(sizes), ", expected ", list_str(expected));
}

/// Throws `usage` if a size is negative, or if there are elements and no pointer.
template <class AnyKindOfView>
void require_array(const char* name, const AnyKindOfView& view) {
  bool empty = false;
  for (const std::int64_t size : view.sizes) {
    if (size < 0) fail(ErrorCode::usage, name, " has shape ", list_str(view.sizes));
    empty = empty || size == 0;
  }
  if (!empty && view.data == nullptr) fail(ErrorCode::usage, name, " has no data");
}

/// Throws `usage` unless `value` is in [low, high].
inline void require_range(const char* name, std::int64_t value, std::int64_t low,
                          std::int64_t high) {
  if (value < low || value > high)
    fail(ErrorCode::usage, name, " is ", value, ", expected ", low, " to ", high);
}

/// Throws `usage` unless every key head serves the same number of query heads. Where there are no
/// query heads, any number of key heads is accepted.
inline void require_shared_heads(std::int64_t n_heads, std::int64_t n_kv_heads) {
  if (n_heads > 0 && (n_kv_heads <= 0 || n_heads % n_kv_heads != 0))
    fail(ErrorCode::usage, n_heads, " query heads cannot share ", n_kv_heads, " key heads evenly");
}

/// Throws `usage` unless the soft cap is 0, which means that there is none, or greater. NaN is
/// refused.
inline void require_soft_cap(float soft_cap) {
  if (!(soft_cap >= 0)) fail(ErrorCode::usage, "soft_cap is ", soft_cap, ", expected 0 or more");
}

/// Throws `usage` unless an output lies where the inputs lie.
inline void require_same_memory(const char* name, Memory memory, Memory expected) {
  if (memory != expected)
    fail(ErrorCode::usage, name, " lies in ", memory == Memory::host ? "host" : "device",
         " memory, the inputs do not");
}

/// Throws `usage` for a CausalAttention whose parts do not fit together.
template <class Io>
void require_causal_attention(const Io& io) {
  const auto [heads, n, head_dim] = io.queries.sizes;
  const auto [kv_heads, n_all, key_dim] = io.keys.sizes;
  require_array("queries", io.queries);
  require_array("keys", io.keys);
  require_array("values", io.values);
  require_shape("keys", io.keys.sizes, {kv_heads, n_all, head_dim});
  require_shape("values", io.values.sizes, {kv_heads, n_all, io.values.sizes[2]});
  require_shape("out", io.out.sizes, {n, heads, io.values.sizes[2]});
  require_shape("lse", io.lse.sizes, {heads, n});
  require_shared_heads(heads, kv_heads);
  require_soft_cap(io.soft_cap);
  if (n > n_all) fail(ErrorCode::usage, n, " queries are more than ", n_all, " keys");
  for (const std::int64_t stride :
       {io.queries.strides[2], io.keys.strides[2], io.values.strides[2], io.out.strides[2]})
    if (stride != 1) fail(ErrorCode::usage, "attention wants channels side by side");
}

}  // namespace kvatlas::kernels
