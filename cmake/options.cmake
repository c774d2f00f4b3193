# The options of this build. One that is not listed, such as a name that changed, stops it: ignored
# in silence it would give a library that lacks what was asked for.
# SPDX-License-Identifier: Apache-2.0
set(ANYHAL_OPTIONS ANYHAL_PYTHON ANYHAL_OLD_GLIBC)

get_cmake_property(given CACHE_VARIABLES)
foreach(name ${given})
  get_property(type CACHE ${name} PROPERTY TYPE)
  if(name MATCHES "^ANYHAL_" AND NOT name IN_LIST ANYHAL_OPTIONS AND NOT type STREQUAL "INTERNAL")
    unset(${name} CACHE)  # so that the next try in this folder does not fail by it
    list(JOIN ANYHAL_OPTIONS ", " known)
    message(FATAL_ERROR "configuring anyhal: there is no option ${name}; known: ${known}")
  endif()
endforeach()
