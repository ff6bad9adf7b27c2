# SPDX-License-Identifier: Apache-2.0
# Finds what the project needs, and says in one line what a missing part takes away.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(HDF5 1.10.8 REQUIRED COMPONENTS C)
pkg_check_modules(LIBDEFLATE REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

if(KVATLAS_TESTS)
  find_package(GTest REQUIRED)
  pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)  # what ours is compared with
  include(GoogleTest)
endif()
if(KVATLAS_BENCH)
  find_package(benchmark REQUIRED)
endif()

# A LibTorch that was asked for by name must be right; one found by chance may be passed over.
if(NOT KVATLAS_TORCH STREQUAL OFF)
  if(KVATLAS_TORCH STREQUAL ON OR Torch_DIR OR DEFINED ENV{Torch_DIR})
    set(_required REQUIRED)
  endif()
  find_package(LibTorch 2.6 MODULE ${_required})
  set(KVATLAS_HAS_TORCH ${LibTorch_FOUND})
endif()

if(NOT KVATLAS_CUDA STREQUAL OFF)
  if(NOT DEFINED ENV{CUDACXX})
    find_program(KVATLAS_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    mark_as_advanced(KVATLAS_NVCC)
    if(KVATLAS_NVCC)
      set(ENV{CUDACXX} ${KVATLAS_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # One architecture and PTX by default; './dev build --all' names them all.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD_REQUIRED OFF)  # CMake 3.25 knows no CUDA 20; kvatlas_options asks for it
    # The static runtime asks for no driver until it is used: the program runs on machines without a GPU.
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(KVATLAS_HAS_CUDA ON)
  elseif(KVATLAS_CUDA STREQUAL ON)
    message(FATAL_ERROR "KVATLAS_CUDA is ON and no nvcc was found")
  endif()
endif()

find_package(MPI COMPONENTS C)
# From the installed program to its modules; GNUInstallDirs has the same standard.
include(GNUInstallDirs)
file(RELATIVE_PATH KVATLAS_MODULE_DIR /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR}/kvatlas)

# One line for each part that a build can do without.
if(KVATLAS_HAS_TORCH)
  message(NOTICE "kvatlas: LibTorch ${LibTorch_VERSION} in ${LibTorch_ROOT}")
else()
  message(NOTICE "kvatlas: no LibTorch, so nothing that runs a model (generate, profile, evaluate); "
                 "'./dev setup' brings it, -DTorch_DIR=DIR names another. ${LibTorch_REASON}")
endif()
if(MPI_C_FOUND)
  message(NOTICE "kvatlas: MPI ${MPI_C_VERSION}, for runs on many machines")
else()
  message(NOTICE "kvatlas: no MPI (libopenmpi-dev), so one process a run")
endif()
if(KVATLAS_HAS_CUDA)
  message(NOTICE "kvatlas: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(NOTICE "kvatlas: no CUDA compiler (nvcc), so no kernels for GPUs")
endif()
target_compile_definitions(kvatlas_options INTERFACE KVATLAS_HAS_CUDA=$<BOOL:${KVATLAS_HAS_CUDA}>)
