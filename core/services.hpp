// Host services: the table of functions that every backend is handed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/instance.hpp"

namespace hal {

// Fills the instance's record of services.
void give_services(Instance& in);
// Says in the log which settings the backend has not asked for; each is named once.
void warn_of_unread(Instance& in);

}  // namespace hal
