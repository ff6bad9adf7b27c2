# SPDX-License-Identifier: Apache-2.0
# Run by cpack before it packs: in a .deb the man page is compressed and zsh's completion lies where Debian's zsh looks.
if(CPACK_GENERATOR STREQUAL DEB)
  set(_share ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
  execute_process(COMMAND gzip -9n ${_share}/man/man1/kvatlas.1 COMMAND_ERROR_IS_FATAL ANY)
  file(MAKE_DIRECTORY ${_share}/zsh/vendor-completions)
  file(RENAME ${_share}/zsh/site-functions/_kvatlas ${_share}/zsh/vendor-completions/_kvatlas)
  file(REMOVE_RECURSE ${_share}/zsh/site-functions)
endif()
