-- Deletes the lock if it is still mine, and tells the process that has waited longest. Who gives an address waits
-- himself, and lines up behind all others. The first write is DEL, which a server at maxmemory allows.
--
-- uses is_owned wake register_waiter
-- KEYS  lock, waiters, index
-- ARGV  token, and to line up: address, ms to stay in line
-- returns  0 not mine, 1 freed, 2 freed and a process was told
local mine, denied = is_owned(redis.pcall('GET', KEYS[1]), ARGV[1])
if not mine then return denied or 0 end
redis.call('DEL', KEYS[1])
if KEYS[3] then redis.call('ZREM', KEYS[3], KEYS[1]) end
-- before the wake-up: if nobody else waits it is his, since his own release may not hear that it freed the lock
if ARGV[2] then register_waiter(KEYS[2], ARGV[2], '0', ARGV[3]) end
return wake(KEYS[1], KEYS[2]) and 2 or 1
