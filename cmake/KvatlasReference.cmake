# SPDX-License-Identifier: Apache-2.0
# The man page and the completions of shells, printed by the program itself into build/reference and installed.
set(_folder ${PROJECT_BINARY_DIR}/reference)
file(MAKE_DIRECTORY ${_folder})
foreach(_format IN ITEMS man:kvatlas.1 bash:kvatlas zsh:_kvatlas fish:kvatlas.fish json:kvatlas.json)
  string(REPLACE ":" ";" _format ${_format})
  list(GET _format 1 _file)
  list(GET _format 0 _format)
  add_custom_command(OUTPUT ${_folder}/${_file} DEPENDS kvatlas kvatlas-engine VERBATIM
                     COMMAND kvatlas reference ${_format} > ${_folder}/${_file})
  list(APPEND _files ${_folder}/${_file})
endforeach()
add_custom_target(reference_files ALL DEPENDS ${_files})

include(GNUInstallDirs)
install(FILES ${_folder}/kvatlas.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${_folder}/kvatlas DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${_folder}/_kvatlas DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${_folder}/kvatlas.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
