# SPDX-License-Identifier: Apache-2.0
# 'cmake --install' and the packages. A LibTorch that './dev setup' unpacked is taken along, under lib/kvatlas;
# any other (Torch_DIR) stays where it is, and the installed program looks for it there. The program's wheel takes all
# components but that one (export/python/bundle.py).
#
# The build folder is laid out as an installation is. So what is built holds no path of where it was built, and is
# installed as it is: builds of one commit in two folders are equal byte by byte (repeats.sh).
set(_bundle ${CMAKE_INSTALL_LIBDIR}/kvatlas)
set(_rpath $ORIGIN/${KVATLAS_MODULE_DIR})
foreach(_module IN ITEMS kvatlas_mpi kvatlas_http)
  if(TARGET ${_module})
    set_target_properties(${_module} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${_bundle})
    install(TARGETS ${_module} LIBRARY DESTINATION ${_bundle})
  endif()
endforeach()
if(LibTorch_UNPACKED)
  # Flat, since every one of these libraries also looks beside itself.
  file(GLOB _libraries ${LibTorch_LIBRARY_DIR}/*.so* ${LibTorch_ROOT}/../nvidia/*/lib/*.so*)
  install(FILES ${_libraries} DESTINATION ${_bundle} COMPONENT libtorch)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${_bundle})
  foreach(_library IN LISTS _libraries)
    cmake_path(GET _library FILENAME _name)
    file(CREATE_LINK ${_library} ${PROJECT_BINARY_DIR}/${_bundle}/${_name} SYMBOLIC)
  endforeach()
elseif(KVATLAS_HAS_TORCH)
  list(APPEND _rpath ${LibTorch_LIBRARY_DIR})
endif()
foreach(_program IN ITEMS kvatlas kvatlas-engine kvatlas-viewer)
  if(TARGET ${_program})
    set_target_properties(${_program} PROPERTIES INSTALL_RPATH "${_rpath}" BUILD_WITH_INSTALL_RPATH ON)
    install(TARGETS ${_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# What the programs are made of beside our own code, and the licences of the texts that are compiled in.
install(CODE "execute_process(
  COMMAND python3 ${PROJECT_SOURCE_DIR}/cmake/notices.py $<TARGET_FILE:kvatlas-engine> $<$<BOOL:${KVATLAS_HAS_QT}>:${PROJECT_BINARY_DIR}/bin/kvatlas-viewer>
  OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/NOTICE\" COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${PROJECT_SOURCE_DIR}/data/texts/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME texts.md)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_VENDOR "the kvatlas authors")
set(CPACK_PACKAGE_CONTACT "the kvatlas authors")
set(CPACK_STRIP_FILES OFF)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)  # whatever the umask is
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/DebianPlaces.cmake)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(LibTorch_UNPACKED)
  file(GLOB _folders ${LibTorch_LIBRARY_DIR} ${LibTorch_ROOT}/../nvidia/*/lib)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${_folders})
elseif(KVATLAS_HAS_TORCH)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LibTorch_LIBRARY_DIR})
endif()
include(CPack)
