// A collective's completion is a Ticket like every other asynchronous operation's.
#pragma once

#include "base/ticket.hpp"
