// A collective's completion is a Ticket like every other asynchronous operation's.
#pragma once

#include "kernels/base/ticket.hpp"
