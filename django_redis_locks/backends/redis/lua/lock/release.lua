-- Deletes the lock if it is held with this token, and notifies the process that has waited longest. If an address is given,
-- it is registered behind all other waiters. The first write is DEL, which a server at maxmemory allows.
--
-- uses is_owned wake register_waiter
-- KEYS  lock, waiters, index
-- ARGV  token, and to register as a waiter: address, ms to keep the registration
-- returns  0 not held with this token, 1 freed, 2 freed and a process was notified
local owned, denied = is_owned(redis.pcall('GET', KEYS[1]), ARGV[1])
if not owned then return denied or 0 end
redis.call('DEL', KEYS[1])
if KEYS[3] then redis.call('ZREM', KEYS[3], KEYS[1]) end
-- before the wake-up: if no other queue waits, this one is woken, because the reply to the release may be lost
if ARGV[2] then register_waiter(KEYS[2], ARGV[2], '0', ARGV[3]) end
return wake(KEYS[1], KEYS[2]) and 2 or 1
