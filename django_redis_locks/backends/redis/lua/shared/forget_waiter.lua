-- Removes a waiter for permits, and its heartbeat.
local function forget_waiter(waiters, heartbeats, address)
  redis.call('ZREM', waiters, address)
  redis.call('ZREM', heartbeats, address)
end
