-- Removes a queue of a process from the waiters. If the lock is free, notifies the next waiter, because the removed queue may
-- have received a wake-up that it didn't use. The first write is ZREM, which a server at maxmemory allows.
--
-- uses wake
-- KEYS  lock, waiters
-- ARGV  address ('': it isn't registered any more)
-- returns  0, or 2 if another process was notified
if ARGV[1] ~= '' then redis.call('ZREM', KEYS[2], ARGV[1]) end
if redis.call('EXISTS', KEYS[1]) == 0 and wake(KEYS[1], KEYS[2]) then return 2 end
return 0
