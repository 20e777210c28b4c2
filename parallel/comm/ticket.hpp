// Collectives return the Ticket of every other asynchronous operation.
#pragma once

#include "base/ticket.hpp"
