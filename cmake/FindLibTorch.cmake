# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch by Torch_DIR (the folder of TorchConfig.cmake), by the one that './dev setup' unpacked, or by
# CMAKE_PREFIX_PATH. Defines the target LibTorch::cpu (libtorch_cpu and c10) and LibTorch_LIBRARY_DIR.
file(GLOB _unpacked ${PROJECT_SOURCE_DIR}/.deps/libtorch-*/torch)
find_path(LibTorch_ROOT NAMES include/ATen/core/TensorBody.h
          HINTS ${Torch_DIR}/../../.. $ENV{Torch_DIR}/../../.. ${_unpacked} PATH_SUFFIXES torch libtorch)
if(LibTorch_ROOT)
  # The header that holds the version moved with 2.9; take whichever is there.
  foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${LibTorch_ROOT}/include/${_header})
      file(STRINGS ${LibTorch_ROOT}/include/${_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9;]" "" LibTorch_VERSION "${_lines}")
      string(REPLACE ";" "." LibTorch_VERSION "${LibTorch_VERSION}")
      break()
    endif()
  endforeach()
  set(LibTorch_LIBRARY_DIR ${LibTorch_ROOT}/lib)
  find_library(LibTorch_CPU torch_cpu HINTS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH)
  find_library(LibTorch_C10 c10 HINTS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU LibTorch_C10 LibTorch_ROOT
                                  VERSION_VAR LibTorch_VERSION)
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE ${LibTorch_ROOT}/include)
  target_link_libraries(LibTorch::cpu INTERFACE ${LibTorch_CPU} ${LibTorch_C10})
  target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)
endif()
