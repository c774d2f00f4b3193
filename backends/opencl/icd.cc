// Driver files that the ICD loader passes over in silence: those whose library cannot be opened.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "anyhal/sdk/library.hpp"
#include "objects.h"

namespace hal::opencl {
namespace {

bool is_folder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  DIR* open = opendir(folder.c_str());
  if (open == nullptr) return files;
  while (const dirent* entry = readdir(open))
    if (ends_with(entry->d_name, ".icd")) files.push_back(folder + "/" + entry->d_name);
  closedir(open);
  std::sort(files.begin(), files.end());
  return files;
}

// Where loaders look: OCL_ICD_VENDORS, a folder or a file of either kind, else the system's folder.
std::vector<std::string> driver_files() {
  const char* named = secure_getenv("OCL_ICD_VENDORS");
  const std::string place = named != nullptr && *named != '\0' ? named : "/etc/OpenCL/vendors";
  if (is_folder(place)) return files_of(place);
  return ends_with(place, ".icd") ? std::vector{place} : std::vector<std::string>{};
}

// The library that a driver file names; "" where it names none.
std::string library_of(std::ifstream& stream) {
  std::string library;
  std::getline(stream, library);
  library.erase(library.find_last_not_of(" \t\r\n") + 1);
  return library;
}

// A driver file is no regular file, or names a library, that the loader would not come back from.
std::string trap_of(const std::string& file) {
  struct stat info = {};
  if (stat(file.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return "";
  if (!S_ISREG(info.st_mode)) return file + ": it is no regular file";
  std::ifstream stream(file);
  const std::string fault = sdk::library_fault(library_of(stream));
  return fault.empty() ? "" : file + " names " + fault;
}

// The loader keeps open what it could use, so only the others are opened here.
std::string fault_of(const std::string& file) {
  std::ifstream stream(file);
  if (!stream.is_open()) return file + " cannot be read";
  const std::string library = library_of(stream);
  if (library.empty()) return file + " names no library";
  void* opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (opened == nullptr) opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* why = dlerror();
    return file + " names " + library + " (" + (why != nullptr ? why : "cannot be opened") + ")";
  }
  const bool driver = dlsym(opened, "clGetExtensionFunctionAddress") != nullptr;
  dlclose(opened);
  return driver ? "" : file + " names " + library + " (it is no OpenCL driver)";
}

}  // namespace

std::vector<std::string> deadly_drivers() {
  std::vector<std::string> deadly;
  for (const std::string& file : driver_files())
    if (std::string trap = trap_of(file); !trap.empty()) deadly.push_back(std::move(trap));
  return deadly;
}

std::vector<std::string> broken_drivers() {
  std::vector<std::string> broken;
  for (const std::string& file : driver_files())
    if (std::string fault = fault_of(file); !fault.empty()) broken.push_back(std::move(fault));
  return broken;
}

}  // namespace hal::opencl
