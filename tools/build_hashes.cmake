# At install: writes anyhal/_build_hashes.sha256: as sha256sum does, the hash and the path under anyhal/
# of each library and each chip in Python.
# SPDX-License-Identifier: Apache-2.0
file(REAL_PATH "${CMAKE_INSTALL_PREFIX}/anyhal" root)
file(GLOB libraries RELATIVE "${root}" "${root}/backends/*/*.so" "${root}/backends/*/*.py")
list(SORT libraries)
set(text "")
foreach(library ${libraries})
  file(SHA256 "${root}/${library}" hash)
  string(APPEND text "${hash}  ${library}\n")
endforeach()
file(WRITE "${root}/_build_hashes.sha256" "${text}")
