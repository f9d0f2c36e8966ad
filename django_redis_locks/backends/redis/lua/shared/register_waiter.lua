-- Registers a queue of a process as a waiter, by its time of arrival, or at the end if that is 0. Returns the arrival, or 0
-- at maxmemory; the process then polls.
local function register_waiter(waiters, address, arrival, kept)
  if arrival == '0' then
    local time = redis.call('TIME')
    arrival = string.format('%.0f', time[1] * 1000000 + time[2])
  end
  local added = redis.pcall('ZADD', waiters, arrival, address)
  if type(added) == 'table' then return 0 end
  redis.call('PEXPIRE', waiters, kept)
  return arrival
end
