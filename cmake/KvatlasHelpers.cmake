# SPDX-License-Identifier: Apache-2.0
# What every target of the project shares: warnings, include root, sanitizers.
add_library(kvatlas_options INTERFACE)
target_include_directories(kvatlas_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(kvatlas_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2 -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wconversion
                            -Wno-sign-conversion $<$<BOOL:${KVATLAS_WERROR}>:-Werror> -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>
  # g++ 12 sees overlapping copies in std::string's operator+ where there are none (GCC bug 105651). Below 2 GB it does not
  # look for memory that it could use again, which takes a tenth of its time.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict --param=ggc-min-heapsize=2097152>
  # CMake 3.25 does not know CUDA 20 and would drop CMAKE_CUDA_STANDARD 20 in silence. 554: View<T>'s conversion
  # to View<const T> has no use where T is const.
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -diag-suppress=554
                             $<$<BOOL:${KVATLAS_WERROR}>:-Werror=all-warnings>
                             -Xcompiler=-march=x86-64-v2,-Wall,-Wextra$<$<BOOL:${KVATLAS_WERROR}>:,-Werror>>)
if(KVATLAS_SANITIZE)
  # With what it adds, GCC 12 takes parts of its own std::regex for uninitialised.
  target_compile_options(kvatlas_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KVATLAS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
                              $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>)
  target_link_options(kvatlas_options INTERFACE -fsanitize=${KVATLAS_SANITIZE})
endif()

# kvatlas_folder_library(kernels [FOLDER kernels] [WITHOUT a.cpp …] [PUBLIC kvatlas::base] [PRIVATE PkgConfig::X])
# makes the static library kvatlas_kernels, and its alias kvatlas::kernels, of all sources of one folder: the one that
# FOLDER names, else the subfolder of this name, else the folder that the caller stands in. Where nvcc is, the CUDA
# sources are compiled too, and bring the static CUDA runtime, which asks for no driver until it is used. Sources are
# compiled several at a time (KVATLAS_JOINED), but for those of APART folders. LIGHT: nothing there takes long, so less of
# the compiler's time goes into making it fast.
function(kvatlas_folder_library name)
  cmake_parse_arguments(ARG "APART;LIGHT" "FOLDER" "WITHOUT;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_FOLDER AND IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${name})
    set(ARG_FOLDER ${name})
  endif()
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FOLDER})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.hpp)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${folder}/*.cu)
  list(TRANSFORM ARG_WITHOUT PREPEND ${folder}/)
  list(REMOVE_ITEM sources ${ARG_WITHOUT})
  add_library(kvatlas_${name} STATIC ${sources})
  add_library(kvatlas::${name} ALIAS kvatlas_${name})
  set_property(GLOBAL APPEND PROPERTY KVATLAS_LIBRARIES kvatlas_${name})
  if(cuda_sources AND KVATLAS_HAS_CUDA)
    target_sources(kvatlas_${name} PRIVATE ${cuda_sources})
    set_target_properties(kvatlas_${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
    target_link_libraries(kvatlas_${name} PUBLIC CUDA::cudart_static)
  endif()
  target_link_libraries(kvatlas_${name} PUBLIC kvatlas_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(NOT ARG_APART)
    kvatlas_join(kvatlas_${name} 8)
  endif()
  if(ARG_LIGHT)
    # At -O1 GCC 12 takes moved optionals for uninitialised ones.
    target_compile_options(kvatlas_${name} PRIVATE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>
      $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release>>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# kvatlas_join(TARGET SIZE): so many of the target's sources are compiled as one. Most of what a source costs the compiler
# is the headers and templates that it shares with its neighbours.
function(kvatlas_join target size)
  if(KVATLAS_JOINED)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # All of it is one source in truth.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# kvatlas_embed_files(texts.cpp texts/prose.txt …): the source holds these files (base/embedded_file.hpp), so it is
# compiled anew when one of them changes.
function(kvatlas_embed_files source)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  set_source_files_properties(${source} PROPERTIES
    COMPILE_DEFINITIONS KVATLAS_EMBEDDED_FROM="${CMAKE_CURRENT_SOURCE_DIR}"
    OBJECT_DEPENDS "${files}")
endfunction()

# kvatlas_test(unit_base LABEL unit SOURCES a_test.cpp … LINK kvatlas::base)
# makes one GoogleTest program and tells ctest each of its tests, under the label. GPU says that the tests named
# Gpu/… need a CUDA device: they get the label gpu instead. TOGETHER: its tests share a long preparation, so ctest knows
# the program as one test. ONLY: those tests, not all. Sources that use the same names have a namespace each.
function(kvatlas_test name)
  cmake_parse_arguments(ARG "GPU;TOGETHER" "LABEL;ONLY" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE kvatlas_options ${ARG_LINK} kvatlas_places GTest::gmock GTest::gtest_main)
  # Much of a test is templates that run once: -O3 takes them half as long again to compile.
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  kvatlas_join(${name} 8)
  if(ARG_ONLY)
    set(_filter TEST_FILTER "${ARG_ONLY}")
  endif()
  if(ARG_GPU)
    set(_filter TEST_FILTER "-Gpu/*")
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 TEST_PREFIX "${name}." TEST_FILTER "Gpu/*"
                         TEST_LIST ${name}_gpu_tests PROPERTIES LABELS gpu TIMEOUT 600)
  endif()
  if(ARG_TOGETHER)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 1800)
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 TEST_PREFIX "${name}." ${_filter} PROPERTIES
                       LABELS ${ARG_LABEL} TIMEOUT 600)
endfunction()

add_custom_target(kvatlas_fuzzers)

# kvatlas_fuzzer(gguf LINK kvatlas::model): tests/fuzz/gguf_fuzz.cpp defines LLVMFuzzerTestOneInput. Under the
# fuzz preset it is a libFuzzer program, run for KVATLAS_FUZZ_SECONDS as a test (with the words of gguf.dict, if that is
# there); otherwise a plain main replays tests/fuzz/corpus/gguf as a test.
function(kvatlas_fuzzer name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  set(folder ${PROJECT_BINARY_DIR}/fuzz)
  set(seeds ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  add_executable(${name}_fuzz ${name}_fuzz.cpp)
  add_dependencies(kvatlas_fuzzers ${name}_fuzz)
  set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder})
  target_compile_options(${name}_fuzz PRIVATE $<$<CONFIG:Release>:-O0>)
  target_link_libraries(${name}_fuzz PRIVATE kvatlas_options ${ARG_LINK})
  if(KVATLAS_FUZZ)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    file(MAKE_DIRECTORY ${folder}/corpus/${name})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${name}.dict)
      set(words -dict=${CMAKE_CURRENT_SOURCE_DIR}/${name}.dict)
    endif()
    # New inputs go to the first folder; the seeds are only read.
    add_test(NAME fuzz.${name} COMMAND ${name}_fuzz ${words} -max_total_time=${KVATLAS_FUZZ_SECONDS} -timeout=10
             -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=${folder}/${name}-
             ${folder}/corpus/${name} ${seeds})
    math(EXPR limit "${KVATLAS_FUZZ_SECONDS} + 300")
  else()
    target_link_libraries(${name}_fuzz PRIVATE kvatlas_replay)
    add_test(NAME fuzz.${name} COMMAND ${name}_fuzz ${seeds})
    set(limit 600)
  endif()
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT ${limit})
endfunction()
