# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch, in this order: Torch_DIR (the folder of TorchConfig.cmake, or LibTorch's own folder; given as
# -DTorch_DIR or in the environment), what './dev setup' unpacked, CMAKE_PREFIX_PATH and the system.
# Defines the target LibTorch::cpu (libtorch_cpu and c10), LibTorch_VERSION, LibTorch_ROOT, LibTorch_LIBRARY_DIR,
# LibTorch_UNPACKED (true: by './dev setup') and, where it is refused, LibTorch_REASON.
#
# The package's own CMake files are not used: those of a CUDA build demand a whole CUDA toolkit.
foreach(_name ROOT VERSION LIBRARY_DIR UNPACKED REASON CONFIG_DIR CPU C10)
  unset(LibTorch_${_name})
endforeach()
if(NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
  set(Torch_DIR $ENV{Torch_DIR} CACHE PATH "Folder of LibTorch's TorchConfig.cmake" FORCE)
endif()

set(_suffixes share/cmake/Torch torch/share/cmake/Torch Torch cmake/Torch)
if(Torch_DIR)
  find_path(LibTorch_CONFIG_DIR TorchConfig.cmake PATHS ${Torch_DIR} PATH_SUFFIXES ${_suffixes}
            NO_DEFAULT_PATH NO_CACHE)
else()
  file(GLOB _unpacked ${PROJECT_SOURCE_DIR}/.deps/libtorch-*/torch)
  find_path(LibTorch_CONFIG_DIR TorchConfig.cmake HINTS ${_unpacked} PATH_SUFFIXES ${_suffixes} NO_CACHE)
endif()

if(LibTorch_CONFIG_DIR)
  get_filename_component(LibTorch_ROOT ${LibTorch_CONFIG_DIR}/../../.. REALPATH)
  # The header that holds the version moved with 2.9; take whichever is there.
  foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${LibTorch_ROOT}/include/${_header})
      file(STRINGS ${LibTorch_ROOT}/include/${_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
      string(REGEX REPLACE "[^0-9;]" "" LibTorch_VERSION "${_lines}")
      string(REPLACE ";" "." LibTorch_VERSION "${LibTorch_VERSION}")
      break()
    endif()
  endforeach()
  set(LibTorch_LIBRARY_DIR ${LibTorch_ROOT}/lib)
  find_library(LibTorch_CPU torch_cpu PATHS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH NO_CACHE)
  find_library(LibTorch_C10 c10 PATHS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH NO_CACHE)
  if(EXISTS ${PROJECT_SOURCE_DIR}/.deps)
    file(REAL_PATH ${PROJECT_SOURCE_DIR}/.deps _deps)
    cmake_path(IS_PREFIX _deps ${LibTorch_ROOT} LibTorch_UNPACKED)
  endif()
endif()

if(NOT LibTorch_CONFIG_DIR)
  if(Torch_DIR)
    set(LibTorch_REASON "Torch_DIR is ${Torch_DIR}, where there is no TorchConfig.cmake.")
  endif()
elseif(NOT LibTorch_CPU OR NOT LibTorch_C10)
  set(LibTorch_REASON "${LibTorch_LIBRARY_DIR} lacks libtorch_cpu or libc10.")
elseif(NOT LibTorch_VERSION)
  set(LibTorch_REASON "The LibTorch in ${LibTorch_ROOT} does not say its version, so it is older than 2.6.")
elseif(LibTorch_VERSION VERSION_LESS LibTorch_FIND_VERSION)
  set(LibTorch_REASON "The LibTorch in ${LibTorch_ROOT} is ${LibTorch_VERSION}; ${LibTorch_FIND_VERSION} or newer is needed.")
else()
  # Strings of the C++11 ABI carry this mark in every mangled name.
  file(STRINGS ${LibTorch_C10} _mark REGEX "__cxx11" LIMIT_COUNT 1)
  if(NOT _mark)
    set(LibTorch_REASON "The LibTorch in ${LibTorch_ROOT} was built with the old C++ ABI; take one with the C++11 ABI.")
  endif()
endif()
if(LibTorch_REASON)
  unset(LibTorch_CPU)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU LibTorch_C10
                                  REASON_FAILURE_MESSAGE "${LibTorch_REASON}")
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    ${LibTorch_ROOT}/include ${LibTorch_ROOT}/include/torch/csrc/api/include)
  # Its macros hold the paths of its headers, which ccache makes relative to the build folder.
  file(RELATIVE_PATH _up ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  cmake_path(APPEND _up "")
  target_compile_options(LibTorch::cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${_up}=>)
  target_link_libraries(LibTorch::cpu INTERFACE ${LibTorch_CPU} ${LibTorch_C10})
  # libtorch_cpu finds its CUDA libraries by its own path; the linker need not.
  target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)
endif()
