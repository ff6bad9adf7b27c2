// SPDX-License-Identifier: Apache-2.0
// What mutants.py writes into a source: each expression in the place of an operator, a constant or
// a call takes the number of a mutant, and is as it was unless that mutant is the chosen one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace mutants {

#ifdef KVATLAS_MUTANT
constexpr bool is(int number) { return number == KVATLAS_MUTANT; }
#else
/// The mutants that ran are noted in the file that KVATLAS_MUTANTS_SEEN names.
struct Run {
  int chosen = std::getenv("KVATLAS_MUTANT") ? std::atoi(std::getenv("KVATLAS_MUTANT")) : 0;
  bool seen[20000] = {};
  ~Run() {
    const char* name = std::getenv("KVATLAS_MUTANTS_SEEN");
    std::FILE* file = name ? std::fopen(name, "w") : nullptr;
    for (int number = 0; file && number < 20000; ++number)
      if (seen[number]) std::fprintf(file, "%d\n", number);
    if (file) std::fclose(file);
  }
};
inline Run run;
inline bool is(int number) {
  run.seen[number] = true;
  return number == run.chosen;
}
#endif

/// Eigen's expressions are computed, so that all mutants of one have the same type.
template <class T>
auto plain(T&& value) {
  if constexpr (requires { value.eval(); })
    return value.eval();
  else
    return value;
}

#define KVATLAS_OPERATOR(sign) [](const auto& a, const auto& b) { return mutants::plain(a sign b); }
#define KVATLAS_ASSIGN(sign) [](auto&& a, const auto& b) { a sign b; }

template <class A, class B, class Original, class First>
auto pick(A&& a, B&& b, Original original, int first, First changed) {
  return is(first) ? changed(a, b) : original(a, b);
}
template <class A, class B, class Original, class First, class Second>
auto pick(A&& a, B&& b, Original original, int first, First changed, int second,
          Second changed_otherwise) {
  return is(first) ? changed(a, b) : is(second) ? changed_otherwise(a, b) : original(a, b);
}
template <class T>
auto constant(int number, T value) {
  return is(number) ? static_cast<T>(value + 1) : value;
}
template <class T>
auto negative(int number, const T& negated) {
  return is(number) ? plain(negated) : plain(-negated);
}
template <class T>
T& up(int number, T& value) {
  return is(number) ? --value : ++value;
}
template <class T>
T& down(int number, T& value) {
  return is(number) ? ++value : --value;
}
template <class T>
T up_after(int number, T& value) {
  return is(number) ? value-- : value++;
}
template <class T>
T down_after(int number, T& value) {
  return is(number) ? value++ : value--;
}

#define KVATLAS_ORDER(name, other)                              \
  template <class T>                                            \
  T name(int number, const T& a, const T& b) {                  \
    return is(number) ? std::other(a, b) : std::name(a, b);     \
  }                                                             \
  template <class T>                                            \
  T name(int number, std::initializer_list<T> values) {         \
    return is(number) ? std::other(values) : std::name(values); \
  }
KVATLAS_ORDER(min, max)
KVATLAS_ORDER(max, min)
#define KVATLAS_CALL(name, other)                                     \
  template <class... T>                                               \
  auto name(int number, const T&... values) {                         \
    return is(number) ? std::other(values...) : std::name(values...); \
  }
KVATLAS_CALL(floor, ceil)
KVATLAS_CALL(ceil, floor)
KVATLAS_CALL(fmin, fmax)
KVATLAS_CALL(fmax, fmin)
KVATLAS_CALL(any_of, all_of)
KVATLAS_CALL(all_of, any_of)
KVATLAS_CALL(max_element, min_element)
KVATLAS_CALL(min_element, max_element)

}  // namespace mutants
