// The same for symbols of libstdc++ that are younger than GCC 8, in libraries that share it.
// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <new>

extern "C" {
[[noreturn]] void __wrap__ZSt28__throw_bad_array_new_lengthv();
void __wrap__ZSt28__throw_bad_array_new_lengthv() { throw std::bad_array_new_length(); }

// std::exception_ptr counted its references inside its copy constructor and destructor, which are
// still there: a copy that is never destroyed adds one.
void copy_pointer(void* to,
                  const void* from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void destroy_pointer(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

void __wrap__ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* pointer);
void __wrap__ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* pointer) {
  void* copy = nullptr;
  copy_pointer(&copy, pointer);
}

void __wrap__ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void* pointer);
void __wrap__ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void* pointer) {
  destroy_pointer(pointer);
}

// A cancellation point since GCC 12, and so a new version.
void old_wait(std::condition_variable*, std::unique_lock<std::mutex>*);
__asm__(
    ".symver old_wait, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>* lock);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  old_wait(condition, lock);
}
}
