# anyhal_for_old_glibc(TARGET): the library loads on glibc 2.28 although a newer one built it.
# SPDX-License-Identifier: Apache-2.0
include(CheckLinkerFlag)
include(CheckSymbolExists)

set(CMAKE_REQUIRED_QUIET ON)
check_symbol_exists(__GLIBC__ features.h ANYHAL_ON_GLIBC)
# Before 2.34 these were libraries of their own; since then they are empty, and still there.
set(ANYHAL_OLD_LIBRARIES
  "-Wl,--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,--pop-state")
check_linker_flag(C "${ANYHAL_OLD_LIBRARIES}" ANYHAL_HAS_OLD_LIBRARIES)
set(known FALSE)
if(ANYHAL_ON_GLIBC AND ANYHAL_HAS_OLD_LIBRARIES AND CMAKE_SYSTEM_PROCESSOR MATCHES
    "^(x86_64|AMD64|aarch64)$")
  set(known TRUE)
endif()
option(ANYHAL_OLD_GLIBC "link so that the libraries load on glibc 2.28 and later" ${known})

set(names
  exp exp2 log log2 pow hypot hypotf
  dlopen dlsym dlerror dlclose dladdr dladdr1
  pthread_once __pthread_key_create pthread_mutex_trylock pthread_sigmask
  pthread_cond_clockwait
  stat lstat fstat fstat64 __libc_single_threaded arc4random _dl_find_object __libc_start_main
  _ZSt28__throw_bad_array_new_lengthv _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv
  _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv
  _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
list(TRANSFORM names PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE ANYHAL_WRAPS)

if(ANYHAL_OLD_GLIBC)
  add_library(old_glibc STATIC ${CMAKE_CURRENT_LIST_DIR}/old_glibc.c
    ${CMAKE_CURRENT_LIST_DIR}/old_libstdcxx.cc)
  # Each function apart, so that a library gets those that it calls and no others.
  target_compile_options(old_glibc PRIVATE -O2 -fno-builtin -ffunction-sections -fdata-sections)
endif()

function(anyhal_for_old_glibc target)
  if(NOT ANYHAL_OLD_GLIBC)
    return()
  endif()
  target_link_options(${target} PRIVATE ${ANYHAL_WRAPS} -Wl,--gc-sections)
  target_link_libraries(${target} PRIVATE old_glibc ${ANYHAL_OLD_LIBRARIES})
endfunction()
