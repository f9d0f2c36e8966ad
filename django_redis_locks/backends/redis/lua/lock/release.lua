-- Deletes the lock if it is held with this token, and grants it to the process that has waited longest. If an address is
-- given, it is registered behind all other waiters. The first write is DEL, which a server at maxmemory allows.
--
-- uses is_owned
-- KEYS  lock, waiters, fence counter, index
-- ARGV  token, and to register as a waiter: address, ms to keep the registration
-- returns  0 not held with this token, 1 freed, 2 granted to a waiter
local owned, denied = is_owned(redis.pcall('GET', KEYS[1]), ARGV[1])
if not owned then return denied or 0 end
redis.call('DEL', KEYS[1])
if KEYS[4] then redis.call('ZREM', KEYS[4], KEYS[1]) end
-- first, because if no other queue waits, this one gets the lock
if ARGV[2] then
  -- uses register_waiter
  register_waiter(KEYS[2], ARGV[2], '0', ARGV[3])
end
if redis.pcall('ZCARD', KEYS[2]) == 0 then return 1 end
-- uses now_ms next_fence grant_next
return grant_next(KEYS[1], KEYS[2], KEYS[3], KEYS[4]) and 2 or 1
