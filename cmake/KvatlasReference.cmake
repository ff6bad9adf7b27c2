# SPDX-License-Identifier: Apache-2.0
# The man page and the completions of shells, printed by the programs themselves into build/reference and installed.
# kvatlas-viewer describes its own commands, which kvatlas only hands on.
set(_folder ${PROJECT_BINARY_DIR}/reference)
file(MAKE_DIRECTORY ${_folder})
if(KVATLAS_HAS_QT)
  add_custom_command(OUTPUT ${_folder}/viewer.json DEPENDS kvatlas-viewer VERBATIM
                     COMMAND kvatlas-viewer reference json > ${_folder}/viewer.json)
  set(_viewer ${_folder}/viewer.json)
  set(_with --with ${_viewer})
endif()
foreach(_format IN ITEMS man:kvatlas.1 bash:kvatlas zsh:_kvatlas fish:kvatlas.fish json:kvatlas.json)
  string(REPLACE ":" ";" _format ${_format})
  list(GET _format 1 _file)
  list(GET _format 0 _format)
  add_custom_command(OUTPUT ${_folder}/${_file} DEPENDS kvatlas ${_viewer} VERBATIM
                     COMMAND kvatlas reference ${_format} ${_with} > ${_folder}/${_file})
  list(APPEND _files ${_folder}/${_file})
endforeach()
add_custom_target(reference_files ALL DEPENDS ${_files})

include(GNUInstallDirs)
install(FILES ${_folder}/kvatlas.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${_folder}/kvatlas DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${_folder}/_kvatlas DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${_folder}/kvatlas.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
